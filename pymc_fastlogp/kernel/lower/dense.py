"""Factorisations and inverses of matrices of some hundred rows, by functions of our own.

What they are is in :mod:`pymc_fastlogp.kernel.emit.dense`. The rows of a matrix are padded to a multiple of :data:`TILE` by those of an identity,
whose factor and inverse it is. They give the upper triangle ``U = L.T``, so that the factor ``L`` is read as a transpose.
"""

from typing import Any

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, domain_of, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Size
from pymc_fastlogp.kernel.ir.loops import RESULT, Call, Store
from pymc_fastlogp.kernel.lower.array import Array, Element, of_buffer
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.context import Context

# A multiple of the rows of all tiles.
TILE = 8
# Rows up to which our functions are faster than LAPACK's (``python -m benchmarks.limits``): beyond, a matrix leaves the caches.
LARGEST = 400


def is_for_us(rows: Size, columns: Size) -> bool:
    """Whether a matrix has few enough rows, which are known."""
    return isinstance(rows, int) and rows == columns and rows <= LARGEST


def factor(context: Context, op: Any, a: Array) -> Array:
    """Append the Cholesky factorisation of each matrix of a batch; all of a factor is nan where there is none."""

    def triangle(index: tuple[Expr, ...]) -> Expr:
        *batch, i, j = index
        element = a.at((*batch, i, j) if op.lower else (*batch, j, i))
        return switch(truth(ps.ge, i, j), element, const(0.0, "float64"))

    upper = _called(context, "factor", a, triangle)
    return transposed(upper) if op.lower else upper


def inverse(context: Context, factor: Array, can_be_inverted: Expr) -> Array:
    """Append the inverse of a matrix by its lower factor; nan where it cannot be inverted."""

    def triangle(index: tuple[Expr, ...]) -> Expr:
        i, j = index
        # Nothing but nan comes of nan.
        element = switch(can_be_inverted, factor.at((j, i)), const(float("nan"), "float64"))
        return switch(truth(ps.le, i, j), element, const(0.0, "float64"))

    return _called(context, "inverse", factor, triangle, n_matrices=2)


def _called(
    context: Context, function: str, a: Array, element: Element, n_matrices: int = 1
) -> Array:
    """Append a padded copy of each matrix of a batch and the call that replaces it; return the matrix without what was padded."""
    *batch, n, _ = a.shape
    assert isinstance(n, int)
    padded = -(-n // TILE) * TILE
    buffer = context.buffer("float64", (*batch, n_matrices * padded, padded))
    domain, index = domain_of(a.shape)
    context.add(domain, Store(buffer, index, element(index)))
    _pad(context, buffer, n, padded)
    domain, leading = domain_of(tuple(batch))
    call = Call(buffer, (*leading, ZERO, ZERO), function, (int64(padded), RESULT))
    context.add(domain, call)
    return of_buffer(buffer).view(a.shape, lambda i: i)


def _pad(context: Context, buffer: Buffer, n: int, padded: int) -> None:
    """Append the stores of ones and zeros behind the first ``n`` rows and columns."""
    rest, batch = padded - n, buffer.shape[:-2]
    for first, shape in (((n, 0), (rest, padded)), ((0, n), (n, rest))):
        if not rest:
            return
        domain, (*leading, i, j) = domain_of((*batch, *shape))
        place = (plus(i, int64(first[0])), plus(j, int64(first[1])))
        one, zero = const(1.0, "float64"), const(0.0, "float64")
        value = switch(truth(ps.eq, *place), one, zero)
        context.add(domain, Store(buffer, (*leading, *place), value))
