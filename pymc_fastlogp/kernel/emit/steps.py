"""Steps in their order, and steps that are repeated: a plain loop around their code.

The counter is a variable on the stack, which becomes a register, as do all buffers without axes. Other buffers stay in memory:
what one turn stores and the next one loads goes through the CPU's store buffer, unless LLVM sees that it can be kept.
"""

from collections.abc import Sequence

from pymc_fastlogp.kernel.emit.function import Function
from pymc_fastlogp.kernel.emit.loop_nest import emit_loop
from pymc_fastlogp.kernel.ir.loops import Loop, SequentialLoop, Step
from pymc_fastlogp.kernel.llvm import I64, as_i64


def emit_steps(function: Function, steps: Sequence[Step], is_repeated: bool = False) -> None:
    """Append loops, and what is repeated, to a kernel or to what is repeated."""
    for step in steps:
        if isinstance(step, Loop):
            emit_loop(function, step, is_repeated)
        else:
            _emit_repeat(function, step)


def _emit_repeat(function: Function, repeat: SequentialLoop) -> None:
    """Append a loop that tests at its start, so that there may be no turn."""
    builder = function.builder
    length, counter = as_i64(function.length(repeat.length)), function.pointer_of(repeat.counter)
    before = builder.block
    head, body, after = (
        builder.append_basic_block(name) for name in ("repeat", "turn", "repeated")
    )
    builder.branch(head)
    builder.position_at_end(head)
    turn = builder.phi(I64)
    turn.add_incoming(I64(0), before)
    builder.cbranch(builder.icmp_signed("<", turn, length), body, after)
    builder.position_at_end(body)
    builder.store(turn, counter)
    emit_steps(function, repeat.steps, is_repeated=True)
    turn.add_incoming(builder.add(turn, I64(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
