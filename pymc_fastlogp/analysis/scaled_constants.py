r"""Constants times powers of scalars: :math:`C \prod_k s_k^{p_k}`.

The squared distances of scaled points are an example, in whatever form a model writes them:

.. math::

    -2 (s x_i)(s x_j) + (s x_i)^2 + (s x_j)^2 = s^2 (x_i - x_j)^2 .

A constant that over- or underflows without its scalars is not factored: for :math:`x = 10^{-170}` the square :math:`x^2` underflows, while
:math:`(s x)^2` may be one.
"""

from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable


class ScaledConstant(NamedTuple):
    """A constant and the powers of the scalars that multiply it.

    Attributes
    ----------
    data : ndarray of float64
        The constant, with the axes of the variable; axes of length 1 broadcast.
    powers : Counter of TensorVariable to int
        Power of each scalar, which has no axes; no power is 0.
    """

    data: np.ndarray
    powers: Counter[TensorVariable]

    def scale(self) -> TensorVariable:
        """Return the product of the powers of the scalars."""
        return reduce(pt.mul, (_power(s, p) for s, p in self.powers.items()), pt.constant(1.0))


Known = dict[TensorVariable, ScaledConstant | None]


def scaled_constant(x: TensorVariable, known: Known) -> ScaledConstant | None:
    """Return a float64 variable as a constant times powers of scalars, None if it has no such form.

    Results are cached in ``known``.
    """
    if x not in known:
        known[x] = _constant(x) if isinstance(x, Constant) else _computed(x, known)
    return known[x]


def _constant(x: Constant) -> ScaledConstant | None:
    if np.dtype(x.type.dtype).kind not in "iuf":
        return None
    return ScaledConstant(np.asarray(x.data, dtype="float64"), Counter())


def _computed(x: TensorVariable, known: Known) -> ScaledConstant | None:
    if x.type.dtype != "float64":
        return None
    found = _of_node(x, known)
    if found is None:
        return _scalar(x)
    return None if 0 in found.powers.values() else found


def _of_node(x: TensorVariable, known: Known) -> ScaledConstant | None:
    """Apply the rule of a node to scaled constants; return None if the Op has no rule or an operand no such form."""
    op = x.owner_op
    rule = _RULES.get(type(op.scalar_op if isinstance(op, Elemwise) else op))
    if rule is None:
        return None
    operands = []
    for operand in x.owner.inputs:
        found = scaled_constant(operand, known)
        if found is None:
            return None
        operands.append(found)
    return rule(op, *operands)


def _scalar(x: TensorVariable) -> ScaledConstant | None:
    """Return a scalar as one times its own first power."""
    if not all(x.type.broadcastable):
        return None
    ones = np.ones((1,) * x.type.ndim)
    return ScaledConstant(ones, Counter({x.squeeze() if x.type.ndim else x: 1}))


def _power(s: TensorVariable, p: int) -> TensorVariable:
    power = {1: s, 2: pt.sqr(s)}.get(abs(p), s ** abs(p))
    return power if p > 0 else 1 / power


def _product(op: Any, *factors: ScaledConstant) -> ScaledConstant | None:
    data, *others = (factor.data for factor in factors)
    for other in others:
        with np.errstate(all="ignore"):
            product = data * other
        if not _keeps_digits(product, data, other):
            return None
        data = product
    return ScaledConstant(data, _sum_of(factor.powers for factor in factors))


def _sum_of(counters: Any) -> Counter[TensorVariable]:
    total: Counter[TensorVariable] = Counter()
    for counter in counters:
        total.update(counter)  # `+` would drop negative powers
    return total


def _raised(x: ScaledConstant, power: int) -> ScaledConstant | None:
    with np.errstate(all="ignore"):
        data = x.data**power
    return ScaledConstant(data, _multiples(x, power)) if _keeps_digits(data, x.data) else None


def _multiples(x: ScaledConstant, n: int) -> Counter[TensorVariable]:
    return Counter({s: p * n for s, p in x.powers.items()})


def _quotient(op: Any, a: ScaledConstant, b: ScaledConstant) -> ScaledConstant | None:
    with np.errstate(all="ignore"):
        data = a.data / b.data
    if not _keeps_digits(data, a.data, b.data):
        return None
    return ScaledConstant(data, _sum_of((a.powers, _multiples(b, -1))))


def _keeps_digits(result: np.ndarray, *operands: np.ndarray) -> bool:
    """Return whether results of finite nonzero numbers neither overflow nor are subnormal; scaled numbers might do neither."""
    are_numbers = reduce(np.logical_and, (np.isfinite(x) & (x != 0) for x in operands))
    return bool((_is_normal(result) | ~are_numbers).all())


def _is_normal(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (np.abs(x) >= np.finfo("float64").tiny)


def _sum(op: Any, *terms: ScaledConstant) -> ScaledConstant | None:
    """Return a sum of terms with equal powers. Small terms are added first, so that a symmetric sum stays symmetric in every bit."""
    if any(term.powers != terms[0].powers for term in terms):
        return None
    in_order = sorted((term.data for term in terms), key=np.size)
    return ScaledConstant(reduce(np.add, in_order), terms[0].powers)


def _negative(x: ScaledConstant) -> ScaledConstant:
    return ScaledConstant(-x.data, x.powers)


def _dimshuffled(op: DimShuffle, x: ScaledConstant) -> ScaledConstant:
    data = x.data.transpose([*op.shuffle, *op.drop]).reshape(
        [x.data.shape[axis] for axis in op.shuffle]
    )
    return ScaledConstant(np.expand_dims(data, op.augment), x.powers)


_RULES: dict[type, Callable[..., ScaledConstant | None]] = {
    ps.Mul: _product,
    ps.TrueDiv: _quotient,
    ps.Sqr: lambda op, x: _raised(x, 2),
    ps.Neg: lambda op, x: _negative(x),
    ps.Add: _sum,
    ps.Sub: lambda op, a, b: _sum(op, a, _negative(b)),
    DimShuffle: _dimshuffled,
}
