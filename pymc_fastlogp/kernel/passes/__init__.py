"""The passes over the loop IR, in order; each takes a program and returns one that computes the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.in_place import write_in_place
from pymc_fastlogp.kernel.passes.interchange import interchange_axes
from pymc_fastlogp.kernel.passes.layout import lay_along_vectors
from pymc_fastlogp.kernel.passes.loop_fission import part_large_loops
from pymc_fastlogp.kernel.passes.reciprocal import share_reciprocals
from pymc_fastlogp.kernel.passes.simplify import simplify
from pymc_fastlogp.kernel.passes.speculate import speculate_on_checks
from pymc_fastlogp.kernel.passes.step_motion import split_steps
from pymc_fastlogp.kernel.passes.unroll import unroll
from pymc_fastlogp.kernel.passes.unroll_sequential import straighten
from pymc_fastlogp.kernel.passes.unswitch import unswitch

Pass = Callable[[Program], Program]

PASSES: tuple[Pass, ...] = (
    straighten,
    unroll,
    speculate_on_checks,
    fuse_loops,
    drop_dead_stores,
    split_steps,
    write_in_place,
    simplify,
    part_large_loops,
    share_reciprocals,
    unswitch,
    interchange_axes,
    lay_along_vectors,
)


# Of what hardly ever runs, less is worth while.
FALLBACK_PASSES = (fuse_loops, drop_dead_stores, write_in_place, simplify, part_large_loops)


def optimize(
    program: Program,
    passes: Sequence[Pass] = PASSES,
    fallback_passes: Sequence[Pass] = FALLBACK_PASSES,
) -> Program:
    """Run all passes, and a few of them over what runs again."""
    for run in passes:
        program = run(program)
    if program.fallback is None:
        return program
    fallback = replace(
        program.fallback, program=optimize(program.fallback.program, fallback_passes)
    )
    return replace(program, fallback=fallback)
