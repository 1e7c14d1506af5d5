r"""``IveOfOrders``: the exponentially scaled Bessel functions of the orders 0 to n at one number, by one recurrence.

Let :math:`h = |x|/2`. With :math:`I_k(|x|) = \frac{h^k}{k!} s_k` the recurrence of the Bessel functions (NIST Digital Library of Mathematical
Functions, 10.29) is

.. math::

    s_{k-1} = s_k + \frac{h^2}{k (k + 1)} s_{k+1} .

Downward, from equal :math:`s_N` and :math:`s_{N+1}` on, it forgets where it began (Miller's algorithm). All terms are positive, so nothing cancels, and there is neither a
division nor an overflow. What counts is the ratio of :math:`s_k` to :math:`s_0`, which the steps between them alone have an error in:

.. math::

    e^{-|x|} I_k(|x|) = \frac{h^k}{k!} \frac{s_k}{s_0} e^{-|x|} I_0(|x|) .

The part that is forgotten falls like :math:`e^{-N^2/x}` for large :math:`x`, so that :math:`N` grows with it. From :math:`x_0 = \max(n^2/2, 25)` on, each order has its
expansion at infinity (10.40) instead,

.. math::

    e^{-|x|} I_k(|x|) \sim \frac{1}{\sqrt{2 \pi |x|}} \bigl(1 - t_1 (1 - t_2 (1 - \ldots))\bigr), \qquad t_j = \frac{4 k^2 - (2j - 1)^2}{8 j |x|} ,

whose terms there are at most :math:`1/j!`. Odd orders are odd functions. Beyond :data:`LARGEST` all is nan, as upstream.
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
from pymc_fastlogp.kernel.lower.array import Array, of_buffer
from pymc_fastlogp.kernel.lower.context import Context

DTYPE = "float64"
# The highest order: up to it no s is beyond the largest number, if the first is small.
HIGHEST = 50
FIRST = 2.0**-900
# Terms of the expansion at infinity.
TERMS = 20
# Half of the largest integer, from which on the AMOS library, which SciPy calls, gives up.
LARGEST = (2**31 - 1) / 2


class Reach(NamedTuple):
    """From where on there is the expansion at infinity, and where the recurrence begins below."""

    far: float
    start: int


def reach(highest: int) -> Reach:
    """Return what is enough for all orders up to one."""
    far = max(highest**2 / 2, 25.0)
    return Reach(far, ceil(sqrt(highest**2 + 40 * far)) + 5)


def supports(node: Apply) -> bool:
    """Return whether the orders are 0, 1, ..., not too many, and the number float64."""
    orders, x = node.inputs
    if not isinstance(orders, Constant) or x.type.ndim or x.type.dtype != DTYPE:
        return False
    n = orders.data.size
    return 0 < n <= HIGHEST + 1 and np.array_equal(orders.data, np.arange(n))


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append the recurrence, without axes, and the loop over the orders."""
    [n] = node.inputs[0].type.shape
    x = inputs[1].at(())
    magnitude = _of(ps.abs, x)
    half, far = _of(ps.mul, const(0.5, DTYPE), magnitude), reach(n - 1).far
    ratios = _ratios(context, half, magnitude, n)

    def at(index: tuple[Expr, ...]) -> Expr:
        [k] = index
        orders = np.arange(float(n))
        order, alternating = (_constant(context, c, k) for c in (orders, (-1) ** orders))
        inverse = _constant(context, np.array([1 / factorial(i) for i in range(n)]), k)
        leading = _of(ps.mul, _of(ps.pow, half, order), inverse)
        near = _of(ps.mul, leading, Load(ratios.whole, index))
        is_near = truth(ps.lt, magnitude, const(far, DTYPE))
        value = switch(is_near, near, _expansion(context, magnitude, orders, k))
        sign = switch(truth(ps.lt, x, const(0, DTYPE)), alternating, const(1, DTYPE))
        is_known = truth(ps.le, magnitude, const(LARGEST, DTYPE))
        return switch(is_known, _of(ps.mul, sign, value), const(float("nan"), DTYPE))

    return [context.store((n,), DTYPE, at)]


def _ratios(context: Context, half: Expr, magnitude: Expr, n: int) -> Array:
    """Append the recurrence; return ``s`` of each order, such that the first is ``exp(-abs(x)) I0(x)``."""
    square = _of(ps.mul, half, half)
    following: Expr = const(FIRST, DTYPE)
    s = following
    found: dict[int, Expr] = {}
    for k in range(reach(n - 1).start, 0, -1):
        factor = _of(ps.mul, square, const(1 / (k * (k + 1)), DTYPE))
        following, s = s, _of(ps.add, s, _of(ps.mul, factor, following))
        found[k - 1] = s
    scale = _of(ps.true_div, _of(i0e_scalar, magnitude), found[0])
    buffer = context.buffer(DTYPE, (n,))
    context.add((), *(Store(buffer, (int64(k),), _of(ps.mul, found[k], scale)) for k in range(n)))
    return of_buffer(buffer)


def _expansion(context: Context, magnitude: Expr, orders: np.ndarray, k: Expr) -> Expr:
    """Return the expansion at infinity of an order."""
    inverse = _of(ps.true_div, const(1, DTYPE), magnitude)
    one: Expr = const(1, DTYPE)

    def with_term(rest: Expr, j: int) -> Expr:
        term = _constant(context, (4 * orders**2 - (2 * j - 1) ** 2) / (8 * j), k)
        return _of(ps.sub, one, _of(ps.mul, _of(ps.mul, term, inverse), rest))

    total = reduce(with_term, range(TERMS, 0, -1), one)
    return _of(ps.true_div, total, _of(ps.sqrt, _of(ps.mul, const(2 * pi, DTYPE), magnitude)))


def _constant(context: Context, data: np.ndarray, k: Expr) -> Expr:
    """Return the element of an order of a vector of constants."""
    return Load(context.constant(DTYPE, data.shape, data.tobytes()), (k,))


def _of(op: ScalarOp, *args: Expr) -> Compute:
    return Compute(op, args, DTYPE)
