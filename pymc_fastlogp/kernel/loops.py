"""The loop IR: what a kernel computes, as loops over elements.

A :class:`Program` is a sequence of steps. A :class:`Loop` runs its statements for every index of a
rectangular domain; a statement stores or accumulates one scalar expression into one element of a buffer:

.. code-block:: text

    loop 20000:
        %0 = load person[i0]
        %1 = load theta[%0]
        ...
        dtheta[%0] += %7        a scatter: the index is data
        logp[] += %8            a reduction: the index does not depend on i0
        mu[i0] = %3             a store

A statement may also be a :class:`Call` of BLAS or LAPACK, which updates a matrix or vector.

Expressions are interned: two that are equal are the same object, so that a common subexpression of a loop
is one node, whichever statements use it. All state is in buffers, nothing else changes. These invariants hold
after every pass, and :func:`check` asserts them:

- An index into a buffer has one integer expression for each axis, and a loop uses only its own axes.
- No expression of a loop reads a buffer that a statement of the same loop writes. Hence expressions may
  be evaluated in any order, and those that do not depend on the inner axis before it.
- Two statements of a loop that write the same buffer write different elements, or both accumulate with the
  same operation.
- A ``Scan`` runs along the inner axis, which then stays the inner one.
- A ``Call`` is alone in its loop, whose axes are those of a batch.
- A ``Store`` writes every element at most once, unless it is ``in_order``.
- Every buffer is written before it is read; inputs and constants are never written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.calls import Call
from pymc_fastlogp.kernel.interned import Interned
from pymc_fastlogp.neighbours import Neighbours


class Role(Enum):
    """Where a buffer lives."""

    INPUT = "input"
    CONSTANT = "constant"
    SCRATCH = "scratch"
    OUTPUT = "output"


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in memory, C-contiguous unless it is an input.

    Attributes
    ----------
    name : str
        Unique in a program.
    dtype : str
        As NumPy calls it.
    shape : tuple of Size
        Its axes.
    role : Role
        Where it lives.
    data : bytes
        Of a constant, its elements in C order.
    """

    name: str
    dtype: str
    shape: tuple["Size", ...]
    role: Role
    data: bytes = field(default=b"", repr=False)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Const(Interned):
    """A number.

    Attributes
    ----------
    value : float | int | bool
        The number; a float64 stands for a float32 too.
    dtype : str
        Its type.
    """

    value: float | int | bool
    dtype: str


@dataclass(frozen=True, eq=False)
class Index(Interned):
    """The index of the loop along one of its axes, an int64; axis 0 is the outermost."""

    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Length(Interned):
    """The length of an axis of an input, an int64 known when the kernel is called."""

    input: int
    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Load(Interned):
    """An element of a buffer. The index is in bounds and not negative."""

    buffer: Buffer
    index: tuple["Expr", ...]

    @property
    def dtype(self) -> str:
        """The type of the buffer."""
        return self.buffer.dtype


@dataclass(frozen=True, eq=False)
class Compute(Interned):
    """A scalar Op of PyTensor applied to expressions; never a Composite.

    Attributes
    ----------
    op : ScalarOp
        The Op.
    args : tuple of Expr
        Its inputs.
    dtype : str
        Of the result.
    """

    op: ScalarOp
    args: tuple["Expr", ...]
    dtype: str


Expr = Const | Index | Length | Load | Compute
# The length of an axis. A static one is an int; else an int64 expression of Length, Const and Compute.
Size = int | Expr


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``, the value being of the buffer's type.

    Attributes
    ----------
    buffer : Buffer
        The buffer.
    index : tuple of Expr
        The element.
    value : Expr
        What is stored.
    in_order : bool
        Whether elements may be written repeatedly, so that the last in the order of the loop counts.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    in_order: bool = False


@dataclass(frozen=True)
class Update:
    """A statement that combines an element with a value.

    Attributes
    ----------
    buffer : Buffer
        The buffer.
    index : tuple of Expr
        The element.
    op : ScalarOp
        How they are combined.
    value : Expr
        Of the type of the buffer.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    op: ScalarOp
    value: Expr


@dataclass(frozen=True)
class Accumulate(Update):
    """``buffer[index] = op(buffer[index], value)`` for a commutative and associative scalar Op.

    These are add, mul, maximum, minimum, and_, or_ and xor. Where the index does not depend on the inner axis,
    this is a reduction, else a scatter.

    Attributes
    ----------
    neighbours : Neighbours, optional
        How the elements of a scatter follow each other along the axis of the loop that its index depends on;
        None where it is not known, or depends on several.
    """

    neighbours: Neighbours | None = None


class Scan(Update):
    """``buffer[index] = op(buffer[index before], value)``, from one element of the inner axis to the next.

    The Op is add or mul, and the element another one for each index of the loop. Each line along the inner
    axis starts anew with its first value. The order is that of the axis, so that nothing overflows that would
    not in a plain loop.
    """


@dataclass(frozen=True)
class Check:
    """The kernel returns ``status`` at once, or at the end of the loop, where the condition is false.

    Attributes
    ----------
    condition : Expr
        A bool.
    status : int
        From 1; the number of the error in ``Program.errors``, plus 1.
    """

    condition: Expr
    status: int


Statement = Store | Accumulate | Scan | Check | Call


@dataclass(frozen=True)
class Loop:
    """Statements that run for every index of a domain, in lexicographic order as far as it matters.

    Attributes
    ----------
    domain : tuple of Size
        The lengths of the axes, outermost first; empty for straight-line code.
    body : tuple of Statement
        What runs.
    when : Expr, optional
        A bool without Index; the loop runs only where it is true.
    """

    domain: tuple[Size, ...]
    body: tuple[Statement, ...]
    when: Expr | None = None


@dataclass(frozen=True)
class Error:
    """What is raised where a check fails.

    Attributes
    ----------
    type : type
        The exception's class.
    message : str
        Its text.
    """

    type: type[Exception]
    message: str


@dataclass(frozen=True)
class Program:
    """A kernel.

    Attributes
    ----------
    inputs, outputs, scratch, constants : tuple of Buffer
        All buffers, by role.
    steps : tuple of Loop
        What runs, in order.
    errors : tuple of Error
        What the checks raise.
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    steps: tuple[Loop, ...]
    errors: tuple[Error, ...] = ()


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that an expression is made of."""
    if isinstance(expr, Load):
        return expr.index
    return expr.args if isinstance(expr, Compute) else ()


def roots(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates."""
    if isinstance(statement, Check):
        return (statement.condition,)
    if isinstance(statement, Call):
        given = (argument for argument in statement.arguments if not isinstance(argument, str))
        return (*statement.index, *statement.failed, *given)
    return (*statement.index, statement.value)


def walk(exprs: Sequence[Expr]) -> Iterator[Expr]:
    """Yield each expression below these once, operands first."""
    seen: set[Expr] = set()
    stack = [(expr, False) for expr in reversed(exprs)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in seen:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((operand, False) for operand in reversed(operands(expr)))


def expressions(loop: Loop) -> Iterator[Expr]:
    """Yield each expression of a loop once, operands first."""
    when = [] if loop.when is None else [loop.when]
    return walk([*when, *(root for statement in loop.body for root in roots(statement))])


def reads(loop: Loop) -> set[Buffer]:
    """Return the buffers that a loop loads from."""
    when = [] if loop.when is None else [loop.when]
    return loaded((*when, *(root for statement in loop.body for root in roots(statement))))


# Passes ask again and again, and expressions share operands: what is below each is found once.
_loaded: WeakKeyDictionary[Expr, frozenset[Buffer]] = WeakKeyDictionary()


def loaded(exprs: Sequence[Expr]) -> set[Buffer]:
    """Return the buffers that expressions load from."""
    pending = list(exprs)
    while pending:
        expr = pending[-1]
        missing = [operand for operand in operands(expr) if operand not in _loaded]
        if missing:
            pending.extend(missing)
            continue
        own = (expr.buffer,) if isinstance(expr, Load) else ()
        _loaded[expr] = frozenset(own).union(*(_loaded[operand] for operand in operands(expr)))
        pending.pop()
    return set().union(*(_loaded[expr] for expr in exprs))


def writes(loop: Loop) -> set[Buffer]:
    """Return the buffers that a loop stores to or accumulates in."""
    return {s.buffer for s in loop.body if not isinstance(s, Check)}


def is_ordered(loop: Loop) -> bool:
    """Whether the order in which a loop runs counts, so that its axes must stay as they are."""
    in_order = (isinstance(s, Scan) or (isinstance(s, Store) and s.in_order) for s in loop.body)
    return any(in_order) or is_call(loop)


def is_call(loop: Loop) -> bool:
    """Whether a loop calls a library."""
    return any(isinstance(statement, Call) for statement in loop.body)


def as_size(expr: Expr) -> Size:
    """Return the length that an expression is, an int where it is constant."""
    return int(expr.value) if isinstance(expr, Const) else expr


def as_expr(size: Size) -> Expr:
    """Return a length as an expression."""
    return size if not isinstance(size, int) else Const(size, "int64")


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    return np.dtype(dtype).itemsize
