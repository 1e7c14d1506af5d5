"""Unrolling within sequential loops: small loops of a step become straight-line code.

.. code-block:: text

    repeat t n:                              repeat t n:
        loop 2:                        ->        s[t + 1, 0] = f(s[t, 0])
            s[t + 1, i0] = f(s[t, i0])           s[t + 1, 1] = f(s[t, 1])

A step of a recursion often has only a few numbers: the last values of a series, or the state of a Kalman filter. A loop over
them would be one masked vector, stored and loaded again by the next loop. With a statement for each element they are scalars in
registers, and fusion forwards a stored element to its loads.
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

# Largest number of elements of an unrolled loop, those of a 4 x 4 matrix. More take long to compile (``python -m benchmarks.limits``).
LARGEST = 16


def unroll_in_sequential_loops(program: Program) -> Program:
    """Unroll the small inner loops of sequential loops, unless the order of their iterations matters."""
    steps = (
        step if isinstance(step, Loop) else replace(step, steps=_unrolled_steps(step.steps))
        for step in program.steps
    )
    return replace(program, steps=tuple(steps))


def _unrolled_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    new: list[Step] = []
    for step in steps:
        if not isinstance(step, Loop):
            new.append(replace(step, steps=_unrolled_steps(step.steps)))
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
    """Yield the statements of a loop for each index, in the order of the loop."""
    lengths = [length for length in loop.domain if isinstance(length, int)]
    for index in product(*map(range, lengths)):

        def at_index(expr: Expr, index: tuple[int, ...] = index) -> Expr | None:
            return int64(index[expr.axis]) if isinstance(expr, Index) else fold_constants(expr)

        yield from substitute(loop.body, at_index)
