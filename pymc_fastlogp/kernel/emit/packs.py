"""Scalar functions of a loop that are evaluated together, by one call of a vector function.

:class:`Shared`
    Different functions of the same argument that one vector function returns together, such as a sine and a cosine.
:class:`Pack`
    The same function of several arguments in straight-line code, as the lanes of one vector (superword-level parallelism). A vector
    function takes as long for one lane as for all, so a sum of exponentials takes one call. Two functions are independent of
    each other if their depths are equal. The depth is the number of functions on the longest path below an expression.
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
from pymc_fastlogp.kernel.scalars import SHARED_OPS
from pymc_fastlogp.kernel.scalars.cost import TRANSCENDENTAL, cost_of
from pymc_fastlogp.kernel.vecmath.vector import Lanes


@dataclass(frozen=True)
class Shared:
    """Functions of one argument that one vector function returns together.

    Attributes
    ----------
    name : str
        The vector function, a value of ``SHARED_OPS``.
    argument : Expr
        Common argument.
    results : tuple of Compute or None
        Expression of each result; None for a result that the loop does not need.
    """

    name: str
    argument: Expr
    results: tuple[Compute | None, ...]


@dataclass(frozen=True, eq=False)
class Pack:
    """Independent computations by the same Op of one argument."""

    op: ScalarOp
    members: tuple[Compute, ...]

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Argument of each member."""
        return tuple(member.args[0] for member in self.members)


def find_shared(exprs: Iterable[Expr]) -> dict[Compute, Shared]:
    """Map each computation that one vector function returns together with others to its :class:`Shared`."""
    by_argument: dict[Expr, dict[type[ScalarOp], Compute]] = {}
    for expr in exprs:
        if isinstance(expr, Compute) and expr.args[0].dtype.startswith("float"):
            by_argument.setdefault(expr.args[0], {})[type(expr.op)] = expr
    found: dict[Compute, Shared] = {}
    for argument, computes in by_argument.items():
        for ops, name in SHARED_OPS.items():
            results = tuple(computes.get(op) for op in ops)
            present = [result for result in results if result]
            if len(present) > 1:
                found |= dict.fromkeys(present, Shared(name, argument, results))
    return found


def find_packs(exprs: Iterable[Expr], excluded: Container[Expr]) -> dict[Compute, Pack]:
    """Map each function that is computed in a vector with others to its :class:`Pack`.

    Parameters
    ----------
    exprs : iterable of Expr
        All expressions of straight-line code, operands first.
    excluded : container of Expr
        Functions that are computed in another way.
    """
    depth: dict[Expr, int] = {}
    alike: dict[tuple, list[Compute]] = {}
    for expr in exprs:
        is_function = _is_function(expr)
        depth[expr] = max((depth[operand] for operand in operands(expr)), default=0) + is_function
        if is_function and expr not in excluded:
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


def pack_lanes(values: list[Lanes]) -> Lanes:
    """Return a vector of single lanes, padded to a power of two by copies of the last lane."""
    builder, form = values[0].builder, type(values[0])
    width = 1 << (len(values) - 1).bit_length()
    element = values[0].value.type.element
    packed = ir.Constant(ir.VectorType(element, width), ir.Undefined)
    for position in range(width):
        value = values[min(position, len(values) - 1)].value
        packed = builder.insert_element(packed, lane(builder, value, 0), I32(position))
    return form(builder, packed)
