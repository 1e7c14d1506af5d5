r"""Change of variables for the scale of effects of groups, which may be near zero: like the logarithm, without its exponential tail.

If the data are compatible with equal effects, the density of their scale is nearly constant from zero up to some value. The density of ``v = log(x)`` then
falls as ``exp(v)`` to the left, an exponential tail in which Hamiltonian samplers mix slowly. The right side falls at least as fast as a Gaussian. Instead,

    log(x / s) = v - 1 - min(v, 0)^2 / 2,   log(dx / dv) = log(x) + log(1 - min(v, 0))

with the scale ``s`` of the prior. The map is the logarithm to the right. To the left, the density falls as ``exp(-v^2 / 2)``. The map is exact, with a continuous
first derivative, and has no fitted constants. Well-identified scales lie where it is nearly linear, like the logarithm. Priors whose density is 0 at zero, such as
InverseGamma or LogNormal, have no such tail and keep the logarithm.

For gradients ``X`` of ``x / s`` and ``J`` of ``log(dx / dv)`` at ``s = 1``, and ``t = 1 - min(v, 0)``, the derivative is ``t (X x / s + J) - J [v < 0] / t``.
"""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV
from pymc.logprob.transforms import LogTransform, Transform
from pymc.model.fgraph import ModelFreeRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import ExponentialRV, HalfNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.reparametrization.site_node import as_node

# Priors with a positive density at zero. The last parameter of each is its scale.
PRIORS = (HalfNormalRV, ExponentialRV, HalfCauchyRV, HalfStudentTRV)


class ScaleTransform(Transform):
    """Change of variables of a scale, derived in the docstring of the module."""

    name = "scale"
    ndim_supp = 0

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return ``v``."""
        right = pt.log(value / inputs[-1]) + 1.0
        left = 1.0 - pt.sqrt(1.0 - 2.0 * pt.minimum(right, 0.0))
        return pt.switch(right > 0.0, right, left)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the scale."""
        return inputs[-1] * _relative_scale(value)[0]

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of each entry."""
        # PyMC stores an exact constant as float32. Cast it, so that the logarithm is float64.
        return pt.log(inputs[-1].astype(value.dtype)) + _relative_scale(value)[1]


def _relative_scale(v: TensorVariable) -> list[Variable]:
    """Return ``x / s``, and the log Jacobian for ``s = 1``."""
    return as_node(_forward, _pullback, v)


def _forward(v: Any) -> list[Variable]:
    left = pt.minimum(v, 0.0)
    exponent = v - 1.0 - 0.5 * pt.sqr(left)
    return [pt.exp(exponent), exponent + pt.log1p(-left)]


def _pullback(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Variable]:
    [v] = inputs
    d_x, d_log = gradients
    slope = 1.0 - pt.minimum(v, 0.0)
    return [slope * (d_x * outputs[0] + d_log) - d_log * pt.lt(v, 0.0) / slope]


scale_transform = ScaleTransform()


def scales_in(factors: Sequence[Variable]) -> list[Variable]:
    """Return the free variables in ``PRIORS`` with a log transform, on which the factors of effects depend.

    The factor of an effect multiplies the standardized effect, such as the standard deviation of a group effect.
    """
    return [x for x in dict.fromkeys(ancestors(factors)) if _is_scale(x)]


def with_scale_transform(x: Variable) -> Variable:
    """Return the free variable of a scale with :class:`ScaleTransform`."""
    rv, value = x.owner.inputs
    new_value = value.type(name=f"{x.owner.op.name}_{scale_transform.name}__")
    return ModelFreeRV(x.owner.op.name, x.owner.op.dims, scale_transform)(rv, new_value)


def _is_scale(x: Variable) -> bool:
    if x.owner is None or not isinstance(x.owner.op, ModelFreeRV):
        return False
    rv = x.owner.inputs[0]
    has_prior = (
        rv.owner is not None and isinstance(rv.owner.op, PRIORS) and x.type.dtype == "float64"
    )
    return has_prior and isinstance(x.owner.op.transform, LogTransform)
