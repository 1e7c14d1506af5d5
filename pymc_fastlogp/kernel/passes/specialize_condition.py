"""A loop for one value of a condition."""

from dataclasses import replace

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import cast
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import Loop
from pymc_fastlogp.kernel.ir.substitute import substitute


def decided(loop: Loop, condition: Expr, value: bool) -> Loop:
    """Return the loop with one branch in place of each Switch on a condition."""

    def branch(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Compute) and isinstance(expr.op, ps.Switch)):
            return None
        yes, no = (cast(branch, expr.dtype) for branch in expr.args[1:])
        if expr.args[0] is condition:
            return yes if value else no
        # Both are zero where one was the gradient of a branch that is not taken.
        return yes if yes is no else None

    return replace(loop, body=substitute(loop.body, branch))
