"""Speculation on parameter checks: assume that checks hold, and compute the outputs again by a fallback if a check failed.

.. code-block:: text

    loop n:                                          loop n:
        ok &= 0 <= p[i0] <= 1                            ok &= 0 <= p[i0] <= 1
    loop n:                                     ->       y += f(p[i0])
        y += switch(ok, f(p[i0]), -inf)              failed = not ok
                                                     if failed: the program on the left

The logp of PyMC is ``Switch(check, logp, -inf)``, and a check is often a reduction over all rows. Without speculation no row's logp can be
selected before the last row is checked, which takes two passes over the rows. So the steps
are specialized for a check that is true, and then check and logp share one pass. The original program is the fallback. Both give the same result as PyTensor.

A failing ``Check`` ends the kernel before the fallback is reached. So nothing is assumed if an error depends on the
assumption, for example if the logp itself is asserted to be below a limit.
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
    """Specialize the steps for checks that hold, with the original program as the fallback.

    Programs with sequential loops are not changed: a loop over rows is not their main cost, and the code would be compiled twice. Nor are programs
    with an error that depends on the assumption.
    """
    loops = [step for step in program.steps if isinstance(step, Loop)]
    checks = _reduced_checks(loops)
    if not checks or len(loops) < len(program.steps):
        return program
    if _affects_an_error(loops, checks):
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


def _reduced_checks(loops: Sequence[Loop]) -> list[Load]:
    """Return the conditions of ``Switch(condition, logp, -inf)`` that a loop over rows computes."""
    conditions = dict.fromkeys(
        switch.args[0]
        for loop in loops
        for switch in switches(loop)
        if isinstance(switch.args[2], Const) and switch.args[2].value == -inf
    )
    reduced = _buffers_from_reductions(loops)
    return [c for c in conditions if isinstance(c, Load) and c.buffer in reduced and is_uniform(c)]


def _buffers_from_reductions(loops: Sequence[Loop]) -> set[Buffer]:
    """Return the bool buffers that depend on a reduction over rows, directly or not."""
    found: set[Buffer] = set()
    for loop in loops:
        is_reduced = bool(reads(loop) & found) or (
            loop.domain and any(isinstance(s, Accumulate) for s in loop.body)
        )
        if is_reduced:
            found |= {buffer for buffer in writes(loop) if buffer.dtype == "bool"}
    return found


def _affects_an_error(loops: Sequence[Loop], conditions: Collection[Expr]) -> bool:
    """Return whether a Check depends on a Switch with one of the conditions, directly or through buffers."""
    changed: set[Buffer] = set()
    for loop in loops:
        # Statements share expressions, so one traversal of the loop is cheaper than one per statement. It rules out most loops.
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
    """Return whether a loop has a Switch with one of the conditions, or reads a changed buffer."""
    if not reads(loop).isdisjoint(changed):
        return True
    return any(switch.args[0] in conditions for switch in switches(loop))
