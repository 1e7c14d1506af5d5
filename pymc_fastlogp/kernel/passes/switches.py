"""Switches of a loop, and the specialization of a loop for a known condition."""

from collections.abc import Collection, Iterator

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import cast
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.loops import Loop
from pymc_fastlogp.kernel.ir.substitute import substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import expressions


def switches(loop: Loop) -> Iterator[Compute]:
    """Yield each Switch of a loop once."""
    for expr in expressions(loop):
        if isinstance(expr, Compute) and isinstance(expr.op, ps.Switch):
            yield expr


def decided(loop: Loop, conditions: Collection[Expr], value: bool) -> Loop:
    """Replace each Switch with one of the conditions by the branch for ``value``."""

    def branch(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Compute) and isinstance(expr.op, ps.Switch)):
            return None
        yes, no = (cast(branch, expr.dtype) for branch in expr.args[1:])
        if expr.args[0] in conditions:
            return yes if value else no
        # After the replacement both branches of an outer Switch may be the same zero, the gradient of a branch that is not taken.
        return yes if yes is no else None

    return substitute_in_loop(loop, branch)
