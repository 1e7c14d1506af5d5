"""Functions in straight-line code that are computed together, in the lanes of one vector.

A vector function takes as long for one lane as for all. Where the same function is taken of several numbers, none of which depends on
another one's result, such as the terms of a sum of exponentials, one call serves them. Two functions are independent if as many functions lie below
each of them, on the longest path.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import batched

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.ir.traversal import operands
from pymc_fastlogp.kernel.llvm import I32, lane
from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.scalars.cost import TRANSCENDENTAL, cost_of
from pymc_fastlogp.kernel.vecmath.vector import Lanes


@dataclass(frozen=True, eq=False)
class Pack:
    """Computations of the same Op of one argument, which do not depend on each other."""

    op: ScalarOp
    members: tuple[Compute, ...]

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Expressions that are computed first."""
        return tuple(member.args[0] for member in self.members)


def find_packs(exprs: Iterable[Expr], others: Container[Expr]) -> dict[Compute, Pack]:
    """Return, for each function that is computed with others, all of them.

    Operands come first in the expressions. Those that are computed otherwise are left out.
    """
    depth: dict[Expr, int] = {}
    alike: dict[tuple, list[Compute]] = {}
    for expr in exprs:
        is_function = _is_function(expr)
        depth[expr] = max((depth[operand] for operand in operands(expr)), default=0) + is_function
        if is_function and expr not in others:
            assert isinstance(expr, Compute)
            key = (expr.op, expr.dtype, expr.args[0].dtype, depth[expr])
            alike.setdefault(key, []).append(expr)
    packs = [
        Pack(key[0], members)
        for key, found in alike.items()
        for members in batched(found, default_width())
        if len(members) > 1
    ]
    return {member: pack for pack in packs for member in pack.members}


def _is_function(expr: Expr) -> bool:
    if not isinstance(expr, Compute) or len(expr.args) != 1:
        return False
    is_float = expr.dtype.startswith("float") and expr.args[0].dtype.startswith("float")
    return is_float and cost_of(expr) >= TRANSCENDENTAL


def together(values: list[Lanes]) -> Lanes:
    """Return single lanes as those of one vector, whose length is a power of two; the last one fills the rest."""
    builder, form = values[0].builder, type(values[0])
    width = 1 << (len(values) - 1).bit_length()
    element = values[0].value.type.element
    packed = ir.Constant(ir.VectorType(element, width), ir.Undefined)
    for position in range(width):
        value = values[min(position, len(values) - 1)].value
        packed = builder.insert_element(packed, lane(builder, value, 0), I32(position))
    return form(builder, packed)
