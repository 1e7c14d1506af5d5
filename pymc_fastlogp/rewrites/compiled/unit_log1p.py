r"""``log(1 + e)`` of an ``e`` between 0 and 1 by arithmetic alone, which compilers make vectors of.

With :math:`s = e / (2 + e)`, which is in :math:`[0, 1/3]`, and :math:`t = s^2`,

.. math:: \log(1 + e) = 2 \, \mathrm{artanh}(s) = 2 s + s R(t) = e - s (e - R(t)), \qquad
          R(t) = 2 t \Big(\frac{1}{3} + \frac{t}{5} + \frac{t^2}{7} + \ldots\Big)

where the last form has the exact :math:`e` in front of what is rounded. The series in brackets is replaced by the polynomial
of degree 9 that is closest at Chebyshev's points of :math:`[0, 1/9]`, to :math:`5 \cdot 10^{-17}`. The C library's
``log1p`` is called number by number.

Source: the reduction of FreeBSD's ``e_log.c`` (Sun Microsystems, 1993); the coefficients are those of
``mpmath.chebyfit(lambda t: (artanh(sqrt(t)) / sqrt(t) - 1) / t, [0, 1 / 9], 10)``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.scalar import register_scalar_funcify, scalar_op_cache_key

# Twice the coefficients, the lowest first.
SERIES = (
    2 * 0.3333333333333333,
    2 * 0.20000000000007292,
    2 * 0.1428571428355438,
    2 * 0.11111111358713932,
    2 * 0.09090894718066429,
    2 * 0.07692785032479316,
    2 * 0.06657072104827415,
    2 * 0.06000536404795801,
    2 * 0.04400369243070332,
    2 * 0.08082022805975571,
)


class UnitLog1p(ps.ScalarOp):
    """``log(1 + e)`` of a scalar ``e``, from 0 to 1 or nan."""

    nin = 1

    def impl(self, e: np.floating) -> np.floating:
        """Return the logarithm, where no code is compiled."""
        return np.log1p(e)


unit_log1p = UnitLog1p(ps.upgrade_to_float_no_complex, name="unit_log1p")


@register_scalar_funcify(UnitLog1p)
def _funcify(op: UnitLog1p, node: Apply, **kwargs: Any) -> tuple[Callable, str]:
    of_type = np.dtype(node.outputs[0].type.dtype).type
    two = of_type(2)
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 = map(of_type, SERIES)

    # PyTensor lets LLVM reorder sums, which would round `e` here.
    @numba_njit(fastmath={"contract"})
    def unit_log1p(e):  # type: ignore[no-untyped-def]
        s = e / (two + e)
        t = s * s
        high = c5 + t * (c6 + t * (c7 + t * (c8 + t * c9)))
        r = t * (c0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * high)))))
        return e - s * (e - r)

    return unit_log1p, scalar_op_cache_key(op, cache_version=2)
