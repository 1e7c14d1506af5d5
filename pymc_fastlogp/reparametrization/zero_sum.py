r"""Effects that sum to zero: match them, and partially center them by sites.

    centered        a ~ ZeroSumNormal(scale)
    non-centered    raw ~ ZeroSumNormal(1), scale * raw

PyMC's transform builds such a vector of length n from a vector of length n - 1, ``a = E @ v`` with an isometry ``E``. The entries of ``v`` are independent,
``v ~ Normal(0, scale)``, so each gets a separate site:

    v = sigma * (scale gradient / (1 + scale^2 information) + z / sqrt(1 + scale^2 information))

A constant added to all effects is orthogonal to the columns of ``E``, so ``v`` has mean zero. The information of the likelihood about ``v`` is ``E.T @ I @ E``,
of which a site keeps the diagonal. The neglected part is small if groups have similar sizes. If one group has most of the rows, correlations
remain for the sampler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.transforms import Transform
from pymc.model.fgraph import ModelFreeRV
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import logprob_of, support_point_of
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.reparametrization.effects import (
    NO_PARAMETERS,
    SCALAR,
    Effect,
    Unchanged,
    find_non_centered,
    has_prior,
    is_random,
)
from pymc_fastlogp.reparametrization.partially_centered import (
    SiteRV,
    cached_residual,
    value_at_zero_residual,
)
from pymc_fastlogp.reparametrization.single_site import residual, standardized_effects

SEVERAL_AXES = "it has several axes"
SEVERAL_SCALES = "its scale is not a scalar"

AXIS = -1
extended = ZeroSumTransform([AXIS]).backward
shortened = ZeroSumTransform([AXIS]).forward


@dataclass(frozen=True)
class ZeroSum(Effect):
    """Effects that sum to zero. Mean, scale and deviation refer to the n - 1 entries of ``v``."""

    @property
    def kind(self) -> str:
        """Parametrization of the effect in the model."""
        return f"sums to zero, {super().kind}"

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the value variable; unknown lengths are None."""
        n = length_of(self.variable.owner.inputs[0])
        return (None if n is None else n - 1,)

    @property
    def deviation(self) -> Variable:
        """Effect minus its mean, in ``v``."""
        v = shortened(self.variable)
        return v if self.is_centered else self.scale * v


def find_zero_sum(fgraph: FunctionGraph, x: Variable) -> ZeroSum | Unchanged | None:
    """Match a free variable as effects that sum to zero."""
    rv, name = x.owner.inputs[0], x.owner.op.name
    if not has_prior(rv, ZeroSumNormalRV) or not isinstance(x.owner.op.transform, ZeroSumTransform):
        return None
    if x.type.ndim != 1:
        return Unchanged(name, SEVERAL_AXES)
    if length_of(rv) == 1:
        return Unchanged(name, SCALAR)
    sigma = rv.owner.inputs[2]
    if is_random(sigma):
        return ZeroSum(name, True, x, (), (sigma,), x.owner.op.dims)
    if fill_value(sigma) != 1:
        return Unchanged(name, NO_PARAMETERS)
    found = find_non_centered(fgraph, x)
    if isinstance(found, Unchanged):
        return found
    if not all(all(y.type.broadcastable) for y in found.factors):
        return Unchanged(name, SEVERAL_SCALES)
    return ZeroSum(name, False, x, (), found.factors, x.owner.op.dims)


def length_of(rv: Variable) -> int | None:
    """Return the length of a vector that sums to zero, None for other variables or an unknown length."""
    if rv.owner is None or rv.type.ndim != 1:
        return None
    if not isinstance(rv.owner.op, ZeroSumNormalRV):
        return None
    [shape] = constant_fold([rv.owner.inputs[3]], raise_not_constant=False)
    return None if isinstance(shape, Variable) else int(shape[0])


class PartiallyCenteredZeroSum(SiteRV):
    """``ZeroSumNormal(sigma)`` of a vector, with sigma, scale, gradient and information of ``v`` for :class:`ZeroSumSiteTransform`."""

    name = "ZeroSumNormal"
    extended_signature = "[rng],[size],(s),(1),(1),(m),(m)->[rng],(n)"
    _print_name = ("ZeroSumNormal", "\\operatorname{ZeroSumNormal}")

    @classmethod
    def draws(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which do not depend on the site."""
        length, sigma, *_ = parameters
        return pm.ZeroSumNormal.rv_op(sigma, length, size=size, rng=rng).owner.outputs

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the standardized entries of ``v``."""
        sigma = rv.owner.inputs[-4]
        return shortened(rv) / sigma


@logprob_of.register(PartiallyCenteredZeroSum)
def _logprob(
    op: PartiallyCenteredZeroSum,
    values: Sequence[Variable],
    rng: Any,
    size: Any,
    *inputs: Any,
    **kwargs: Any,
) -> TensorVariable:
    [value], (length, sigma, *_) = values, inputs
    return pm.logp(pm.ZeroSumNormal.dist(sigma, support_shape=[length[0]]), value, **kwargs)


@support_point_of.register(PartiallyCenteredZeroSum)
def _support_point(
    op: PartiallyCenteredZeroSum, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return value_at_zero_residual(zero_sum_site_transform, pt.zeros(inputs[-1].type.shape), inputs)


class ZeroSumSiteTransform(Transform):
    """Change of variables of a :class:`PartiallyCenteredZeroSum`."""

    name = "site"
    ndim_supp = 1

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the residual ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        sigma, *site = inputs[-4:]
        return residual(shortened(value) / sigma, *site)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        sigma, *site = inputs[-4:]
        return extended(sigma * standardized_effects(value, *site)[0])

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of the vector."""
        sigma, *site = inputs[-4:]
        return (pt.log(sigma) + standardized_effects(value, *site)[1]).sum(AXIS)


zero_sum_site_transform = ZeroSumSiteTransform()


def partially_centered_zero_sum(
    effect: ZeroSum, gradient: Variable, information: Variable
) -> Variable:
    """Return the free variable of an effect, partially centered by its site."""
    rv, value = effect.variable.owner.inputs
    rng, size, sigma, length = rv.owner.inputs
    scale = pt.atleast_1d(effect.scale)
    new = PartiallyCenteredZeroSum.rv_op(
        length, sigma, scale, gradient, information, size=size, rng=rng
    )
    name = f"{effect.name}_{ZeroSumSiteTransform.name}__"
    new_value = pt.tensor(name, dtype=value.type.dtype, shape=information.type.shape)
    return ModelFreeRV(effect.name, effect.dims, zero_sum_site_transform)(new, new_value)
