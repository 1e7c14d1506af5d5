"""Dead code: what is stored and never read, and the buffers of which nothing is left."""

from collections import defaultdict
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer, Role
from pymc_fastlogp.kernel.ir.loops import Check, Loop, Program, Statement
from pymc_fastlogp.kernel.ir.traversal import (
    counters,
    loaded,
    loops_in,
    reads,
    roots,
    with_loops,
    writes,
)


def drop_dead_stores(program: Program) -> Program:
    """Return the program without statements that no output depends on."""
    live = _live_buffers(program)

    def is_live(statement: Statement) -> bool:
        return isinstance(statement, Check) or statement.buffer in live

    def without_dead(loop: Loop) -> list[Loop]:
        body = tuple(filter(is_live, loop.body))
        return [replace(loop, body=body)] if body else []

    steps = with_loops(program.steps, without_dead)
    used = {*counters(steps)}.union(*(reads(step) | writes(step) for step in steps))
    return replace(
        program,
        steps=steps,
        scratch=tuple(buffer for buffer in program.scratch if buffer in used),
        constants=tuple(buffer for buffer in program.constants if buffer in used),
    )


def _live_buffers(program: Program) -> set[Buffer]:
    """Return the buffers that are outputs or are read for one, for a check, or for what runs again, directly or not."""
    live = {buffer for buffer in program.outputs if buffer.role is Role.OUTPUT}
    if program.fallback:
        live.add(program.fallback.failed)
    read_for = defaultdict[Buffer, set[Buffer]](set)
    for loop in loops_in(program.steps):
        for statement in loop.body:
            target = live if isinstance(statement, Check) else read_for[statement.buffer]
            target |= loaded(roots(statement))
    pending = list(live)
    while pending:
        found = read_for.pop(pending.pop(), set()) - live
        live |= found
        pending += found
    return live
