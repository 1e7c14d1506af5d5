"""``LowerInverse``: the inverse of a matrix from its Cholesky factor, in place of the factor, by LAPACK.

LAPACK stores columns: what it sees of the factor ``L`` in C order is ``U = L^T``, and the triangle that it writes is the lower one.
"""

from dataclasses import replace

from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr, as_expr
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT
from pymc_fastlogp.kernel.lower import dense
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.blas_operands import leading_dimension, library_call
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lapack import NAN, NOT_SQUARE, is_regular


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a copy of the factor and the call that inverts it."""
    [factor] = inputs
    rows, n = factor.shape
    context.require_equal(n, rows, NOT_SQUARE)
    can_be_inverted = is_regular(context, factor)
    if dense.is_for_us(rows, n):
        return [dense.inverse(context, factor, can_be_inverted.at(()))]

    def triangle(index: tuple[Expr, ...]) -> Expr:
        # Nothing but nan comes of nan.
        value = switch(can_be_inverted.at(()), factor.at(index), NAN)
        return switch(truth(ps.ge, *index), value, const(0.0, "float64"))

    result = context.store(factor.shape, "float64", triangle)
    call = library_call(result, (), "dpotri", ("U", n, RESULT, leading_dimension(n), INFO))
    # Never marked: the function fails for a zero on the diagonal alone.
    corner = (ZERO, plus(as_expr(n), int64(-1)))
    context.add((), replace(call, failed=corner))
    return [result]
