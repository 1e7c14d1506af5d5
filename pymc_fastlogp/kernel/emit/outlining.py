"""Outlining: split a long program into parts, each of which becomes a function.

The compile time of LLVM grows faster than the length of a function: one function for 200 likelihoods takes more than
twice as long as its parts. A buffer that several parts use is an argument of each of them, so a value passes through memory
from part to part. A part has only the arguments that it uses: otherwise LLVM's work on arguments would grow quadratically.
Short programs stay one function.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Program, Step
from pymc_fastlogp.kernel.ir.traversal import counters, expressions, loops_in, reads, writes

# Largest number of expressions of a program that stays one function, and of a part (``python -m benchmarks.compile_time growth``).
LONG, PART = 5_000, 1_250


class Part(NamedTuple):
    """Consecutive steps of a program, to become one function.

    Attributes
    ----------
    program : Program
        Program of these steps. It has all inputs of the whole program, because a length refers to the number of an input.
        Its outputs are the outputs and the shared scratch buffers that the steps use.
    given : tuple of int
        Numbers of the inputs that are arguments of the function.
    """

    program: Program
    given: tuple[int, ...]

    @classmethod
    def whole(cls, program: Program) -> Self:
        """Return a whole program as one part, with all inputs as arguments."""
        return cls(program, (*range(len(program.inputs)),))


def parts_of(program: Program) -> list[Part]:
    """Split a program into parts to run in order; a short program is one part."""
    pieces = _split_by_size(program.steps)
    if len(pieces) == 1:
        return [Part.whole(program)]
    used = [_accessed_buffers(piece) for piece in pieces]
    shared = _shared(program, used)
    between = (*program.outputs, *shared)
    return [
        Part(
            replace(
                program,
                outputs=tuple(b for b in between if b in buffers),
                scratch=tuple(b for b in program.scratch if b in buffers and b not in shared),
                constants=tuple(b for b in program.constants if b in buffers),
                steps=piece,
            ),
            _given(program.inputs, buffers),
        )
        for piece, buffers in zip(pieces, used, strict=True)
    ]


def _shared(program: Program, used: Sequence[set[Buffer]]) -> dict[Buffer, None]:
    """Return the scratch buffers that several parts use, in their order."""
    n_users = Counter(buffer for buffers in used for buffer in buffers)
    if program.fallback:  # the caller reads the flag, too
        n_users[program.fallback.failed] += 1
    return dict.fromkeys(buffer for buffer in program.scratch if n_users[buffer] > 1)


def _given(inputs: Sequence[Buffer], used: set[Buffer]) -> tuple[int, ...]:
    """Return the numbers of the inputs that a part reads, and of all inputs with dynamic lengths: any size may refer to such a length."""
    return tuple(
        number
        for number, x in enumerate(inputs)
        if x in used or not all(isinstance(size, int) for size in x.shape)
    )


def _split_by_size(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    sizes = [_n_expressions(step) for step in steps]
    if sum(sizes) <= LONG:
        return [tuple(steps)]
    pieces: list[list[Step]] = [[]]
    left = PART
    for step, size in zip(steps, sizes, strict=True):
        if size > left and pieces[-1]:
            pieces.append([])
            left = PART
        pieces[-1].append(step)
        left -= size
    return [tuple(piece) for piece in pieces]


def _n_expressions(step: Step) -> int:
    return sum(1 for loop in loops_in((step,)) for _ in expressions(loop))


def _accessed_buffers(steps: Sequence[Step]) -> set[Buffer]:
    return {*counters(steps)}.union(*(reads(step) | writes(step) for step in steps))
