"""PackTriangle and UnpackTriangle: the lower triangle of a matrix as a vector, row by row.

Element ``i, j`` of the matrix is element ``i (i + 1) / 2 + j`` of the vector. Rows are contiguous on both sides, and loops over all of the matrix suffice:

- Unpacking is a view. Above the diagonal it selects zero; the loaded element of the vector belongs to a later row.
- Packing stores whole rows in order. The elements of row ``i`` above the diagonal are overwritten by the following rows. The last row has no such elements.
"""

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import const, domain_of, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr, Load
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lapack import NOT_SQUARE
from pymc_fastlogp.ops import rows_of_packed


def lower_pack(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the loop that stores the rows one after another, in order."""
    [matrix] = inputs
    [length] = node.outputs[0].type.shape
    n = rows_of_packed(length)
    for size in matrix.shape:
        context.require_equal(size, n, NOT_SQUARE)
    packed = context.buffer(matrix.dtype, (length,))
    domain, (i, j) = domain_of((n, n))
    place = plus(_first_of_row(context, n, i), j)
    context.add(domain, Store(packed, (place,), matrix.at((i, j)), in_order=True))
    return [buffer_array(packed)]


def lower_unpack(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view of a vector as a lower triangular matrix."""
    [packed] = inputs
    n, _ = node.outputs[0].type.shape
    zero = const(0, packed.dtype)

    def at(index: tuple[Expr, ...]) -> Expr:
        i, j = index
        element = packed.at((plus(_first_of_row(context, n, i), j),))
        return switch(truth(ps.ge, i, j), element, zero)

    return [Array((n, n), packed.dtype, at)]


def _first_of_row(context: Context, n: int, i: Expr) -> Expr:
    """Return the position of the first element of a row in the vector."""
    rows = np.arange(n)
    return Load(context.constant("int64", (n,), (rows * (rows + 1) // 2).tobytes()), (i,))
