"""A long program as parts, each a function of its own.

What LLVM does to a function takes longer than its length says: a model of 200 likelihoods as one function takes more than
twice as long as its parts. What two parts use is an argument of both, so a value goes through memory
from one to the next. A part has no argument that it does not use: with all of them for each part, LLVM's work on arguments grows by the square.
Programs that are not long stay one function.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Program, Step
from pymc_fastlogp.kernel.ir.traversal import counters, expressions, loops_in, reads, writes

# Expressions of a program that is not one function, and of one part of it (``python -m benchmarks.growth``).
LONG, PART = 5_000, 1_250


class Part(NamedTuple):
    """Some steps of a program, and what they need of it.

    Attributes
    ----------
    program : Program
        With these steps. Its inputs are those of the whole program, whose numbers lengths refer to; its outputs are what it uses of the
        program's outputs and of the scratch that several parts use.
    given : tuple of int
        The numbers of the inputs that are arguments of its function.
    """

    program: Program
    given: tuple[int, ...]

    @classmethod
    def whole(cls, program: Program) -> Self:
        """Return a program as its only part, with all inputs."""
        return cls(program, (*range(len(program.inputs)),))


def parts_of(program: Program) -> list[Part]:
    """Return parts that compute the same one after the other; one alone, the program, if it is not long."""
    pieces = _pieces(program.steps)
    if len(pieces) == 1:
        return [Part.whole(program)]
    used = [_used(piece) for piece in pieces]
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
    """Return the scratch that several parts use, in its order."""
    n_users = Counter(buffer for buffers in used for buffer in buffers)
    if program.fallback:  # which looks at it, too
        n_users[program.fallback.failed] += 1
    return dict.fromkeys(buffer for buffer in program.scratch if n_users[buffer] > 1)


def _given(inputs: Sequence[Buffer], used: set[Buffer]) -> tuple[int, ...]:
    """Return the numbers of the inputs that a part reads, and of those with lengths that anything may have."""
    return tuple(
        number
        for number, x in enumerate(inputs)
        if x in used or not all(isinstance(size, int) for size in x.shape)
    )


def _pieces(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    sizes = [_size(step) for step in steps]
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


def _size(step: Step) -> int:
    return sum(1 for loop in loops_in((step,)) for _ in expressions(loop))


def _used(steps: Sequence[Step]) -> set[Buffer]:
    return {*counters(steps)}.union(*(reads(step) | writes(step) for step in steps))
