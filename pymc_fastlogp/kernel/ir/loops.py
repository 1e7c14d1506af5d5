"""The loop IR: a kernel as a sequence of loops over elements of buffers.

A :class:`Program` is a sequence of steps. A :class:`Loop` runs its statements for every index of a rectangular domain. A statement stores a scalar expression in
one element of a buffer, or accumulates the expression there:

.. code-block:: text

    loop 20000:
        %0 = load person[i0]
        %1 = load theta[%0]
        ...
        dtheta[%0] += %7        scatter: the index is loaded
        logp[] += %8            reduction: the index does not depend on i0
        mu[i0] = %3             store

A statement can also be a :class:`Call` of BLAS or LAPACK, which updates a matrix or vector.

A step can also be a :class:`SequentialLoop`, which repeats a sequence of steps. PyTensor's ``Scan`` becomes such a step:

.. code-block:: text

    repeat t0 200:
        loop :
            %0 = load t0[]
            ...
            state[%1] = %7

Expressions are interned: equal expressions are the same object. So a common subexpression of several statements is one node. All state is in buffers.

A :class:`ParallelLoop` is a sequential loop whose iterations are independent, such as chunks of rows. A :class:`BlockLoop` is a sequential loop over
blocks of rows, whose iterations share no elements but sums.

These invariants hold after every pass, and the tests assert them:

- An index into a buffer has one int64 expression for each axis. A loop uses only its own axes.
- No expression of a loop reads a buffer that the loop writes. Hence expressions can be evaluated in any order, and loop-invariant expressions before
  the inner loop.
- Two statements of a loop that write the same buffer write different elements, or both accumulate with the same operation.
- A ``PrefixSum`` runs along the inner axis, which stays the inner axis.
- A ``Call`` is the only statement of its loop, whose axes are batch axes.
- A ``Store`` writes every element at most once, unless it is ``in_order``.
- Every buffer is written before it is read. Inputs and constants are never written.
- The steps of a ``SequentialLoop`` run in order in each iteration. The invariants above hold within one iteration; an iteration can read the values that
  the previous iteration wrote.
- The counter of a ``SequentialLoop`` is written only by the ``SequentialLoop``, and read only by its steps.
"""

from dataclasses import dataclass

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.analysis.index_facts import Neighbors
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Size

# Arguments of a call for the updated buffer and for the status that the function returns.
RESULT, INFO = "result", "info"


def result_offset(offset: int) -> str:
    """Return the argument of a call for the element ``offset`` elements after the first updated element."""
    return f"{RESULT}+{offset}"


@dataclass(frozen=True)
class Store:
    """``buffer[index] = value``, with a value of the dtype of the buffer.

    Only an ``in_order`` store may write an element repeatedly; the last value in the order of the loop remains.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    in_order: bool = False


@dataclass(frozen=True)
class Update:
    """A statement that combines the element ``buffer[index]`` with a value of the same dtype."""

    buffer: Buffer
    index: tuple[Expr, ...]
    op: ScalarOp
    value: Expr


@dataclass(frozen=True)
class Accumulate(Update):
    """``buffer[index] = op(buffer[index], value)`` for a commutative and associative scalar Op.

    The Op is add, mul, maximum, minimum, and_, or_ or xor. If the index does not depend on the inner axis, the statement is a
    reduction, otherwise a scatter. ``neighbors`` describes the order of the scattered elements along the one axis that
    the index depends on; None if unknown, or if the index depends on several axes.
    """

    neighbors: Neighbors | None = None


class PrefixSum(Update):
    """``buffer[index] = op(buffer[previous index], value)``: a running sum or product along the inner axis.

    The Op is add or mul, and each index of the loop has a different element. Each line along the inner axis starts with its first
    value. Values are combined in the order of the axis, so overflow is the same as in a sequential loop.
    """


@dataclass(frozen=True)
class Check:
    """Return ``status`` from the kernel, at once or at the end of the loop, if the bool ``condition`` is false.

    The status is the 1-based position of the error in ``Program.errors``.
    """

    condition: Expr
    status: int


@dataclass(frozen=True)
class Call:
    """``function(*arguments)``: a call of BLAS or LAPACK that updates a matrix or vector in place.

    Attributes
    ----------
    buffer : Buffer
        The updated buffer; the function writes no other buffer.
    index : tuple of Expr
        The first updated element. All updated elements have the same leading indices.
    function : str
        A name in :mod:`pymc_fastlogp.kernel.native.blas`, :mod:`pymc_fastlogp.kernel.emit.dense`,
        :mod:`pymc_fastlogp.kernel.emit.row_products` or :mod:`pymc_fastlogp.kernel.emit.matrix_products`.
    arguments : tuple of str or Expr
        In the order of the function. An argument is a letter, a length, a float64 constant, a ``Load`` of the first element of a float64
        operand, :data:`RESULT`, a :func:`result_offset`, or :data:`INFO`.
    failed : tuple of Expr, optional
        The element of the buffer that is set to nan if :data:`INFO` reports failure.
    """

    buffer: Buffer
    index: tuple[Expr, ...]
    function: str
    arguments: tuple[str | Expr, ...]
    failed: tuple[Expr, ...] = ()


# Statements that write a buffer, their attribute ``buffer``.
Write = Store | Accumulate | PrefixSum | Call
Statement = Write | Check


@dataclass(frozen=True)
class Loop:
    """Statements that run for every index of a domain, in lexicographic order where the order matters.

    Attributes
    ----------
    domain : tuple of Size
        The lengths of the axes, outermost first; empty for straight-line code.
    body : tuple of Statement
        The statements.
    when : Expr, optional
        The loop runs only if this loop-invariant bool is true. Only ``unswitch`` and later passes see such loops.
    first : Expr, optional
        The first index along axis 0, a loop-invariant int64; 0 by default. Only the last two passes make such loops.
    """

    domain: tuple[Size, ...]
    body: tuple[Statement, ...]
    when: Expr | None = None
    first: Expr | None = None


@dataclass(frozen=True)
class SequentialLoop:
    """Steps that are repeated for ``counter = 0, ..., length - 1``.

    Attributes
    ----------
    counter : Buffer
        A 0-d int64 scratch buffer. An index by the counter is an ordinary loop-invariant load.
    length : Size
        The number of iterations; a negative number means none.
    steps : tuple of Step
        The steps of one iteration.
    """

    counter: Buffer
    length: Size
    steps: tuple["Step", ...]


@dataclass(frozen=True)
class BlockLoop(SequentialLoop):
    """Steps for blocks of rows.

    An element that several iterations write is written by accumulations of one operation, or by ``add_rows`` or ``add_products``, and the loop
    does not read the element. No iteration reads an element that another iteration writes. The length is static.
    """


@dataclass(frozen=True)
class ParallelLoop(SequentialLoop):
    """Steps for ``counter = 0, ..., length - 1`` that give the same result in any order, and at the same time.

    No iteration reads an element that another iteration writes, and no two iterations write the same element. The length is static.

    Attributes
    ----------
    when : Expr, optional
        The condition of all loops inside, which is loop-invariant.
    n_rows : int
        Number of rows of all iterations together, for reports.
    """

    when: Expr | None = None
    n_rows: int = 0


Step = Loop | SequentialLoop


@dataclass(frozen=True)
class Error:
    """The exception that a failed check raises."""

    type: type[Exception]
    message: str


@dataclass(frozen=True)
class Fallback:
    """A program that recomputes all outputs if a speculative assumption fails.

    Attributes
    ----------
    failed : Buffer
        A 0-d bool scratch buffer that the main program sets if the assumption fails.
    program : Program
        A program with the same inputs and outputs, and its own scratch buffers. It rarely runs, so its code is optimized for size.
    """

    failed: Buffer
    program: "Program"


@dataclass(frozen=True)
class Program:
    """A kernel: its buffers by role, the steps in order, the errors of the checks, and the fallback of speculation."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    errors: tuple[Error, ...] = ()
    fallback: Fallback | None = None
