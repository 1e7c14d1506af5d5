"""A loop for one value of a condition."""

from dataclasses import replace

from pytensor import scalar as ps

from pymc_fastlogp.kernel.expressions import cast
from pymc_fastlogp.kernel.loops import Compute, Expr, Loop
from pymc_fastlogp.kernel.passes.substitute import substitute


def decided(loop: Loop, condition: Expr, value: bool) -> Loop:
    """Return the loop with one branch in place of each Switch on a condition."""

    def branch(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Compute) and isinstance(expr.op, ps.Switch)):
            return None
        if expr.args[0] is not condition:
            return None
        return cast(expr.args[1] if value else expr.args[2], expr.dtype)

    return replace(loop, body=substitute(loop.body, branch))
