"""Steps do no more than what the next one needs: the rest is done by loops over all steps, before them or behind them."""

from collections.abc import Iterator
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Step
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.hoist import with_work_before
from pymc_fastlogp.kernel.passes.inline import inline_sequences
from pymc_fastlogp.kernel.passes.sink import with_results_behind


def split_steps(program: Program) -> Program:
    """Return the program with less to do in what is repeated."""
    stored: list[Buffer] = []
    inlined = inline_sequences(program)
    steps = tuple(new for step in inlined.steps for new in _split(step, stored))
    if steps == program.steps:
        return program
    fused = fuse_loops(replace(program, steps=steps, scratch=(*program.scratch, *stored)))
    return drop_dead_stores(fused)


def _split(step: Step, stored: list[Buffer]) -> Iterator[Step]:
    if isinstance(step, Loop):
        yield step
        return
    for part in with_results_behind(step):
        if isinstance(part, Loop):
            yield part
        else:
            yield from with_work_before(part, stored)
