"""The passes over the loop IR, in order. Each pass maps a program to an equivalent program."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.passes.chunk import chunk_long_loops
from pymc_fastlogp.kernel.passes.dead_code import drop_dead_stores
from pymc_fastlogp.kernel.passes.fuse import fuse_loops
from pymc_fastlogp.kernel.passes.in_place import write_in_place
from pymc_fastlogp.kernel.passes.interchange import interchange_axes
from pymc_fastlogp.kernel.passes.layout import transpose_for_vectors
from pymc_fastlogp.kernel.passes.loop_fission import split_large_loops
from pymc_fastlogp.kernel.passes.reciprocal import share_reciprocals
from pymc_fastlogp.kernel.passes.row_blocks import run_in_row_blocks
from pymc_fastlogp.kernel.passes.simplify import simplify
from pymc_fastlogp.kernel.passes.speculate import speculate_on_checks
from pymc_fastlogp.kernel.passes.step_motion import move_work_out_of_steps
from pymc_fastlogp.kernel.passes.unroll import unroll
from pymc_fastlogp.kernel.passes.unroll_sequential import unroll_in_sequential_loops
from pymc_fastlogp.kernel.passes.unswitch import unswitch

Pass = Callable[[Program], Program]

PASSES: tuple[Pass, ...] = (
    # Before fusion, which forwards the scalars that result from one statement to the next.
    unroll_in_sequential_loops,
    # Before fusion: without its short axes, a loop over rows can join the other loops over these rows.
    unroll,
    # Before fusion, which joins a check with the loop that it no longer delays. After unrolling, which the fallback needs, too.
    speculate_on_checks,
    fuse_loops,
    # After fusion, which forwards stored values to their loads. The stores may then be dead.
    drop_dead_stores,
    # After fusion: the code of a step is then one expression per result, from which invariant parts are taken.
    move_work_out_of_steps,
    # After the motion out of sequential loops: only writers outside of sequential loops can be redirected.
    write_in_place,
    # After fusion: expressions of several nodes meet only in a fused loop.
    simplify,
    # After simplification, which changes the expressions that statements share. Sharing decides which statements stay together.
    split_large_loops,
    # After simplification, which rewrites divisions. After fission, as a common reciprocal would keep statements together.
    share_reciprocals,
    # Late: all passes above assume loops without a condition.
    unswitch,
    # After all passes that change statements, whose costs decide the order of the axes.
    interchange_axes,
    # After interchange, which chooses the axis of the vectors.
    transpose_for_vectors,
    # After all passes that know loops over all rows alone. Before the split into chunks of rows, which have blocks inside.
    run_in_row_blocks,
    # After all passes that know loops and sequential loops alone.
    chunk_long_loops,
)


# The fallback hardly ever runs, so only the passes that reduce its compile time are worth their own time.
FALLBACK_PASSES = (fuse_loops, drop_dead_stores, write_in_place, simplify, split_large_loops)


def optimize(
    program: Program,
    passes: Sequence[Pass] = PASSES,
    fallback_passes: Sequence[Pass] = FALLBACK_PASSES,
) -> Program:
    """Run ``passes`` on a program, and ``fallback_passes`` on its fallback."""
    for run in passes:
        program = run(program)
    if program.fallback is None:
        return program
    fallback = replace(
        program.fallback, program=optimize(program.fallback.program, fallback_passes)
    )
    return replace(program, fallback=fallback)
