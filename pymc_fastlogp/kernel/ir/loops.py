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

A step may also be a :class:`SequentialLoop`, which runs its own steps again and again: the recursion over time of a ``PrefixSum``
of PyTensor.

.. code-block:: text

    repeat t0 200:
        loop :
            %0 = load t0[]
            ...
            state[%1] = %7

Expressions are interned: two that are equal are the same object, so that a common subexpression of a loop
is one node, whichever statements use it. All state is in buffers, nothing else changes. These invariants hold
after every pass, and the tests assert them:

- An index into a buffer has one integer expression for each axis, and a loop uses only its own axes.
- No expression of a loop reads a buffer that a statement of the same loop writes. Hence expressions may
  be evaluated in any order, and those that do not depend on the inner axis before it.
- Two statements of a loop that write the same buffer write different elements, or both accumulate with the
  same operation.
- A ``PrefixSum`` runs along the inner axis, which then stays the inner one.
- A ``Call`` is alone in its loop, whose axes are those of a batch.
- A ``Store`` writes every element at most once, unless it is ``in_order``.
- Every buffer is written before it is read; inputs and constants are never written.
- Steps that are repeated run in their order, each time all of them, so the invariants above are about one turn. What
  a turn writes, the next one reads.
- The counter of a ``SequentialLoop`` is written by it alone, and read by its own steps alone.
"""

from dataclasses import dataclass

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.analysis.index_facts import Neighbors
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Size

# Arguments of a call that are not expressions, besides letters: what it updates, and whether it failed.
RESULT, INFO = "result", "info"


def behind(offset: int) -> str:
    """Return the argument of a call that is ``offset`` elements behind the first that it updates."""
    return f"{RESULT}+{offset}"


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``, the value being of the buffer's type.

    Elements may be written repeatedly if it is ``in_order``: the last in the order of the loop counts.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    in_order: bool = False


@dataclass(frozen=True)
class Update:
    """A statement that combines the element ``buffer[index]`` with a value of the buffer's type."""

    buffer: Buffer
    index: tuple[Expr, ...]
    op: ScalarOp
    value: Expr


@dataclass(frozen=True)
class Accumulate(Update):
    """``buffer[index] = op(buffer[index], value)`` for a commutative and associative scalar Op.

    These are add, mul, maximum, minimum, and_, or_ and xor. Where the index does not depend on the inner axis,
    this is a reduction, else a scatter. ``neighbors`` tells how the elements of a scatter follow each other along the axis
    of the loop that its index depends on; None where it is not known, or depends on several.
    """

    neighbors: Neighbors | None = None


class PrefixSum(Update):
    """``buffer[index] = op(buffer[index before], value)``, from one element of the inner axis to the next.

    The Op is add or mul, and the element another one for each index of the loop. Each line along the inner
    axis starts anew with its first value. The order is that of the axis, so that nothing overflows that would
    not in a plain loop.
    """


@dataclass(frozen=True)
class Check:
    """The kernel returns ``status`` at once, or at the end of the loop, where the condition, a bool, is false.

    The status is the position of the error in ``Program.errors``, from 1.
    """

    condition: Expr
    status: int


@dataclass(frozen=True)
class Call:
    """``function(*arguments)``, where BLAS or LAPACK updates a matrix or vector in place.

    Attributes
    ----------
    buffer : Buffer
        What is updated; nothing else is written.
    index : tuple of Expr
        Its first element; the others have the same leading indices.
    function : str
        The name in :mod:`pymc_fastlogp.kernel.native.blas`.
    arguments : tuple of str or Expr
        In its order: a letter, a length, a float64 constant, a ``Load`` of the first element of a float64 array
        that is read, :data:`RESULT`, an element :func:`behind` it, or :data:`INFO`.
    failed : tuple of Expr, optional
        The element of the buffer that becomes nan where :data:`INFO` says that the function failed.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    function: str
    arguments: tuple[str | Expr, ...]
    failed: tuple[Expr, ...] = ()


# What writes a buffer, which is an attribute of it.
Write = Store | Accumulate | PrefixSum | Call
Statement = Write | Check


@dataclass(frozen=True)
class Loop:
    """Statements that run for every index of a domain, in lexicographic order as far as it matters.

    The domain has the lengths of the axes, outermost first; none for straight-line code. Where there is a condition
    ``when``, a bool without Index, the loop runs only if it is true: only the last passes, from ``unswitch`` on, see such loops.
    """

    domain: tuple[Size, ...]
    body: tuple[Statement, ...]
    when: Expr | None = None


@dataclass(frozen=True)
class SequentialLoop:
    """Steps that run for ``counter = 0, ..., length - 1``, one turn after the other.

    Attributes
    ----------
    counter : Buffer
        Scratch without axes, an int64. So an index by it is a load like others, the same for all of a loop.
    length : Size
        The number of turns; none if it is negative.
    """

    counter: Buffer
    length: Size
    steps: tuple["Step", ...]


Step = Loop | SequentialLoop


@dataclass(frozen=True)
class Error:
    """Exception that a failed check raises."""

    type: type[Exception]
    message: str


@dataclass(frozen=True)
class Fallback:
    """Fallback program that recomputes all outputs if a speculative assumption fails.

    Attributes
    ----------
    failed : Buffer
        Scratch without axes, a bool that the steps before set.
    program : Program
        Of the same inputs and outputs, with scratch of its own. It hardly ever runs, so its code is to be short, not fast.
    """

    failed: Buffer
    program: "Program"


@dataclass(frozen=True)
class Program:
    """A kernel: all its buffers, by role, the steps in order, what the checks raise, and what runs behind the steps if they failed."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    errors: tuple[Error, ...] = ()
    fallback: Fallback | None = None
