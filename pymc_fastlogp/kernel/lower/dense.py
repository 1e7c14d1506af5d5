"""Cholesky factors and inverses of matrices with up to 400 rows, by the tiled functions of :mod:`pymc_fastlogp.kernel.emit.dense`.

A matrix is padded to a multiple of :data:`TILE` rows with rows of an identity matrix, which is its own factor and inverse. The functions return the upper
triangle ``U = L.T``, so the factor ``L`` is a transposed view.
"""

from math import nan
from typing import Any

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, domain_of, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Size
from pymc_fastlogp.kernel.ir.loops import RESULT, Call, Store
from pymc_fastlogp.kernel.lower.array import Array, Element, buffer_array
from pymc_fastlogp.kernel.lower.blas_operands import transposed
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lapack import MISMATCH, is_regular
from pymc_fastlogp.ops import MAX_ROWS_TILED

# Common multiple of the numbers of rows of all tile shapes.
TILE = 8
# Most rows for which the tiled functions are faster than LAPACK (``python -m benchmarks.limits``): larger matrices do not fit into the caches.
LARGEST = MAX_ROWS_TILED


def is_tiled(rows: Size, columns: Size) -> bool:
    """Return whether a matrix is static, square and small enough for the tiled functions."""
    return isinstance(rows, int) and rows == columns and rows <= LARGEST


def factor(context: Context, op: Any, a: Array) -> Array:
    """Append the Cholesky factorization of each matrix of a batch; a factor is nan if the matrix is not positive definite."""

    def triangle(index: tuple[Expr, ...]) -> Expr:
        *batch, i, j = index
        element = a.at((*batch, i, j) if op.lower else (*batch, j, i))
        return switch(truth(ps.ge, i, j), element, const(0.0, "float64"))

    padded = padded_rows(a)
    buffer = context.buffer("float64", (*a.shape[:-2], padded, padded))
    upper = _call_on_padded(context, "factor", buffer, a, triangle)
    return transposed(upper) if op.lower else upper


def inverse(context: Context, factor: Array, can_be_inverted: Expr) -> Array:
    """Append the inverse of a matrix from its lower factor; nan if the matrix is singular."""
    padded = padded_rows(factor)
    buffer = context.buffer("float64", (2 * padded, padded))
    return _call_on_padded(context, "inverse", buffer, factor, _upper(factor, can_be_inverted))


def supports_pullback(node: Apply) -> bool:
    """Return whether the matrix suits the tiled functions, and all dtypes are float64."""
    types = {variable.type.dtype for variable in (*node.inputs, *node.outputs)}
    return types == {"float64"} and is_tiled(*node.inputs[0].type.shape)


def lower_pullback(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append ``RankOnePullback``; nan if the factor is singular. In the buffer, the two vectors follow space for three matrices."""
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
    return [_call_on_padded(context, "rank_one_pullback", buffer, factor, element)]


def padded_rows(a: Array) -> int:
    """Return the number of rows of a matrix, rounded up to a multiple of TILE."""
    return -(-_rows(a) // TILE) * TILE


def _rows(a: Array) -> int:
    n = a.shape[-1]
    assert isinstance(n, int)
    return n


def _upper(factor: Array, can_be_inverted: Expr) -> Element:
    """Return the element function of the transpose of a lower factor."""

    def element(index: tuple[Expr, ...]) -> Expr:
        i, j = index
        # From nan, the function computes nothing but nan.
        value = switch(can_be_inverted, factor.at((j, i)), const(nan, "float64"))
        return switch(truth(ps.le, i, j), value, const(0.0, "float64"))

    return element


def _call_on_padded(
    context: Context, function: str, buffer: Buffer, a: Array, element: Element
) -> Array:
    """Append a padded copy of each matrix of a batch and a call that overwrites it; return the result without the padding."""
    domain, index = domain_of(a.shape)
    context.add(domain, Store(buffer, index, element(index)))
    _pad(context, buffer, _rows(a), padded_rows(a))
    domain, leading = domain_of(a.shape[:-2])
    arguments = (int64(padded_rows(a)), RESULT)
    context.add(domain, Call(buffer, (*leading, ZERO, ZERO), function, arguments))
    return buffer_array(buffer).view(a.shape, lambda i: i)


def _pad(context: Context, buffer: Buffer, n: int, padded: int) -> None:
    """Append loops that fill the rows and columns from ``n`` on with the rows and columns of an identity matrix."""
    rest, batch = padded - n, buffer.shape[:-2]
    for first, shape in (((n, 0), (rest, padded)), ((0, n), (n, rest))):
        if not rest:
            return
        domain, (*leading, i, j) = domain_of((*batch, *shape))
        place = (plus(i, int64(first[0])), plus(j, int64(first[1])))
        one, zero = const(1.0, "float64"), const(0.0, "float64")
        value = switch(truth(ps.eq, *place), one, zero)
        context.add(domain, Store(buffer, (*leading, *place), value))
