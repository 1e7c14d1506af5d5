r"""Effects that sum to zero: which they are, a variable with a place for sites, and the change of variables.

    centered        a ~ ZeroSumNormal(scale)
    non-centered    raw ~ ZeroSumNormal(1), scale * raw

PyMC's transform makes such a variable from one of an entry less, ``a = E @ v``, and ``E`` is an isometry: the entries of ``v`` are
independent, ``v ~ Normal(0, scale)``. So they are effects as any others, with sites of their own,

    v = sigma * (scale gradient / (1 + scale^2 information) + z / sqrt(1 + scale^2 information))

A constant that is added to all effects is orthogonal to ``E``, so their mean is zero in ``v``. What the likelihood says of ``v`` is
``E.T @ I @ E``, of which a site has the diagonal. Where groups are of one size, what is left out is small; where one group has most of the rows, it
is not, and the sampler finds the rest.
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
SEVERAL_SCALES = "its scale is not one number"

AXIS = -1
extended = ZeroSumTransform([AXIS]).backward
shortened = ZeroSumTransform([AXIS]).forward


@dataclass(frozen=True)
class ZeroSum(Effect):
    """Effects that sum to zero; mean, scale and deviation are those of the entries that remain, one less."""

    @property
    def kind(self) -> str:
        """Spelling of the effect in the model."""
        return f"sums to zero, {super().kind}"

    @property
    def shape(self) -> tuple[Any, ...]:
        """Of what remains to be sampled; None for a length that is not known."""
        n = length_of(self.variable.owner.inputs[0])
        return (None if n is None else n - 1,)

    @property
    def deviation(self) -> Variable:
        """The effect minus its mean."""
        v = shortened(self.variable)
        return v if self.is_centered else self.scale * v


def find_zero_sum(fgraph: FunctionGraph, x: Variable) -> ZeroSum | Unchanged | None:
    """Return a free variable as effects that sum to zero, None if it is another variable."""
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
    """Return the number of effects of a vector that sums to zero, None if it is another variable, or not known."""
    if rv.owner is None or rv.type.ndim != 1:
        return None
    if not isinstance(rv.owner.op, ZeroSumNormalRV):
        return None
    [shape] = constant_fold([rv.owner.inputs[3]], raise_not_constant=False)
    return None if isinstance(shape, Variable) else int(shape[0])


class PartiallyCenteredZeroSum(SiteRV):
    """``ZeroSumNormal(sigma)`` of a vector of some length; :class:`ZeroSumSiteTransform` reads sigma and the three of its site, one entry less."""

    name = "ZeroSumNormal"
    extended_signature = "[rng],[size],(s),(1),(1),(m),(m)->[rng],(n)"
    _print_name = ("ZeroSumNormal", "\\operatorname{ZeroSumNormal}")

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which the site has no part in."""
        length, sigma, *_ = parameters
        return pm.ZeroSumNormal.rv_op(sigma, length, size=size, rng=rng).owner.outputs

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the variable of one entry less, in units of its scale."""
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
    """The change of variables of a :class:`PartiallyCenteredZeroSum`."""

    name = "site"
    ndim_supp = 1

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        sigma, *site = inputs[-4:]
        return residual(shortened(value) / sigma, *site)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        sigma, *site = inputs[-4:]
        return extended(sigma * standardized_effects(value, *site)[0])

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return that of all entries that remain."""
        sigma, *site = inputs[-4:]
        return (pt.log(sigma) + standardized_effects(value, *site)[1]).sum(AXIS)


zero_sum_site_transform = ZeroSumSiteTransform()


def partially_centered_zero_sum(
    effect: ZeroSum, gradient: Variable, information: Variable
) -> Variable:
    """Return the free variable with its site."""
    rv, value = effect.variable.owner.inputs
    rng, size, sigma, length = rv.owner.inputs
    scale = pt.atleast_1d(effect.scale)
    new = PartiallyCenteredZeroSum.rv_op(
        length, sigma, scale, gradient, information, size=size, rng=rng
    )
    name = f"{effect.name}_{ZeroSumSiteTransform.name}__"
    new_value = pt.tensor(name, dtype=value.type.dtype, shape=information.type.shape)
    return ModelFreeRV(effect.name, effect.dims, zero_sum_site_transform)(new, new_value)
