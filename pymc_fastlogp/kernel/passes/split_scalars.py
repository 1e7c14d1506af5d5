"""Scalars on their own: each statement outside of loops becomes a step of its own.

An Op of several outputs makes several scalars at once. Some of them a loop needs, others wait for the sum of
that loop; together they would tear it into two.
"""

from dataclasses import replace

from pymc_fastlogp.kernel.ir.loops import Loop, Program


def split_scalars(program: Program) -> Program:
    """Return the program with one statement in each loop without axes."""
    return replace(program, steps=tuple(new for loop in program.steps for new in _split(loop)))


def _split(loop: Loop) -> list[Loop]:
    if loop.domain:
        return [loop]
    return [replace(loop, body=(statement,)) for statement in loop.body]
