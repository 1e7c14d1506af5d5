"""Code motion around sequential loops: a step keeps only the work that the next step needs.

This pass combines four transformations, each derived in its module:

- :mod:`~pymc_fastlogp.kernel.passes.carried_sums`: sums of steps are added to a total after the last step,
- :mod:`~pymc_fastlogp.kernel.passes.rematerialize`: cheap sequences are computed where vector code reads them,
- :mod:`~pymc_fastlogp.kernel.passes.sink`: results that no step reads are computed after the last step,
- :mod:`~pymc_fastlogp.kernel.passes.hoist`: functions that depend only on sequences are computed before the first step.

Loops over all steps that are new are fused with each other, and stores that became dead are dropped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Step
from pymc_fastlogp.kernel.ir.traversal import reads
from pymc_fastlogp.kernel.passes.carried_sums import carry_sums
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.hoist import hoist
from pymc_fastlogp.kernel.passes.rematerialize import rematerialize_sequences
from pymc_fastlogp.kernel.passes.sink import sink


def move_work_out_of_steps(program: Program) -> Program:
    """Move work out of sequential loops."""
    stored: list[Buffer] = []
    inlined = rematerialize_sequences(program)
    steps = tuple(
        new
        for step in inlined.steps
        for part in _without_sums(step, inlined.steps)
        for new in _split(part, stored)
    )
    if steps == program.steps:
        return program
    fused = fuse_loops(replace(program, steps=steps, scratch=(*program.scratch, *stored)))
    return drop_dead_stores(fused)


def _without_sums(step: Step, steps: Sequence[Step]) -> Iterable[Step]:
    if isinstance(step, Loop):
        return [step]
    others = (reads(other) for other in steps if other is not step)
    return carry_sums(step, frozenset().union(*others))


def _split(step: Step, stored: list[Buffer]) -> Iterator[Step]:
    if isinstance(step, Loop):
        yield step
        return
    for part in sink(step):
        if isinstance(part, Loop):
            yield part
        else:
            yield from hoist(part, stored)
