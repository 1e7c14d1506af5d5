"""Scalar Ops of one argument that are cheaper together: which of them a loop has."""

from collections.abc import Iterable
from dataclasses import dataclass

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr
from pymc_fastlogp.kernel.scalars import SHARED_OPS


@dataclass(frozen=True)
class Shared:
    """Computations that one vector function makes, a value of ``SHARED_OPS``; None where the loop does not have one."""

    name: str
    argument: Expr
    results: tuple[Compute | None, ...]


def find_shared(exprs: Iterable[Expr]) -> dict[Compute, Shared]:
    """Return, for each computation that is cheaper together with others, all of them."""
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
