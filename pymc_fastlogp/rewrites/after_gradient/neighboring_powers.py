r"""``x ** (p - 1) -> x ** p / x`` and ``x ** (p + 1) -> x ** p * x`` where both powers are there: one is enough.

.. code::

    x ** p, x ** (p - 1)  ->  x ** p, x ** p / x     for x > 0, p <= 0
    x ** p, x ** (p + 1)  ->  x ** p, x ** p * x     for x > 0, p >= 0

The derivative of a power is the power beside it: the rational quadratic covariance is :math:`(1 + r^2 / (2 a l^2))^{-a}`, and its gradient has the exponent
:math:`-a - 1`. A power takes as long as some ten divisions.

The exponent that is kept is the one nearer to zero. Then nothing is lost at the ends: if :math:`x^p` is infinite or zero, so is the other power, and if it is
subnormal, its absolute error is divided by :math:`x > 1`, or multiplied by :math:`x < 1`. At :math:`x = \infty`, at infinite exponents and at nan both sides agree, at 0
and below they need not: so ``x`` has to be known as positive, and the sign of the exponent as well. The rounding of ``p - 1`` is
saved, which a power multiplies by :math:`\log x`; the rounding of the division comes instead. The power that is kept is not made of another one itself, so that there is
one such rounding only.

It runs after the gradient, and behind PyTensor's own rules for powers, which make one of ``x ** a * x ** b``.
"""

from typing import NamedTuple, cast

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import mul, true_div
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import split_sum
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise, negated
from pymc_fastlogp.analysis.ranges import is_positive, range_of

DTYPE = "float64"


class Exponent(NamedTuple):
    """An exponent as ``offset + term`` or ``offset - term``.

    Attributes
    ----------
    offset : float
        What is added.
    is_negated : bool
        Whether the term is subtracted.
    term : TensorVariable
        What is no sum with a number, and no negative.
    orders : tuple
        How its axes have been moved, the last first.
    """

    offset: float
    is_negated: bool
    term: TensorVariable
    orders: tuple[tuple[int | str, ...], ...] = ()

    def beside(self, offset: float) -> "Exponent":
        """Return the exponent that differs by a number."""
        return self._replace(offset=self.offset + offset)


@node_rewriter([pt_pow])
def local_neighboring_powers(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite a power where the one beside it is there, whose exponent is nearer to zero."""
    [out], (x, _) = node.outputs, node.inputs
    exponent = _exponent_of(node)
    if exponent is None:
        return None
    others = _powers_of(fgraph, x)
    for step, operation in ((1, true_div), (-1, mul)):
        other = others.get(exponent.beside(step))
        if other is None or exponent.beside(2 * step) in others or not _has_sign(other, -step):
            continue
        if not is_positive(x):
            return None
        [kept] = other.outputs
        rewritten = cast(TensorVariable, operation(kept, x))
        if not out.type.is_super(rewritten.type):
            return None
        copy_stack_trace(out, rewritten)
        return [rewritten]
    return None


def _powers_of(fgraph: FunctionGraph, x: TensorVariable) -> dict[Exponent, Apply]:
    """Return the powers of ``x`` by their exponents."""
    found: dict[Exponent, Apply] = {}
    for client, position in fgraph.clients[x]:
        if position == 0 and (exponent := _exponent_of(client)) is not None:
            found[exponent] = client
    return found


def _has_sign(power: Apply, sign: int) -> bool:
    """Return whether no exponent is of the other sign; some may be nan."""
    found = range_of(power.inputs[1])
    return found.high <= 0 if sign < 0 else found.low >= 0


def _exponent_of(node: Apply) -> Exponent | None:
    """Return the exponent of a power in double precision; None if it is a constant, or a node is not that."""
    if not is_elemwise(node.op, ps.Pow):
        return None
    x, exponent = node.inputs
    if not x.type.dtype == exponent.type.dtype == node.outputs[0].type.dtype == DTYPE:
        return None
    return None if fill_value(exponent) is not None else _parts(exponent)


def _parts(x: TensorVariable) -> Exponent:
    """Return an exponent without what moves its axes, its sign and the number that is added."""
    if isinstance(x.owner_op, DimShuffle):
        found = _parts(x.owner.inputs[0])
        return found._replace(orders=(*found.orders, x.owner_op.new_order))
    if (positive := negated(x)) is not None:
        return _negative(_parts(positive))
    if len(terms := split_sum(x)) == 2:
        for added, other in (terms, reversed(terms)):
            if (number := fill_value(added.x)) is not None:
                found = _parts(other.x)
                offset = -float(number) if added.is_negative else float(number)
                return (_negative(found) if other.is_negative else found).beside(offset)
    return Exponent(0.0, False, x)


def _negative(exponent: Exponent) -> Exponent:
    return exponent._replace(offset=-exponent.offset, is_negated=not exponent.is_negated)
