"""Small loops that are repeated become straight-line code.

A step of a recursion is often about a few numbers: the last values of a series, the state of a Kalman filter. A loop over
them would be a masked vector, stored and loaded again by the next one. With a statement for each element they are scalars in
registers, and what one loop stores another one takes from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from pymc_fastlogp.kernel.ir.arithmetic import fold_constants, int64
from pymc_fastlogp.kernel.ir.expressions import Expr, Index
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Statement, Step
from pymc_fastlogp.kernel.ir.substitute import substitute
from pymc_fastlogp.kernel.ir.traversal import is_ordered

# Elements of a loop: those of a matrix of 4 x 4. More take long to compile (``python -m benchmarks.limits``).
LARGEST = 16


def straighten(program: Program) -> Program:
    """Return the program without small loops in what is repeated."""
    steps = (
        step if isinstance(step, Loop) else replace(step, steps=_straight(step.steps))
        for step in program.steps
    )
    return replace(program, steps=tuple(steps))


def _straight(steps: Sequence[Step]) -> tuple[Step, ...]:
    new: list[Step] = []
    for step in steps:
        if not isinstance(step, Loop):
            new.append(replace(step, steps=_straight(step.steps)))
        elif _is_small(step):
            new += (Loop((), (statement,)) for statement in _at_each_index(step))
        else:
            new.append(step)
    return tuple(new)


def _is_small(loop: Loop) -> bool:
    lengths = [length for length in loop.domain if isinstance(length, int)]
    is_static = 0 < len(lengths) == len(loop.domain)
    return is_static and prod(lengths) <= LARGEST and not is_ordered(loop)


def _at_each_index(loop: Loop) -> Iterator[Statement]:
    """Yield the statements of a loop for each index, in its order."""
    lengths = [length for length in loop.domain if isinstance(length, int)]
    for index in product(*map(range, lengths)):

        def at_index(expr: Expr, index: tuple[int, ...] = index) -> Expr | None:
            return int64(index[expr.axis]) if isinstance(expr, Index) else fold_constants(expr)

        yield from substitute(loop.body, at_index)
