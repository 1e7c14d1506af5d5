"""Speculation on bound checks: assume that they hold, and compute again where one did not.

PyMC's logp is ``Switch(check, logp, -inf)``, and the check is a reduction over all rows, such as
``0 <= p <= 1``. Taken literally, no row's logp may be selected before the last row is checked: two passes. So the
loops are built for a check that is true, where check and logp are in one pass. Behind them stands the program as
it was, with scratch of its own, and runs only if the check turned out false. Both give what upstream gives.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Const, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, Loop, Program, Store
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import expressions, reads, walk, writes
from pymc_fastlogp.kernel.passes.specialize_condition import decided


def speculate_on_checks(program: Program) -> Program:
    """Return the program with a first part that assumes late checks to hold."""
    checks = _late_checks(program)
    if not checks:
        return program
    failed = Buffer("failed", "bool", (), Role.SCRATCH)
    renamed = {buffer: replace(buffer, name=f"{buffer.name}_again") for buffer in program.scratch}
    again = [_again(loop, renamed, Load(failed, ())) for loop in program.steps]
    fast = [_assuming(loop, checks) for loop in program.steps]
    return replace(
        program,
        scratch=(*program.scratch, failed, *renamed.values()),
        steps=(*fast, _failure(failed, checks), *again),
    )


def _late_checks(program: Program) -> list[Load]:
    """Return the conditions without which logp is -inf, and that depend on a loop."""
    conditions = {
        expr.args[0]: None
        for loop in program.steps
        for expr in expressions(loop)
        if isinstance(expr, Compute)
        and isinstance(expr.op, ps.Switch)
        and isinstance(expr.args[2], Const)
        and expr.args[2].value == -inf
    }
    reduced = _buffers_from_reductions(program)
    return [c for c in conditions if isinstance(c, Load) and c.buffer in reduced and _is_uniform(c)]


def _buffers_from_reductions(program: Program) -> set[Buffer]:
    """Return the bool buffers into which a loop over rows is reduced, directly or not."""
    found: set[Buffer] = set()
    for loop in program.steps:
        late = bool(reads(loop) & found) or (
            loop.domain and any(isinstance(s, Accumulate) for s in loop.body)
        )
        if late:
            found |= {buffer for buffer in writes(loop) if buffer.dtype == "bool"}
    return found


def _is_uniform(expr: Expr) -> bool:
    return not any(isinstance(part, Index) for part in walk([expr]))


def _assuming(loop: Loop, checks: Iterable[Load]) -> Loop:
    for check in checks:
        loop = decided(loop, check, True)
    return loop


def _failure(failed: Buffer, checks: list[Load]) -> Loop:
    held: Expr = checks[0]
    for check in checks[1:]:
        held = Compute(ps.and_, (held, check), "bool")
    return Loop((), (Store(failed, (), Compute(ps.invert, (held,), "bool")),))


def _again(loop: Loop, renamed: dict[Buffer, Buffer], failed: Load) -> Loop:
    """Return a loop of the program as it was, with other scratch, to run if a check failed."""

    def moved(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and expr.buffer in renamed:
            return Load(renamed[expr.buffer], expr.index)
        return None

    body = (
        new if isinstance(new, Check) else replace(new, buffer=renamed.get(new.buffer, new.buffer))
        for new in substitute(loop.body, moved)
    )
    return Loop(loop.domain, tuple(body), when=failed)
