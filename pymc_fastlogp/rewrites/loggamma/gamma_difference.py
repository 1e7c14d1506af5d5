"""``gammaln(a + k) - gammaln(a)`` and its derivative as scalar Ops, so that no sum separates their two terms.

The terms of ``a`` alone are inputs, because many rows share them. :mod:`~pymc_fastlogp.rewrites.rows.compact.hoist_distinct`
shares the term of the derivative. Each Op is a ``Composite`` with its own gradient, so every backend and every kernel supports
it.
"""

from functools import cache
from typing import Any

import pytensor.scalar as ps
from pytensor.gradient import disconnected_type
from pytensor.scalar import ScalarVariable
from pytensor.scalar.math import gammaln, psi, tri_gamma
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.ops import SpelledOut


class GammaDifference(SpelledOut):
    """``gammaln(a + k) - gammaln(a)`` of ``a``, ``k`` and ``gammaln(a)``.

    The derivative by ``a`` includes the contribution of ``gammaln(a)``, so this input is disconnected.
    """

    def __init__(self, dtype: str) -> None:
        a, k, log_gamma = _inputs(dtype, "a", "k", "log_gamma")
        super().__init__([a, k, log_gamma], [gammaln(a + k) - log_gamma])
        self._name = "gamma_difference"

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Return whether each input has a gradient."""
        return [[True], [True], [False]]

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k, _), [cotangent] = inputs, output_grads
        by_a = _scalar(PsiDifference, a.type.dtype)(a, k, psi(a))
        return [cotangent * by_a, cotangent * psi(a + k), disconnected_type()]


class PsiDifference(SpelledOut):
    """``psi(a + k) - psi(a)`` of ``a``, ``k`` and ``psi(a)``."""

    def __init__(self, dtype: str) -> None:
        a, k, slope = _inputs(dtype, "a", "k", "slope")
        super().__init__([a, k, slope], [psi(a + k) - slope])
        self._name = "psi_difference"

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Return whether each input has a gradient."""
        return [[True], [True], [False]]

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k, _), [cotangent] = inputs, output_grads
        by_k = tri_gamma(a + k)
        return [cotangent * (by_k - tri_gamma(a)), cotangent * by_k, disconnected_type()]


def _inputs(dtype: str, *names: str) -> list[ScalarVariable]:
    return [ps.get_scalar_type(dtype)(name) for name in names]


@cache
def _scalar(op: type[ps.Composite], dtype: str) -> ps.Composite:
    return op(dtype)


@cache
def _elemwise(dtype: str) -> Elemwise:
    return Elemwise(GammaDifference(dtype))


def gamma_difference(
    a: TensorVariable, k: TensorVariable, log_gamma: TensorVariable
) -> TensorVariable:
    """Return ``gammaln(a + k) - gammaln(a)``, given ``gammaln(a)``. All inputs have one float dtype."""
    return _elemwise(a.type.dtype)(a, k, log_gamma)
