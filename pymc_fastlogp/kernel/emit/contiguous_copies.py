"""Copies in C order of strided inputs that a library reads.

Loops read an input through its strides, BLAS and LAPACK want neighbors in memory. What a copy costs is little
beside a product or a factorization.
"""

from collections.abc import Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.arithmetic import domain_of
from pymc_fastlogp.kernel.ir.expressions import Buffer, Load, Role
from pymc_fastlogp.kernel.ir.loops import Loop, Program, Store
from pymc_fastlogp.kernel.ir.substitute import redirect_loads, substitute_in_loop
from pymc_fastlogp.kernel.ir.traversal import is_call, loops_in, reads, with_loops


def with_copied_operands(program: Program, contiguous: Sequence[bool]) -> Program:
    """Return the program in which calls read copies of the inputs that are not C-contiguous."""
    read = set().union(*(reads(loop) for loop in loops_in(program.steps) if is_call(loop)))
    copies = {
        buffer: replace(buffer, name=f"{buffer.name}_copy", role=Role.SCRATCH)
        for buffer, is_contiguous in zip(program.inputs, contiguous, strict=True)
        if buffer in read and not is_contiguous
    }
    read_copies = redirect_loads(copies)
    calls = with_loops(
        program.steps,
        lambda loop: [substitute_in_loop(loop, read_copies) if is_call(loop) else loop],
    )
    scratch = (*program.scratch, *copies.values())
    return replace(program, scratch=scratch, steps=(*map(_copy, copies.items()), *calls))


def _copy(pair: tuple[Buffer, Buffer]) -> Loop:
    source, target = pair
    domain, index = domain_of(source.shape)
    return Loop(domain, (Store(target, index, Load(source, index)),))
