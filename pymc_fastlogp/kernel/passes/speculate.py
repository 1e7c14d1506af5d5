"""Speculation on bound checks: assume that they hold, and compute again where one did not.

PyMC's logp is ``Switch(check, logp, -inf)``, and the check is a reduction over all rows, such as
``0 <= p <= 1``. Taken literally, no row's logp may be selected before the last row is checked: two passes. So the
loops are built for a check that is true, where check and logp are in one pass. Behind them stands the program as
it was, with scratch of its own, and runs only if the check turned out false. Both give what upstream gives.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import all_of, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, Loop, Program, Store
from pymc_fastlogp.kernel.ir.substitute import redirect_loads, substitute
from pymc_fastlogp.kernel.ir.traversal import is_uniform, reads, writes
from pymc_fastlogp.kernel.passes.switches import decided, switches


def speculate_on_checks(program: Program) -> Program:
    """Return the program with a first part that assumes late checks to hold.

    Not where steps are repeated: what is long there is no loop over rows, and it would be compiled twice.
    """
    loops = [step for step in program.steps if isinstance(step, Loop)]
    checks = _late_checks(loops)
    if not checks or len(loops) < len(program.steps):
        return program
    failed = Buffer("failed", "bool", (), Role.SCRATCH)
    renamed = {buffer: replace(buffer, name=f"{buffer.name}_again") for buffer in program.scratch}
    again = [_again(loop, renamed, Load(failed, ())) for loop in loops]
    fast = [decided(loop, frozenset(checks), True) for loop in loops]
    failure = Store(failed, (), truth(ps.invert, all_of(checks)))
    return replace(
        program,
        scratch=(*program.scratch, failed, *renamed.values()),
        steps=(*fast, Loop((), (failure,)), *again),
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


def _again(loop: Loop, renamed: dict[Buffer, Buffer], failed: Load) -> Loop:
    """Return a loop of the program as it was, with other scratch, to run if a check failed."""
    body = (
        new if isinstance(new, Check) else replace(new, buffer=renamed.get(new.buffer, new.buffer))
        for new in substitute(loop.body, redirect_loads(renamed))
    )
    return Loop(loop.domain, tuple(body), when=failed)
