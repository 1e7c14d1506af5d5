"""Factorizations and inverses of matrices of some hundred rows, by functions of our own.

What they are is in :mod:`pymc_fastlogp.kernel.emit.dense`. The rows of a matrix are padded to a multiple of :data:`TILE` by those of an identity,
whose factor and inverse it is. They give the upper triangle ``U = L.T``, so that the factor ``L`` is read as a transpose.
"""

from math import nan
from typing import Any

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, domain_of, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Size
from pymc_fastlogp.kernel.ir.loops import RESULT, Call, Store
from pymc_fastlogp.kernel.lower.array import Array, Element, of_buffer
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lapack import MISMATCH, is_regular
from pymc_fastlogp.ops import MAX_ROWS_TILED

# A multiple of the rows of all tiles.
TILE = 8
# Rows up to which our functions are faster than LAPACK's (``python -m benchmarks.limits``): beyond, a matrix leaves the caches.
LARGEST = MAX_ROWS_TILED


def is_for_us(rows: Size, columns: Size) -> bool:
    """Return whether a matrix has few enough rows, which are known."""
    return isinstance(rows, int) and rows == columns and rows <= LARGEST


def factor(context: Context, op: Any, a: Array) -> Array:
    """Append the Cholesky factorization of each matrix of a batch; all of a factor is nan where there is none."""

    def triangle(index: tuple[Expr, ...]) -> Expr:
        *batch, i, j = index
        element = a.at((*batch, i, j) if op.lower else (*batch, j, i))
        return switch(truth(ps.ge, i, j), element, const(0.0, "float64"))

    padded = padded_rows(a)
    buffer = context.buffer("float64", (*a.shape[:-2], padded, padded))
    upper = _called(context, "factor", buffer, a, triangle)
    return transposed(upper) if op.lower else upper


def inverse(context: Context, factor: Array, can_be_inverted: Expr) -> Array:
    """Append the inverse of a matrix by its lower factor; nan where it cannot be inverted."""
    padded = padded_rows(factor)
    buffer = context.buffer("float64", (2 * padded, padded))
    return _called(context, "inverse", buffer, factor, _upper(factor, can_be_inverted))


def supports_pullback(node: Apply) -> bool:
    """Return whether the matrix is one for us, and all is float64."""
    types = {variable.type.dtype for variable in (*node.inputs, *node.outputs)}
    return types == {"float64"} and is_for_us(*node.inputs[0].type.shape)


def lower_pullback(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append ``RankOnePullback``, whose vectors are two rows behind the place for three matrices; nan where the factor has no inverse."""
    factor, *vectors = inputs
    n, padded = _rows(factor), padded_rows(factor)
    can_be_inverted = is_regular(context, factor).at(())
    buffer = context.buffer("float64", (3 * padded + 2, padded))
    for number, vector in enumerate(vectors):
        context.require_equal(vector.shape[0], n, MISMATCH)
        row = int64(3 * padded + number)
        for first, length, values in ((0, n, vector), (n, padded - n, None)):
            domain, [i] = domain_of((length,))
            value = values.at((i,)) if values else const(0.0, "float64")
            context.add(domain, Store(buffer, (row, plus(i, int64(first))), value))
    element = _upper(factor, can_be_inverted)
    return [_called(context, "rank_one_pullback", buffer, factor, element)]


def padded_rows(a: Array) -> int:
    """Return the rows of a matrix, up to a multiple of those of a tile."""
    return -(-_rows(a) // TILE) * TILE


def _rows(a: Array) -> int:
    n = a.shape[-1]
    assert isinstance(n, int)
    return n


def _upper(factor: Array, can_be_inverted: Expr) -> Element:
    """Return the elements of the transpose of a lower factor."""

    def element(index: tuple[Expr, ...]) -> Expr:
        i, j = index
        # Nothing but nan comes of nan.
        value = switch(can_be_inverted, factor.at((j, i)), const(nan, "float64"))
        return switch(truth(ps.le, i, j), value, const(0.0, "float64"))

    return element


def _called(context: Context, function: str, buffer: Buffer, a: Array, element: Element) -> Array:
    """Append the padded copy of each matrix of a batch and the call that replaces it; return the matrix without what was padded."""
    domain, index = domain_of(a.shape)
    context.add(domain, Store(buffer, index, element(index)))
    _pad(context, buffer, _rows(a), padded_rows(a))
    domain, leading = domain_of(a.shape[:-2])
    arguments = (int64(padded_rows(a)), RESULT)
    context.add(domain, Call(buffer, (*leading, ZERO, ZERO), function, arguments))
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
