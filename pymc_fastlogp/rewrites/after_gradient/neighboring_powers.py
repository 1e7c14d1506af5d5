r"""Compute one of two powers whose exponents differ by one from the other power.

.. code::

    x ** p, x ** (p - 1)  ->  x ** p, x ** p / x     for x > 0, p <= 0
    x ** p, x ** (p + 1)  ->  x ** p, x ** p * x     for x > 0, p >= 0

The derivative of a power has the neighboring exponent. The rational quadratic covariance is :math:`(1 + r^2 / (2 a l^2))^{-a}`,
and its gradient has the exponent :math:`-a - 1`. A power takes about ten times as long as a division.

The exponent nearer to zero is kept. If :math:`x^p` is infinite or zero, so is the other power. If :math:`x^p` is subnormal, its
absolute error is divided by :math:`x > 1`, or multiplied by :math:`x < 1`. At :math:`x = \infty`, at infinite exponents and at
NaN both sides agree. At :math:`x \le 0` they may differ, so ``x`` must be known to be positive.

The rounding of a division or product is added, and the rounding of ``p - 1`` is saved, which a power multiplies by
:math:`\log x`. Tests bound the error by 1.6 units in the last place, and by four times PyTensor's.

When it applies
---------------
After the gradient, in mode NUMBA, to float64, behind PyTensor's own rules for powers. The base must be known to be positive and
the sign of the exponent known (:mod:`~pymc_fastlogp.analysis.ranges`). Exponents are scalars or arrays plus any constant.

When it refuses
---------------
- Exponents ``p`` and ``p - 1`` on both sides of zero, as in a Weibull density: :math:`x^p` may underflow where
  :math:`x^{p - 1}` does not.
- Constant exponents, which have faster forms.
- A power that the rule has computed from another power: rounding errors would accumulate.
"""

from typing import NamedTuple, cast

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import mul, true_div
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import split_sum
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise, negated
from pymc_fastlogp.analysis.ranges import is_positive, range_of
from pymc_fastlogp.rewrites.replacement import replacement

DTYPE = "float64"


class Exponent(NamedTuple):
    """An exponent as ``offset + term`` or ``offset - term``.

    Attributes
    ----------
    offset : float
        The constant summand.
    is_negated : bool
        Whether the term is subtracted.
    term : TensorVariable
        The variable summand, neither a sum with a number nor a negation.
    orders : tuple
        Orders of the DimShuffles above the term, the outermost last.
    """

    offset: float
    is_negated: bool
    term: TensorVariable
    orders: tuple[tuple[int | str, ...], ...] = ()

    def plus(self, offset: float) -> "Exponent":
        """Return the exponent plus a number."""
        return self._replace(offset=self.offset + offset)


@node_rewriter([pt_pow])
def local_neighboring_powers(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite a power if the graph has the neighboring power with the exponent nearer to zero."""
    [out], (x, _) = node.outputs, node.inputs
    exponent = _exponent_of(node)
    if exponent is None:
        return None
    others = _powers_of(fgraph, x)
    for step, operation in ((1, true_div), (-1, mul)):
        other = others.get(exponent.plus(step))
        if other is None or exponent.plus(2 * step) in others or not _has_sign(other, -step):
            continue
        if not is_positive(x):
            return None
        [kept] = other.outputs
        return replacement(out, cast(TensorVariable, operation(kept, x)))
    return None


def _powers_of(fgraph: FunctionGraph, x: TensorVariable) -> dict[Exponent, Apply]:
    """Return the nodes of powers of ``x`` by exponent."""
    found: dict[Exponent, Apply] = {}
    for client, position in fgraph.clients[x]:
        if position == 0 and (exponent := _exponent_of(client)) is not None:
            found[exponent] = client
    return found


def _has_sign(power: Apply, sign: int) -> bool:
    """Return whether no exponent of a power has the other sign. Exponents may be NaN."""
    found = range_of(power.inputs[1])
    return found.high <= 0 if sign < 0 else found.low >= 0


def _exponent_of(node: Apply) -> Exponent | None:
    """Return the exponent of a float64 power; None for other nodes and for constant exponents."""
    if not is_elemwise(node.op, ps.Pow):
        return None
    x, exponent = node.inputs
    if not x.type.dtype == exponent.type.dtype == node.outputs[0].type.dtype == DTYPE:
        return None
    return None if fill_value(exponent) is not None else _split(exponent)


def _split(x: TensorVariable) -> Exponent:
    """Split an exponent into DimShuffles, sign, constant summand and term."""
    if isinstance(x.owner_op, DimShuffle):
        found = _split(x.owner.inputs[0])
        return found._replace(orders=(*found.orders, x.owner_op.new_order))
    if (positive := negated(x)) is not None:
        return _negative(_split(positive))
    if len(terms := split_sum(x)) == 2:
        for added, other in (terms, reversed(terms)):
            if (number := fill_value(added.x)) is not None:
                found = _split(other.x)
                offset = -float(number) if added.is_negative else float(number)
                return (_negative(found) if other.is_negative else found).plus(offset)
    return Exponent(0.0, False, x)


def _negative(exponent: Exponent) -> Exponent:
    return exponent._replace(offset=-exponent.offset, is_negated=not exponent.is_negated)
