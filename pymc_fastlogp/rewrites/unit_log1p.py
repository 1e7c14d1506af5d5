r"""``log(1 + e)`` of an ``e`` between 0 and 1, by the logarithm of the rounded sum and what it lost.

With :math:`u = \mathrm{fl}(1 + e)`, which is in :math:`[1, 2]`,

.. math:: \log(1 + e) = \log u + \log\Big(1 + \frac{e - (u - 1)}{u}\Big)
          = \log u + \frac{e - (u - 1)}{u} + O(\epsilon^2)

where :math:`u - 1` and its difference from :math:`e` are exact (Sterbenz). In scalar loops the C library's
``log`` is cheaper than its ``log1p``, and who has :math:`1 / u` at hand, as the logistic function does, pays
a few additions more.

Source: W. Kahan's formula, in the form of Goldberg, What every computer scientist should know about
floating-point arithmetic (1991), theorem 4, with the quotient as a correction.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit
from pytensor.link.numba.dispatch.scalar import register_scalar_funcify, scalar_op_cache_key


class UnitLog1p(ps.ScalarOp):
    """``log(1 + e)`` of scalars ``e``, from 0 to 1 or nan, and ``r = 1 / (1 + e)``, of one float type."""

    nin = 2

    def impl(self, e: np.floating, r: np.floating) -> np.floating:
        """Return the logarithm, where no code is compiled."""
        return np.log1p(e)


unit_log1p = UnitLog1p(ps.upgrade_to_float_no_complex, name="unit_log1p")


@register_scalar_funcify(UnitLog1p)
def _funcify(op: UnitLog1p, node: Apply, **kwargs: Any) -> tuple[Callable, str]:
    one = np.dtype(node.outputs[0].type.dtype).type(1)

    # PyTensor lets LLVM reorder sums, by which `e - (u - 1)` would be zero.
    @numba_njit(fastmath=False)
    def unit_log1p(e, r):  # type: ignore[no-untyped-def]
        u = one + e
        return math.log(u) + (e - (u - one)) * r

    return unit_log1p, scalar_op_cache_key(op, cache_version=1)
