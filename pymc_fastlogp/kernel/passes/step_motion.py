"""Code motion around sequential loops: a step keeps only the work that the next step needs.

This pass combines four transformations, each derived in its module:

- :mod:`~pymc_fastlogp.kernel.passes.carried_sums`: terms of a step are added to the total that steps carry,
- :mod:`~pymc_fastlogp.kernel.passes.rematerialize`: cheap sequences are computed where vector code reads them,
- :mod:`~pymc_fastlogp.kernel.passes.sink`: results that no step reads are computed after the last step,
- :mod:`~pymc_fastlogp.kernel.passes.hoist`: functions that depend only on sequences are computed before the first step.

Loops over all steps that are new are fused with each other, and stores that became dead are dropped.
"""

from collections.abc import Iterator
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Step
from pymc_fastlogp.kernel.passes.carried_sums import add_to_carried_sums
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.hoist import hoist
from pymc_fastlogp.kernel.passes.rematerialize import rematerialize_sequences
from pymc_fastlogp.kernel.passes.sink import sink


def move_work_out_of_steps(program: Program) -> Program:
    """Move work out of sequential loops."""
    stored: list[Buffer] = []
    inlined = add_to_carried_sums(rematerialize_sequences(program))
    steps = tuple(new for step in inlined.steps for new in _split(step, stored))
    if steps == program.steps:
        return program
    fused = fuse_loops(replace(program, steps=steps, scratch=(*program.scratch, *stored)))
    return drop_dead_stores(fused)


def _split(step: Step, stored: list[Buffer]) -> Iterator[Step]:
    if isinstance(step, Loop):
        yield step
        return
    for part in sink(step):
        if isinstance(part, Loop):
            yield part
        else:
            yield from hoist(part, stored)
