"""Steps of a program in order: nests of loops, and sequential loops around further steps.

The counter of a sequential loop is a stack variable, which LLVM promotes to a register, as is every buffer without axes. Other buffers stay
in memory: a value that one iteration stores and the next iteration loads goes through the store buffer of the CPU, unless LLVM keeps it in a register.
"""

from collections.abc import Sequence

from pymc_fastlogp.kernel.emit.function import Function
from pymc_fastlogp.kernel.emit.loop_nest import emit_loop
from pymc_fastlogp.kernel.emit.parallel import emit_run, task_of
from pymc_fastlogp.kernel.ir.loops import Loop, ParallelLoop, SequentialLoop, Step
from pymc_fastlogp.kernel.llvm import I64, as_i64


def emit_steps(function: Function, steps: Sequence[Step], is_repeated: bool = False) -> None:
    """Append the code of steps to a kernel; ``is_repeated`` says that they are within a sequential loop."""
    for step in steps:
        if isinstance(step, Loop):
            emit_loop(function, step, is_repeated)
        elif isinstance(step, ParallelLoop):
            _emit_parallel_loop(function, step)
        else:
            _emit_sequential_loop(function, step)


def _emit_sequential_loop(function: Function, loop: SequentialLoop) -> None:
    """Append a loop that tests its condition at the start, because it may have no iteration."""
    builder = function.builder
    length, counter = as_i64(function.length(loop.length)), function.pointer_of(loop.counter)
    before = builder.block
    head, body, after = (
        builder.append_basic_block(name) for name in ("repeat", "turn", "repeated")
    )
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(I64)
    number.add_incoming(I64(0), before)
    builder.cbranch(builder.icmp_signed("<", number, length), body, after)
    builder.position_at_end(body)
    builder.store(number, counter)
    emit_steps(function, loop.steps, is_repeated=True)
    number.add_incoming(builder.add(number, I64(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


def _emit_parallel_loop(function: Function, loop: ParallelLoop) -> None:
    """Append a parallel loop, whose iterations are tasks."""
    task = task_of(function, loop)
    emit_steps(task.body, loop.steps)
    emit_run(function, loop, task)
