r"""Row blocks: read a matrix once for a linear predictor and its gradient.

.. code-block:: text

    eta = dgemv(X, b)                       repeat t0 n / B:
    loop n:                                     eta[t0 B:] += add_dots(X[t0 B:], b)
        r[i0] = f(eta[i0], y[i0])      ->       loop B from t0 B:
        z[] += h(eta[i0], y[i0])                    r[i0] = f(eta[i0], y[i0])
    g += dgemv(X.T, r)                              z[] += h(eta[i0], y[i0])
                                                g += add_rows(X[t0 B:], r[t0 B:])

A matrix that does not fit into the L2 cache is read from the L3 cache or from memory by each product. Here a block of :math:`B` rows is multiplied, the loops over
these rows run, and the rows are added to the gradient while the block lies in the L1 cache. The rows behind the last block follow once.

The *row steps* of a group run in blocks: products, and loops whose first axis are the rows. A step between two of them that depends on the first, and
on which the second depends, must be a row step, too. All other steps move before or behind the group. In a group

- a buffer with an axis of rows is read and written at the row of the iteration only,
- any other buffer is read, or written by accumulations of one operation, but not both.

So the order of rows and steps changes no value, except for the order of additions.

The same holds for products of the rows with a matrix, :math:`P = X W` and :math:`G = X^\top S`, as of several vectors of coefficients or of the factors of
:mod:`~pymc_fastlogp.rewrites.linalg.row_kronecker`. The rows of :math:`P` and :math:`S` then lie in the cache, too.

BLAS multiplies the matrices that stay (:mod:`pymc_fastlogp.kernel.lower.products`). Small matrices are no calls, so they have no blocks.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from math import prod
from typing import NamedTuple

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ONE, ZERO, const, domain_of, int64, times
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import (
    RESULT,
    Accumulate,
    BlockLoop,
    Call,
    Loop,
    Program,
    Statement,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.traversal import is_call, loaded, loads, updates
from pymc_fastlogp.kernel.passes.fusion_groups import Accesses, are_independent

# Bytes of the rows of all matrices in a block, which share the L1 cache with the vectors, and most bytes of the smallest block, which fits into the
# L2 cache (``python -m benchmarks.limits``).
BLOCK_BYTES, MOST_BYTES = 2**14, 2**17
# Fewest columns: BLAS is faster for fewer (``python -m benchmarks.limits``).
FEWEST_COLUMNS = 4
# Functions of blocks: products that sum over the rows, products with a matrix, and all.
SUMS, OF_MATRICES = ("add_rows", "add_products"), ("set_products", "add_products")
PRODUCTS = ("add_dots", "set_products", *SUMS)
# Rows of a block are a multiple of the widest vector, so that only the last block has a partial vector.
LANES, MOST_ROWS = 16, 256

ROW = Index(0)


def run_in_row_blocks(program: Program) -> Program:
    """Run products with a matrix and the loops between them in blocks of rows."""
    steps = program.steps
    scratch = list(program.scratch)
    for n_rows in dict.fromkeys(product.n_rows for product in map(product_of, steps) if product):
        group = _group(steps, n_rows)
        if group is None:
            continue
        counter = Buffer(f"t{len(scratch)}", "int64", (), Role.SCRATCH)
        scratch.append(counter)
        steps = (*group.before, *_blocks(group.steps, n_rows, counter), *group.behind)
    return replace(program, steps=steps, scratch=tuple(scratch))


class RowProduct(NamedTuple):
    """A product of the rows of a matrix with a vector or a matrix, by BLAS.

    Attributes
    ----------
    function : str
        ``add_dots`` or ``add_rows``, for a matrix ``set_products`` or ``add_products``.
    matrix : Load
        The first element.
    operand : Load
        The first element of the other operand.
    n_vectors : int
        The number of columns of the other operand, which are adjacent.
    distance : Const
        The distance of its rows.
    result : Load
        The first element of the result, to which the product is added.
    """

    function: str
    n_rows: int
    n_columns: int
    matrix: Load
    stride: Const
    operand: Load
    n_vectors: int
    distance: Const
    result: Load

    @property
    def is_sum(self) -> bool:
        """Return whether the product sums over the rows."""
        return self.function in SUMS

    @property
    def of_rows(self) -> Load:
        """First element of the operand or result with one row for each row of the matrix."""
        return self.operand if self.is_sum else self.result

    def in_block(self, first: Expr, n_rows: int) -> Loop:
        """Return the product of some rows."""

        def from_first(load: Load) -> Load:
            return Load(load.buffer, (first, *load.index[1:]))

        result, operand = self.result, self.operand
        if self.is_sum:
            operand = from_first(operand)
        else:
            result = from_first(result)
        sizes = int64(self.n_columns), int64(n_rows)
        of_matrix = (self.distance, int64(self.n_vectors)) if self.is_of_matrix else ()
        arguments = (*sizes, from_first(self.matrix), self.stride, operand, *of_matrix, RESULT)
        return Loop((), (Call(result.buffer, result.index, self.function, arguments),))

    @property
    def is_of_matrix(self) -> bool:
        """Return whether the other operand is a matrix."""
        return self.function in OF_MATRICES

    def zeros(self) -> Loop:
        """Return the loop that stores zeros in the result."""
        domain, element = domain_of(self.result.buffer.shape)
        return Loop(domain, (Store(self.result.buffer, element, const(0.0, "float64")),))


def product_of(step: Step) -> RowProduct | None:
    """Return the product that a step computes if the rows are the first axis of the matrix and of the operand or result."""
    if not isinstance(step, Loop) or not is_call(step) or step.domain or step.when is not None:
        return None
    [call] = step.body
    if not isinstance(call, Call) or call.function not in ("dgemv", "dgemm"):
        return None
    product = _of_vector(call) if call.function == "dgemv" else _of_matrix(call)
    if product is None:
        return None
    are_rows = (
        _starts_with_rows(product.matrix, int(product.stride.value), product.n_rows),
        _starts_with_rows(product.of_rows, product.n_vectors, product.n_rows),
    )
    return product if all(are_rows) else None


def _of_vector(call: Call) -> RowProduct | None:
    letter, n_columns, n_rows, _, matrix, stride, vector, distance, *_ = call.arguments
    if not (isinstance(n_columns, Const) and isinstance(n_rows, Const)):
        return None
    if not isinstance(stride, Const) or distance is not ONE or n_columns.value < FEWEST_COLUMNS:
        return None
    assert isinstance(matrix, Load)
    assert isinstance(vector, Load)
    function = "add_dots" if letter == "T" else "add_rows"
    sizes = int(n_rows.value), int(n_columns.value)
    result = Load(call.buffer, call.index)
    return RowProduct(function, *sizes, matrix, stride, vector, 1, distance, result)


def _of_matrix(call: Call) -> RowProduct | None:
    """Return the product if both operands are in C order, apart from the transpose of a sum over the rows."""
    sizes, operands = call.arguments[:5], call.arguments[6:10]
    match sizes, operands:
        case (
            (
                "N",
                "N" | "T" as letter,
                Const() as n_vectors,
                Const() as n_outer,
                Const() as n_inner,
            ),
            (Load() as operand, Const() as distance, Load() as matrix, Const() as stride),
        ):
            pass
        case _:
            return None
    is_sum = letter == "T"
    n_rows, n_columns = (n_inner, n_outer) if is_sum else (n_outer, n_inner)
    few, size = min(n_columns.value, n_vectors.value), n_columns.value * n_vectors.value
    if few < FEWEST_COLUMNS or 8 * size > MOST_BYTES:
        return None
    # All of the buffer, which can be a reshaped matrix.
    if not _has_elements(call.buffer, int(n_outer.value * n_vectors.value)):
        return None
    return RowProduct(
        "add_products" if is_sum else "set_products",
        int(n_rows.value),
        int(n_columns.value),
        matrix,
        stride,
        operand,
        int(n_vectors.value),
        distance,
        Load(call.buffer, call.index),
    )


def _has_elements(buffer: Buffer, n: int) -> bool:
    static = [size for size in buffer.shape if isinstance(size, int)]
    return len(static) == len(buffer.shape) and prod(static) == n


def _starts_with_rows(first: Load, stride: int, n_rows: int) -> bool:
    """Return whether the first axis of a buffer are the rows, from the first on, at a distance."""
    shape = first.buffer.shape
    if not shape or shape[0] != n_rows or first.index[0] is not ZERO:
        return False
    inner = [size for size in shape[1:] if isinstance(size, int)]
    return len(inner) == len(shape) - 1 and prod(inner) == stride


class Group(NamedTuple):
    """Row steps, and the other steps before and behind them."""

    before: list[Step]
    steps: list[Step]
    behind: list[Step]


def _group(steps: Sequence[Step], n_rows: int) -> Group | None:
    """Return the row steps that can run in blocks, None if no matrix would be read less often."""
    products = {k: product for k, step in enumerate(steps) if (product := product_of(step))}
    products = {k: product for k, product in products.items() if product.n_rows == n_rows}
    of_dots, of_rows = (
        {product.matrix.buffer for product in products.values() if product.is_sum == is_sum}
        for is_sum in (False, True)
    )
    shared = of_dots & of_rows
    members = {k for k, product in products.items() if product.matrix.buffer in shared}
    if not members or _block_rows([products[k] for k in members], n_rows) is None:
        return None
    closed = _closed(steps, members, n_rows)
    if closed is None:
        return None
    members = closed
    for k in (*reversed(range(max(members))), *range(max(members) + 1, len(steps))):
        if k in members or not _is_row_step(steps[k], n_rows):
            continue
        more = _closed(steps, members | {k}, n_rows)
        members = more or members
    arrangement = _arrange(steps, members)
    assert isinstance(arrangement, Group)
    return arrangement


def _closed(steps: Sequence[Step], members: Set[int], n_rows: int) -> set[int] | None:
    """Return row steps with all steps that have to run among them, None if those are no row steps."""
    members = set(members)
    while not isinstance(found := _arrange(steps, members), Group):
        if not all(_is_row_step(steps[k], n_rows) for k in found):
            return None
        members |= found
    return members if is_by_row(found.steps) else None


def _arrange(steps: Sequence[Step], members: Set[int]) -> Group | set[int]:
    """Return the steps in an order in which some steps are adjacent, or the other steps that stand in the way."""
    first, last = min(members), max(members)
    group = Group([*steps[:first]], [steps[first]], [])
    behind: list[int] = []
    touched = Accesses(steps[first])
    for k in range(first + 1, last + 1):
        step = steps[k]
        if k in members:
            in_the_way = {other for other in behind if not are_independent(steps[other], step)}
            if in_the_way:
                return in_the_way
            group.steps.append(step)
        elif touched.is_independent(step):
            group.before.append(step)
            continue
        else:
            behind.append(k)
        touched.add(step)
    group.behind.extend([*(steps[k] for k in behind), *steps[last + 1 :]])
    return group


def _is_row_step(step: Step, n_rows: int) -> bool:
    """Return whether a step is a product of rows, or a loop over rows that may run in parts."""
    product = product_of(step)
    if product is not None:
        return product.n_rows == n_rows
    if not isinstance(step, Loop) or is_call(step) or step.domain[:1] != (n_rows,):
        return False
    return all(map(may_run_in_parts, step.body))


def may_run_in_parts(statement: Statement) -> bool:
    """Return whether a statement may run for some rows after the others."""
    if isinstance(statement, Store):
        return not statement.in_order and ROW in statement.index
    return isinstance(statement, Accumulate)


class Write(NamedTuple):
    """The axis of rows of a written buffer, or the operation of an accumulation."""

    buffer: Buffer
    axis: int | None
    operation: ps.ScalarOp | None


def is_by_row(steps: Sequence[Step]) -> bool:
    """Return whether each written buffer has an axis of rows, or is a sum that no step reads."""
    kinds: dict[Buffer, set[Write]] = {}
    for step in steps:
        for write in _writes(step):
            kinds.setdefault(write.buffer, set()).add(write)
    if any(len(found) > 1 for found in kinds.values()):
        return False
    axes = {buffer: write.axis for buffer, [write] in kinds.items()}
    return all(
        axes[buffer] in of_rows
        for step in steps
        for buffer, of_rows in _reads(step)
        if buffer in axes
    )


def _writes(step: Step) -> Iterator[Write]:
    product = product_of(step)
    if product is not None:
        is_sum = product.is_sum
        yield Write(product.result.buffer, None if is_sum else 0, ps.add if is_sum else None)
        return
    assert isinstance(step, Loop)
    for statement in updates(step):
        assert isinstance(statement, Store | Accumulate)
        if ROW in statement.index:
            yield Write(statement.buffer, statement.index.index(ROW), None)
        else:
            assert isinstance(statement, Accumulate)
            yield Write(statement.buffer, None, statement.op)


def _reads(step: Step) -> Iterator[tuple[Buffer, set[int]]]:
    """Yield the buffers that a step reads, with the axes along which it reads only the row of an iteration."""
    product = product_of(step)
    if product is not None:
        yield product.matrix.buffer, {0}
        yield product.operand.buffer, {0} if product.is_sum else set()
        return
    assert isinstance(step, Loop)
    for load in loads(step):
        yield load.buffer, {axis for axis, i in enumerate(load.index) if i is ROW}
    if step.when is not None:
        yield from ((buffer, set()) for buffer in loaded([step.when]))


def _block_rows(products: Sequence[RowProduct], n_rows: int) -> int | None:
    """Return the number of rows of a block, None if the rows are too long or there is no whole block."""
    columns = {product.matrix.buffer: product.n_columns for product in products}
    of_matrix = [product for product in products if product.is_of_matrix]
    columns |= {product.of_rows.buffer: product.n_vectors for product in of_matrix}
    row_bytes = 8 * sum(columns.values())
    if LANES * row_bytes > MOST_BYTES:
        return None
    rows = min(max(BLOCK_BYTES // row_bytes // LANES * LANES, LANES), MOST_ROWS)
    return rows if rows <= n_rows else None


def _blocks(steps: Sequence[Step], n_rows: int, counter: Buffer) -> list[Step]:
    """Return zeros for sums of products, the loop over the blocks, and the rows behind the last block."""
    products = [product for step in steps if (product := product_of(step))]
    n = _block_rows(products, n_rows)
    assert n is not None
    zeros = [product.zeros() for product in products if product.function == "add_products"]
    first = times(Load(counter, ()), int64(n))
    whole = BlockLoop(counter, n_rows // n, tuple(_in_block(step, first, n) for step in steps))
    n_rest = n_rows % n
    rest = [_in_block(step, int64(n_rows - n_rest), n_rest) for step in steps] if n_rest else []
    return [*zeros, whole, *rest]


def _in_block(step: Step, first: Expr, n_rows: int) -> Loop:
    product = product_of(step)
    if product is not None:
        return product.in_block(first, n_rows)
    assert isinstance(step, Loop)
    return replace(step, domain=(n_rows, *step.domain[1:]), first=first)
