r"""Operands of BLAS and LAPACK calls: the first element and the leading dimension of a matrix.

The element of an array at row :math:`i` and column :math:`j` is an expression. If it is a load whose position in memory is affine with a unit stride along one
axis,

.. math::

    p(i, j) = p_0 + s i + j \quad \text{or} \quad p(i, j) = p_0 + i + s j,

BLAS reads the matrix in place; the second form is a transpose. So slices and transposes are not copied. Other arrays are copied in C order. These
include broadcast rows or columns: their stride is 0, while BLAS requires a leading dimension of at least the length of a row.
"""

from typing import NamedTuple

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.affine import Affine, affine
from pymc_fastlogp.kernel.ir.arithmetic import ZERO, cast, int64, product_of_sizes
from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Expr,
    Index,
    Load,
    Size,
    as_expr,
)
from pymc_fastlogp.kernel.ir.loops import Call
from pymc_fastlogp.kernel.lower.array import Array, UnsupportedError
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas

# Placeholders: no loop has these axes.
ROW, COLUMN = Index(-1), Index(-2)


class Operand(NamedTuple):
    """A matrix that BLAS reads in place.

    Attributes
    ----------
    first : Load
        The first element.
    stride : Expr
        The leading dimension, at least 1: the distance of rows in memory, or of columns if the matrix is transposed.
    is_transposed : bool
        Whether columns are contiguous instead of rows.
    """

    first: Load
    stride: Expr
    is_transposed: bool


def operand(context: Context, array: Array, batch: tuple[Expr, ...]) -> Operand:
    """Return the matrix in the last two axes of an array; append a copy if BLAS cannot read the array in place."""
    found = _in_place(array, batch)
    if found is None:
        copy = context.store(array.shape, "float64", lambda i: cast(array.at(i), "float64"))
        found = _in_place(copy, batch)
        assert found is not None
    return found


def leading_dimension(size: Size) -> Expr:
    """Return a leading dimension, which BLAS requires to be at least 1."""
    if isinstance(size, int):
        return int64(max(size, 1))
    return Compute(ps.maximum, (size, int64(1)), "int64")


def transposed(array: Array) -> Array:
    """Return a view with the last two axes swapped."""
    *leading, rows, columns = array.shape
    return array.view((*leading, columns, rows), lambda i: (*i[:-2], i[-1], i[-2]))


def library_call(
    result: Array, batch: tuple[Expr, ...], function: str, arguments: tuple[str | Size, ...]
) -> Call:
    """Return a call that updates one matrix of the batch ``result``, which is all of a buffer."""
    if not blas.is_available():
        raise UnsupportedError("BLAS and LAPACK are not available")
    first = (*batch, *[ZERO] * (result.ndim - len(batch)))
    given = tuple(a if isinstance(a, str) else as_expr(a) for a in arguments)
    return Call(result.whole, first, function, given)


def _in_place(array: Array, batch: tuple[Expr, ...]) -> Operand | None:
    rows, columns = array.shape[-2:]
    place = (ZERO if rows == 1 else ROW, ZERO if columns == 1 else COLUMN)
    element = array.at((*broadcast_index(array.shape[:-2], batch), *place))
    if not isinstance(element, Load) or element.dtype != "float64":
        return None
    forms = [form for i in element.index if (form := affine(i, (ROW, COLUMN))) is not None]
    if len(forms) < len(element.index):
        return None
    down = 0 if rows == 1 else _stride(element.buffer, forms, ROW)
    right = 0 if columns == 1 else _stride(element.buffer, forms, COLUMN)
    if down is None or right is None or down == right == 1:
        return None
    first = Load(element.buffer, tuple(form.rest for form in forms))
    if columns == 1 or right == 1:
        apart = columns if rows == 1 else down
        return Operand(first, leading_dimension(apart), is_transposed=False)
    if rows == 1 or down == 1:
        return Operand(first, leading_dimension(right), is_transposed=True)
    return None


def _stride(buffer: Buffer, forms: list[Affine], index: Index) -> Size | None:
    """Return the stride along an index; None if it is not positive or the index occurs in several axes."""
    moving = [axis for axis, form in enumerate(forms) if form.coefficient(index)]
    if not moving:
        return None
    form, below = forms[moving[0]], buffer.shape[moving[0] + 1 :]
    if len(moving) > 1 or len(form.coefficients) > 1 or form.coefficient(index) < 1:
        return None
    return product_of_sizes((*below, form.coefficient(index)))
