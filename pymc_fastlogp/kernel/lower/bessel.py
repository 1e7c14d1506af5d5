r"""``IveOfOrders``: exponentially scaled Bessel functions of orders 0 to n at one number, by one recurrence.

Let :math:`h = |x|/2` and :math:`I_k(|x|) = \frac{h^k}{k!} s_k`. The recurrence of the Bessel functions (NIST Digital Library of Mathematical
Functions, 10.29) becomes

.. math::

    s_{k-1} = s_k + \frac{h^2}{k (k + 1)} s_{k+1} .

Miller's algorithm runs it downward from arbitrary equal :math:`s_N = s_{N+1}`; the influence of the start decays. All terms are positive, so there is no
cancellation. There is no division and no overflow. Only the ratio of :math:`s_k` to :math:`s_0` is used, whose round-off comes from the :math:`k` steps between them:

.. math::

    e^{-|x|} I_k(|x|) = \frac{h^k}{k!} \frac{s_k}{s_0} e^{-|x|} I_0(|x|) .

For large :math:`x` the influence of the start decays like :math:`e^{-N^2/x}`, so :math:`N` grows with :math:`x`. For :math:`|x| \ge x_0 = \max(n^2/2, 25)` each
order is evaluated by its asymptotic expansion (10.40) instead,

.. math::

    e^{-|x|} I_k(|x|) \sim \frac{1}{\sqrt{2 \pi |x|}} \bigl(1 - t_1 (1 - t_2 (1 - \ldots))\bigr), \qquad t_j = \frac{4 k^2 - (2j - 1)^2}{8 j |x|} ,

whose terms are then at most :math:`1/j!`. Odd orders are odd functions. Beyond :data:`LARGEST` all results are nan, as upstream.
"""

from functools import reduce
from math import ceil, factorial, pi, sqrt
from typing import NamedTuple

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp._upstream.pymc import i0e_scalar
from pymc_fastlogp.kernel.ir.arithmetic import const, int64, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Load
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.context import Context

DTYPE = "float64"
# Highest order for which no s overflows if the recurrence starts at FIRST.
HIGHEST = 50
FIRST = 2.0**-900
# Number of terms of the asymptotic expansion.
TERMS = 20
# Half of the largest int32: the AMOS library, which SciPy calls, returns nan beyond.
LARGEST = (2**31 - 1) / 2


class Ranges(NamedTuple):
    """The smallest magnitude with the asymptotic expansion, and the first order of the recurrence below that magnitude."""

    asymptotic_from: float
    first_order: int


def ranges(highest: int) -> Ranges:
    """Return ranges in which all orders up to ``highest`` are accurate."""
    x0 = max(highest**2 / 2, 25.0)
    return Ranges(x0, ceil(sqrt(highest**2 + 40 * x0)) + 5)


def supports(node: Apply) -> bool:
    """Return whether the orders are 0, 1, ... up to at most HIGHEST, and the number is float64."""
    orders, x = node.inputs
    if not isinstance(orders, Constant) or x.type.ndim or x.type.dtype != DTYPE:
        return False
    n = orders.data.size
    return 0 < n <= HIGHEST + 1 and np.array_equal(orders.data, np.arange(n))


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the recurrence as straight-line code, and the loop over the orders."""
    [n] = node.inputs[0].type.shape
    x = inputs[1].at(())
    magnitude = _compute(ps.abs, x)
    half = _compute(ps.mul, const(0.5, DTYPE), magnitude)
    x0 = const(ranges(n - 1).asymptotic_from, DTYPE)
    ratios = _ratios(context, half, magnitude, n)

    def at(index: tuple[Expr, ...]) -> Expr:
        [k] = index
        orders = np.arange(float(n))
        order, alternating = (_constant(context, c, k) for c in (orders, (-1) ** orders))
        inverse = _constant(context, np.array([1 / factorial(i) for i in range(n)]), k)
        leading = _compute(ps.mul, _compute(ps.pow, half, order), inverse)
        near = _compute(ps.mul, leading, Load(ratios.whole, index))
        is_near = truth(ps.lt, magnitude, x0)
        value = switch(is_near, near, _expansion(context, magnitude, orders, k))
        sign = switch(truth(ps.lt, x, const(0, DTYPE)), alternating, const(1, DTYPE))
        is_in_range = truth(ps.le, magnitude, const(LARGEST, DTYPE))
        return switch(is_in_range, _compute(ps.mul, sign, value), const(float("nan"), DTYPE))

    return [context.store((n,), DTYPE, at)]


def _ratios(context: Context, half: Expr, magnitude: Expr, n: int) -> Array:
    """Append the recurrence; return ``s`` of each order, scaled so that ``s[0]`` is ``exp(-abs(x)) I0(x)``."""
    square = _compute(ps.mul, half, half)
    following: Expr = const(FIRST, DTYPE)
    s = following
    found: dict[int, Expr] = {}
    for k in range(ranges(n - 1).first_order, 0, -1):
        factor = _compute(ps.mul, square, const(1 / (k * (k + 1)), DTYPE))
        following, s = s, _compute(ps.add, s, _compute(ps.mul, factor, following))
        found[k - 1] = s
    scale = _compute(ps.true_div, _compute(i0e_scalar, magnitude), found[0])
    buffer = context.buffer(DTYPE, (n,))
    context.add(
        (), *(Store(buffer, (int64(k),), _compute(ps.mul, found[k], scale)) for k in range(n))
    )
    return buffer_array(buffer)


def _expansion(context: Context, magnitude: Expr, orders: np.ndarray, k: Expr) -> Expr:
    """Return the asymptotic expansion of order ``k``."""
    inverse = _compute(ps.true_div, const(1, DTYPE), magnitude)
    one: Expr = const(1, DTYPE)

    def with_term(rest: Expr, j: int) -> Expr:
        term = _constant(context, (4 * orders**2 - (2 * j - 1) ** 2) / (8 * j), k)
        return _compute(ps.sub, one, _compute(ps.mul, _compute(ps.mul, term, inverse), rest))

    total = reduce(with_term, range(TERMS, 0, -1), one)
    return _compute(
        ps.true_div, total, _compute(ps.sqrt, _compute(ps.mul, const(2 * pi, DTYPE), magnitude))
    )


def _constant(context: Context, data: np.ndarray, k: Expr) -> Expr:
    """Return element ``k`` of a vector of constants."""
    return Load(context.constant(DTYPE, data.shape, data.tobytes()), (k,))


def _compute(op: ScalarOp, *args: Expr) -> Compute:
    return Compute(op, args, DTYPE)
