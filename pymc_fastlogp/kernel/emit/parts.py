"""A long program as parts, each a function of its own.

What LLVM does to a function takes longer than its length says: a model of 200 likelihoods as one function takes more than
twice as long as its parts. What two parts use is an argument of both, so a value goes through memory
from one to the next. Programs that are not long stay one function.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Program, Step
from pymc_fastlogp.kernel.ir.traversal import counters, expressions, loops_in, reads, writes

# Expressions of a program that is not one function, and of one part of it (``python -m benchmarks.growth``).
LONG, PART = 5_000, 1_250


def parts_of(program: Program) -> list[Program]:
    """Return programs that compute the same one after the other; the program alone if it is not long.

    The outputs of each are those of the program and the scratch that several parts use.
    """
    pieces = _pieces(program.steps)
    if len(pieces) == 1:
        return [program]
    used = [_used(piece) for piece in pieces]
    n_users = Counter(buffer for buffers in used for buffer in buffers)
    if program.again:  # which looks at it, too
        n_users[program.again.failed] += 1
    shared = tuple(buffer for buffer in program.scratch if n_users[buffer] > 1)
    return [
        replace(
            program,
            outputs=(*program.outputs, *shared),
            scratch=tuple(b for b in program.scratch if b in buffers and b not in shared),
            constants=tuple(b for b in program.constants if b in buffers),
            steps=piece,
        )
        for piece, buffers in zip(pieces, used, strict=True)
    ]


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
