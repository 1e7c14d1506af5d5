"""Speculation on bound checks: assume that they hold, and compute again where one did not.

PyMC's logp is ``Switch(check, logp, -inf)``, and the check is a reduction over all rows, such as
``0 <= p <= 1``. Taken literally, no row's logp may be selected before the last row is checked: two passes. So the
steps are built for a check that is true, where check and logp are in one pass. The program as it was runs behind them, and
only if the check turned out false. Both give what upstream gives.

A ``Check`` of the steps ends the kernel before that is known. So nothing is assumed where an error would depend on the
assumption, as where the logp itself is asserted to be below a limit.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import all_of, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Expr, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, Fallback, Loop, Program, Store
from pymc_fastlogp.kernel.ir.traversal import is_uniform, reads, writes
from pymc_fastlogp.kernel.passes.switches import decided, switches


def speculate_on_checks(program: Program) -> Program:
    """Return the program with steps that assume late checks to hold.

    Not where steps are repeated: what is long there is no loop over rows, and it would be compiled twice. Nor where
    one of the errors depends on the assumption.
    """
    loops = [step for step in program.steps if isinstance(step, Loop)]
    checks = _late_checks(loops)
    if not checks or len(loops) < len(program.steps):
        return program
    if _decides_an_error(loops, checks):
        return program
    failed = Buffer("failed", "bool", (), Role.SCRATCH)
    failure = Store(failed, (), truth(ps.invert, all_of(checks)))
    fast = (decided(loop, frozenset(checks), True) for loop in loops)
    return replace(
        program,
        scratch=(*program.scratch, failed),
        steps=(*fast, Loop((), (failure,))),
        fallback=Fallback(failed, program),
    )


def _late_checks(loops: Sequence[Loop]) -> list[Load]:
    """Return the conditions without which logp is -inf, and that depend on a loop."""
    conditions = dict.fromkeys(
        switch.args[0]
        for loop in loops
        for switch in switches(loop)
        if isinstance(switch.args[2], Const) and switch.args[2].value == -inf
    )
    reduced = _buffers_from_reductions(loops)
    return [c for c in conditions if isinstance(c, Load) and c.buffer in reduced and is_uniform(c)]


def _buffers_from_reductions(loops: Sequence[Loop]) -> set[Buffer]:
    """Return the bool buffers into which a loop over rows is reduced, directly or not."""
    found: set[Buffer] = set()
    for loop in loops:
        late = bool(reads(loop) & found) or (
            loop.domain and any(isinstance(s, Accumulate) for s in loop.body)
        )
        if late:
            found |= {buffer for buffer in writes(loop) if buffer.dtype == "bool"}
    return found


def _decides_an_error(loops: Sequence[Loop], conditions: Collection[Expr]) -> bool:
    """Return whether a Check depends on a Switch on some conditions, directly or through buffers."""
    changed: set[Buffer] = set()
    for loop in loops:
        # Statements share expressions: one walk over the loop spares most loops one for each of them.
        if not _depends(loop, conditions, changed):
            continue
        for statement in loop.body:
            alone = replace(loop, body=(statement,))
            if not _depends(alone, conditions, changed):
                continue
            if isinstance(statement, Check):
                return True
            changed |= writes(alone)
    return False


def _depends(loop: Loop, conditions: Collection[Expr], changed: Collection[Buffer]) -> bool:
    """Return whether a loop has a Switch on some conditions, or reads what one has changed."""
    if not reads(loop).isdisjoint(changed):
        return True
    return any(switch.args[0] in conditions for switch in switches(loop))
