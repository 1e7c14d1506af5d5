r"""Lengths as linear combinations, compared by bounds on their terms.

.. math::

    n = \sum_k c_k a_k + c, \qquad a_k \ge b_k

Here :math:`c_k, c` are integers. The :math:`a_k` are atoms, such as the length of an input or a number of steps, with lower bounds :math:`b_k`. A minimum, a maximum or a
comparison of two lengths is decided if the bounds fix the sign of the difference. PyTensor guards the lengths of Scan states against negative numbers of
steps. Inside a step the number of steps is at least 1, so these guards simplify.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Self

import numpy as np
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast, ScalarOp

from pymc_fastlogp.kernel.ir.arithmetic import cast, int64, plus, times
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr, Length
from pymc_fastlogp.kernel.ir.traversal import walk

# Lower bounds by atom.
Bounds = Mapping[Expr, int]


@dataclass(frozen=True)
class Linear:
    """A linear combination of atoms with nonzero integer factors, plus an integer."""

    number: int = 0
    factors: dict[Expr, int] = field(default_factory=dict)

    def plus(self, other: Self, times: int = 1) -> "Linear":
        """Return ``self + times * other``."""
        both = self.factors | other.factors
        factors = {a: self.factors.get(a, 0) + times * other.factors.get(a, 0) for a in both}
        number = self.number + times * other.number
        return Linear(number, {a: c for a, c in factors.items() if c})

    def least(self, bounds: Bounds) -> float:
        """Return a lower bound."""
        least = float(self.number)
        for atom, factor in self.factors.items():
            bound = bounds.get(atom, 0 if isinstance(atom, Length) else -inf)
            least += factor * bound if factor > 0 else -inf
        return least

    @property
    def expr(self) -> Expr:
        """The linear combination as an expression."""
        total: Expr = int64(0)
        for atom, factor in self.factors.items():
            total = plus(total, times(cast(atom, "int64"), int64(factor)))
        return plus(total, int64(self.number))


# Linear combinations by expression.
Sums = Mapping[Expr, Linear]


def bounds_in_a_step(n_steps: Expr) -> Bounds:
    """Return the bounds that follow from a number of steps of at least 1."""
    steps = linear(n_steps, {})
    if list(steps.factors.values()) != [1]:
        return {}
    return dict.fromkeys(steps.factors, 1 - steps.number)


def difference(a: Expr, b: Expr, bounds: Bounds) -> int | None:
    """Return ``a - b`` if it is a known integer, else None."""
    found = linear(a, bounds).plus(linear(b, bounds), -1)
    return None if found.factors else found.number


def linear(expr: Expr, bounds: Bounds) -> Linear:
    """Return the linear combination of an integer expression; shared operands are visited once."""
    sums: dict[Expr, Linear] = {}
    for part in walk([expr]):
        sums[part] = _linear(part, bounds, sums)
    return sums[expr]


def _linear(expr: Expr, bounds: Bounds, sums: Sums) -> Linear:
    if isinstance(expr, Const) and not isinstance(expr.value, float):
        return Linear(int(expr.value))
    if not isinstance(expr, Compute) or expr.dtype != "int64":
        return Linear(0, {expr: 1})  # narrower arithmetic may wrap around
    rule = _RULES.get(type(expr.op))
    return rule(expr, bounds, sums) if rule else Linear(0, {expr: 1})


def _sum(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    first, *others = (sums[arg] for arg in expr.args)
    for other in others:
        first = first.plus(other, -1 if isinstance(expr.op, ps.Sub) else 1)
    return first


def _product(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    product = Linear(1)
    for factor in (sums[arg] for arg in expr.args):
        if product.factors and factor.factors:
            return Linear(0, {expr: 1})
        number, other = (factor, product) if product.factors else (product, factor)
        product = Linear().plus(other, number.number)
    return product


def _extreme(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    """Return the operand that is known to be the maximum or minimum; otherwise the expression becomes an atom."""
    sign = 1 if isinstance(expr.op, ps.Maximum) else -1
    best, *others = (sums[arg] for arg in expr.args)
    for other in others:
        larger = best.plus(other, -1)
        if Linear().plus(larger, sign).least(bounds) >= 0:
            continue
        if Linear().plus(larger, -sign).least(bounds) < 0:
            return Linear(0, {expr: 1})
        best = other
    return best


def _quotient(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    number, divisor = (sums[arg] for arg in expr.args)
    return number if divisor == Linear(1) else Linear(0, {expr: 1})


def _cast(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    [arg] = expr.args
    is_exact = np.dtype(arg.dtype).kind in "iu" and arg.dtype != "uint64"
    return sums[arg] if is_exact else Linear(0, {expr: 1})


def _branch(expr: Compute, bounds: Bounds, sums: Sums) -> Linear:
    condition, yes, no = expr.args
    is_true = _decided(condition, bounds, sums)
    if is_true is None:
        return Linear(0, {expr: 1})
    return sums[yes if is_true else no]


def _decided(condition: Expr, bounds: Bounds, sums: Sums) -> bool | None:
    """Return the truth value of a comparison, or None if the bounds do not decide it."""
    if not isinstance(condition, Compute) or type(condition.op) not in _AT_LEAST:
        return None
    larger, by = _AT_LEAST[type(condition.op)]
    a, b = (sums[arg] for arg in condition.args)
    rest = (a.plus(b, -1) if larger else b.plus(a, -1)).plus(Linear(by), -1)
    if rest.least(bounds) >= 0:
        return True
    return False if Linear(-1).plus(rest, -1).least(bounds) >= 0 else None


# For each comparison that is true: whether the first operand is the larger one, and the least difference.
_AT_LEAST: dict[type[ScalarOp], tuple[bool, int]] = {
    ps.GT: (True, 1),
    ps.GE: (True, 0),
    ps.LT: (False, 1),
    ps.LE: (False, 0),
}

_RULES: dict[type[ScalarOp], Callable[[Compute, Bounds, Sums], Linear]] = {
    ps.Add: _sum,
    ps.Sub: _sum,
    ps.Mul: _product,
    ps.Maximum: _extreme,
    ps.Minimum: _extreme,
    ps.IntDiv: _quotient,
    ps.Switch: _branch,
    Cast: _cast,
}
