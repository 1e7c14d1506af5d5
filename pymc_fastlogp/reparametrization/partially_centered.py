"""Normal variables with another change of variables: partially centered by a site, or centered.

Partially centered, with the ``gradient`` and ``information`` of a site and the ``scale`` of the effect:

    x = mu + sigma * u,   u = scale gradient / (1 + scale^2 information) + z / sqrt(1 + scale^2 information)

This holds for any scale, any gradient and any information of at least 0. All three may depend on other variables of the model. Draws and densities
of ``x`` do not depend on them. The sampler moves in the residual ``z``, which is the standardized variable if information and gradient are 0.

Centered, the limit of infinite information for an effect ``a = mean + scale * raw`` that the model writes non-centered:

    raw = (a - mean) / scale,   log |d raw / d a| = -log |scale|

The variable of the model is ``raw``, and the sampler moves in ``a``. PyTensor simplifies ``mean + scale * raw`` in the likelihood to ``a``.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pymc.model.fgraph import ModelFreeRV
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.basic import normal
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import (
    SymbolicRandomVariable,
    logprob_of,
    support_point_of,
)
from pymc_fastlogp.reparametrization.correlated import Correlated
from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.single_site import residual, standardized_effects


class SiteRV(SymbolicRandomVariable):
    """Random variable with extra parameters, which follow the parameters of its distribution and are inputs of its transform only."""

    @classmethod
    def draws(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return the next state of the generator, and draws."""
        raise NotImplementedError

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the standardized effects of a random variable."""
        raise NotImplementedError

    @classmethod
    def rv_op(
        cls, *parameters: Variable, size: Any = None, rng: Variable | None = None
    ) -> TensorVariable:
        """Return a random variable with these parameters."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        inputs = [rng, normalize_size_param(size), *map(pt.as_tensor, parameters)]
        outputs = cls.draws(*inputs[2:], size=inputs[1], rng=rng)
        return cls(inputs=inputs, outputs=list(outputs))(*inputs)

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node. Inputs of other types need another Op, with the static shape of its output inferred anew."""
        rng, size, *parameters = inputs
        if [x.type for x in inputs[1:]] == [*self.input_types[1:]]:
            return super().make_node(*inputs)
        return self.rv_op(*parameters, size=size, rng=rng).owner


class PartiallyCenteredNormal(SiteRV):
    """``Normal(mu, sigma)`` with scale, gradient and information for :class:`SiteTransform`."""

    name = "normal"
    extended_signature = "[rng],[size],(),(),(),(),()->[rng],()"
    _print_name = ("Normal", "\\operatorname{Normal}")

    @classmethod
    def draws(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which do not depend on the site."""
        return normal(*parameters[:2], size=size, rng=rng, return_next_rng=True)

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the standardized effects of a random variable."""
        mu, sigma, *_ = rv.owner.op.dist_params(rv.owner)
        return (rv - mu) / sigma


@logprob_of.register(PartiallyCenteredNormal)
def _logprob(
    op: PartiallyCenteredNormal,
    values: Sequence[Variable],
    rng: Any,
    size: Any,
    *inputs: Any,
    **kwargs: Any,
) -> TensorVariable:
    return pm.logp(pm.Normal.dist(*inputs[:2]), values[0], **kwargs)


@support_point_of.register(PartiallyCenteredNormal)
def _support_point(
    op: PartiallyCenteredNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return value_at_zero_residual(site_transform, zeros_of(rv), inputs)


class SiteTransform(Transform):
    """Change of variables of a :class:`PartiallyCenteredNormal`."""

    name = "site"
    ndim_supp = 0

    # The last inputs are mu, sigma, and the arguments of `standardized_effects`.
    n_parameters = 5

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the residual ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        mu, sigma, *parameters = inputs[-self.n_parameters :]
        return self.residual((value - mu) / sigma, parameters)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        mu, sigma, *parameters = inputs[-self.n_parameters :]
        return mu + sigma * self.standardized_effects(value, parameters)[0]

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of each entry."""
        _, sigma, *parameters = inputs[-self.n_parameters :]
        return pt.log(sigma) + self.standardized_effects(value, parameters)[1]

    def standardized_effects(
        self, value: Variable, parameters: Sequence[Variable]
    ) -> list[Variable]:
        """Return standardized effects, and the log Jacobian of each."""
        return standardized_effects(value, *parameters)

    def residual(self, u: Variable, parameters: Sequence[Variable]) -> Variable:
        """Return the residual of standardized effects."""
        return residual(u, *parameters)


site_transform = SiteTransform()


def zeros_of(rv: TensorVariable) -> TensorVariable:
    """Return zeros of the shape of a random variable."""
    is_known = None not in rv.type.shape
    return pt.zeros(rv.type.shape if is_known else rv.shape)


def value_at_zero_residual(
    transform: Transform, zero: TensorVariable, inputs: Sequence[Variable]
) -> TensorVariable:
    """Return the value at ``z = 0``, where chains start."""
    value = transform.backward(zero, *inputs)
    # The forward transform of the initial point then returns these zeros without computing them.
    value.tag.residual = zero
    return value


def cached_residual(value: TensorVariable) -> TensorVariable | None:
    """Return ``z`` if the value comes from :func:`value_at_zero_residual`, else None."""
    return getattr(value.tag, "residual", None)


class CenteredNormal(PartiallyCenteredNormal):
    """``Normal(mu, sigma)`` with mean and scale of the effect for :class:`CenteredTransform`."""

    extended_signature = "[rng],[size],(),(),(),()->[rng],()"


@support_point_of.register(CenteredNormal)
def _support_point_of_centered(
    op: CenteredNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return zeros_of(rv)


class CenteredTransform(Transform):
    """Change of variables of a :class:`CenteredNormal`."""

    name = "centered"
    ndim_supp = 0

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the effect."""
        mean, scale = inputs[-2:]
        return mean + scale * value

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        mean, scale = inputs[-2:]
        return (value - mean) / scale

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of each entry."""
        return pt.zeros_like(value) - pt.log(pt.abs(inputs[-1]))


centered_transform = CenteredTransform()


def centered_variable(effect: Effect) -> Variable:
    """Return the free variable of a non-centered effect, with a transform that samples the effect centered."""
    inputs = [effect.mean, effect.scale]
    return with_transform(effect, CenteredNormal, centered_transform, inputs)


def partially_centered_normal(effect: Effect, inputs: Sequence[Variable]) -> Variable:
    """Return the free variable of an effect, partially centered by gradient and information of its site."""
    return with_transform(effect, PartiallyCenteredNormal, site_transform, [effect.scale, *inputs])


def with_transform(
    effect: Effect | Correlated, op: type[SiteRV], transform: Transform, inputs: Sequence[Variable]
) -> Variable:
    """Return the free variable of an effect with another transform, whose inputs follow the parameters of the distribution."""
    rv, value = effect.variable.owner.inputs
    rng, size, *parameters = rv.owner.inputs
    new = op.rv_op(*parameters, *inputs, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, transform)(new, new_value)
