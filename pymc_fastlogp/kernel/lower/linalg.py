r"""Cholesky factors and triangular solves, also batched by Blockwise; small matrices become straight-line code.

The Cholesky factor, for each column :math:`j` and each row :math:`i > j`:

.. math::

    p_j = a_{jj} - \sum_{k<j} l_{jk}^2, \quad l_{jj} = \sqrt{p_j}, \quad
    l_{ij} = \Bigl(a_{ij} - \sum_{k<j} l_{ik} l_{jk}\Bigr) / l_{jj}

As upstream, all elements are nan unless all :math:`p_j > 0`. A triangular system is solved by substitution, row by row; the solution is nan if a diagonal
element is 0. The loop runs over the columns of the right-hand side, so each lane of a vector solves for one column. Larger matrices are left to
:mod:`~pymc_fastlogp.kernel.lower.dense` and :mod:`~pymc_fastlogp.kernel.lower.lapack`.
"""

from collections.abc import Sequence
from functools import reduce
from math import nan

from pytensor import scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.kernel.ir.arithmetic import all_of, const, domain_of, int64, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Size
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower import dense, lapack
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index, broadcast_leading
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas

# Most rows of straight-line code. At 12 rows it is twice as fast as LAPACK; more rows gain less and take seconds to compile
# (``python -m benchmarks.limits``).
LARGEST_CHOLESKY, LARGEST_SOLVE = 12, 32


def supports(node: Apply) -> bool:
    """Return whether the matrices are float64, and LAPACK is available or the matrices are small."""
    largest = LARGEST_SOLVE if len(node.inputs) == 2 else LARGEST_CHOLESKY
    types = {variable.type.dtype for variable in (*node.inputs, *node.outputs)}
    has_few_rows = is_small(node.inputs[0].type.shape[-2:], largest)
    return types == {"float64"} and (has_few_rows or blas.is_available())


def lower_cholesky(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the factorization of each matrix of a batch."""
    [a] = inputs
    is_lower = core_op(node.op).lower
    if not is_small(a.shape[-2:], LARGEST_CHOLESKY):
        library = dense if dense.is_tiled(*a.shape[-2:]) else lapack
        return [library.factor(context, core_op(node.op), a)]
    n = rows_of(a)
    domain, batch = domain_of(a.shape[:-2])

    def at(i: int, j: int) -> Expr:
        return a.at((*batch, int64(i), int64(j)) if is_lower else (*batch, int64(j), int64(i)))

    factor: dict[tuple[int, int], Expr] = {}
    pivots = []
    for j in range(n):
        for i in range(j, n):
            known = [(factor[i, k], factor[j, k]) for k in range(j)]
            rest = minus_products(at(i, j), known)
            if i == j:
                pivots.append(rest)
                factor[i, j] = Compute(ps.sqrt, (rest,), "float64")
            else:
                factor[i, j] = quotient_of(rest, factor[j, j])
    is_positive = [truth(ps.gt, p, const(0, "float64")) for p in pivots]
    buffer = context.buffer("float64", a.shape)
    stores = []
    for i in range(n):
        for j in range(n):
            value = factor.get((i, j) if is_lower else (j, i), const(0, "float64"))
            stores.append(Store(buffer, (*batch, int64(i), int64(j)), if_all(is_positive, value)))
    context.add(domain, *stores)
    return [buffer_array(buffer)]


def lower_solve_triangular(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the substitution for each column and each index of the batch."""
    a, b = inputs
    op = core_op(node.op)
    batch = broadcast_leading(context, a.shape[:-2], b.shape[: b.ndim - op.b_ndim])
    if not is_small(a.shape[-2:], LARGEST_SOLVE):
        return [lapack.solve(context, op, a, b, batch)]
    return [_solution(context, op, a, b, batch)]


def _solution(
    context: Context,
    op: SolveTriangular,
    a: Array,
    b: Array,
    shape: tuple[Size, ...],
    nan_if_singular: bool = True,
) -> Array:
    """Append a substitution as straight-line code."""
    n = rows_of(a)
    columns = b.shape[b.ndim - op.b_ndim + 1 :]
    batches = [a.shape[:-2], b.shape[: b.ndim - op.b_ndim]]
    context.require_equal(n, b.shape[b.ndim - op.b_ndim], lapack.MISMATCH)
    domain, index = domain_of((*shape, *columns))
    batch, column = index[: len(shape)], index[len(shape) :]

    def matrix(i: int, j: int) -> Expr:
        leading = broadcast_index(batches[0], batch)
        return a.at((*leading, int64(i), int64(j)))

    diagonal = [const(1, "float64") if op.unit_diagonal else matrix(i, i) for i in range(n)]
    solution: dict[int, Expr] = {}
    for i in range(n) if op.lower else reversed(range(n)):
        leading = broadcast_index(batches[1], batch)
        known = [(matrix(i, k), x) for k, x in solution.items()]
        rest = minus_products(b.at((*leading, int64(i), *column)), known)
        solution[i] = rest if op.unit_diagonal else quotient_of(rest, diagonal[i])
    is_checked = nan_if_singular and not op.unit_diagonal
    is_regular = [truth(ps.neq, d, const(0, "float64")) for d in diagonal if is_checked]
    buffer = context.buffer("float64", (*shape, n, *columns))
    stores = (
        Store(buffer, (*batch, int64(i), *column), if_all(is_regular, solution[i]))
        for i in range(n)
    )
    context.add(domain, *stores)
    return buffer_array(buffer)


def supports_library(node: Apply) -> bool:
    """Return whether the matrices are float64, and LAPACK is available."""
    types = {variable.type.dtype for variable in (*node.inputs, *node.outputs)}
    return types == {"float64"} and blas.is_available()


def lower_cholesky_solve(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append two triangular solves with the factor. As upstream, a singular factor gives infinite elements, not nan."""
    factor, b = inputs
    op = core_op(node.op)
    batch = broadcast_leading(context, factor.shape[:-2], b.shape[: b.ndim - op.b_ndim])
    lower, upper = (factor, transposed(factor)) if op.lower else (transposed(factor), factor)
    solve = _solution if is_small(factor.shape[-2:], LARGEST_SOLVE) else lapack.solve
    for is_lower, triangle in ((True, lower), (False, upper)):
        of_triangle = SolveTriangular(lower=is_lower, b_ndim=op.b_ndim)
        b = solve(context, of_triangle, triangle, b, batch, nan_if_singular=False)
    return [b]


def is_small(shape: Sequence[Size | None], largest: int) -> bool:
    """Return whether a matrix is static, square, and has at most ``largest`` rows."""
    rows, columns = shape
    return isinstance(rows, int) and rows == columns and rows <= largest


def rows_of(matrix: Array) -> int:
    """Return the static number of rows of a matrix."""
    rows = matrix.shape[-1]
    assert isinstance(rows, int)
    return rows


def minus_products(start: Expr, factors: list[tuple[Expr, Expr]]) -> Expr:
    """Return ``start`` minus the products of the pairs."""

    def minus(total: Expr, pair: tuple[Expr, Expr]) -> Expr:
        return Compute(ps.sub, (total, Compute(ps.mul, pair, "float64")), "float64")

    return reduce(minus, factors, start)


def quotient_of(a: Expr, b: Expr) -> Expr:
    """Return ``a / b``."""
    return Compute(ps.true_div, (a, b), "float64")


def if_all(conditions: Sequence[Expr], value: Expr) -> Expr:
    """Return a value, or nan unless all conditions hold."""
    if not conditions:
        return value
    return switch(all_of(conditions), value, const(nan, "float64"))
