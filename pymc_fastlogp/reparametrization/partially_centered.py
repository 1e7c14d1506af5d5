"""A Normal variable that knows where its data want it: the Op, its density, and the change of variables.

    x = mu + sigma * u,   u = scale gradient / (1 + scale^2 information) + z / sqrt(1 + scale^2 information)

for any ``scale``, ``gradient`` and any ``information`` of at least 0, which may be expressions of other variables of the model. Draws and densities of
``x`` do not depend on the three; the sampler moves in ``z``. Without information and gradient, ``z`` is the standardized variable.
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
from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.single_site import residual, standardized_effects


class SiteRV(SymbolicRandomVariable):
    """A variable whose parameters are first those of its distribution, ``drawn``, and then what its transform reads."""

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return the next state of the generator, and draws."""
        raise NotImplementedError

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return a variable minus its mean, in units of its scale."""
        raise NotImplementedError

    @classmethod
    def rv_op(
        cls, *parameters: Variable, size: Any = None, rng: Variable | None = None
    ) -> TensorVariable:
        """Return a random variable."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        inputs = [rng, normalize_size_param(size), *map(pt.as_tensor, parameters)]
        outputs = cls.drawn(*inputs[2:], size=inputs[1], rng=rng)
        return cls(inputs=inputs, outputs=list(outputs))(*inputs)

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node; inputs of other types make another Op, whose output has the lengths that follow."""
        rng, size, *parameters = inputs
        if [x.type for x in inputs[1:]] == [*self.input_types[1:]]:
            return super().make_node(*inputs)
        return self.rv_op(*parameters, size=size, rng=rng).owner


class PartiallyCenteredNormal(SiteRV):
    """``Normal(mu, sigma)``; :class:`SiteTransform` reads the other three parameters, and both of these."""

    name = "normal"
    extended_signature = "[rng],[size],(),(),(),(),()->[rng],()"
    _print_name = ("Normal", "\\operatorname{Normal}")

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which the site has no part in."""
        return normal(*parameters[:2], size=size, rng=rng, return_next_rng=True)

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return a variable minus its mean, in units of its scale."""
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
    """The change of variables of a :class:`PartiallyCenteredNormal`."""

    name = "site"
    ndim_supp = 0

    # Those of the random variable, from the end: mean and scale, and what `standardized_effects` takes.
    n_parameters = 5

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        mu, sigma, *parameters = inputs[-self.n_parameters :]
        return self.residual((value - mu) / sigma, parameters)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        mu, sigma, *parameters = inputs[-self.n_parameters :]
        return mu + sigma * self.standardized_effects(value, parameters)[0]

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return that of each entry."""
        _, sigma, *parameters = inputs[-self.n_parameters :]
        return pt.log(sigma) + self.standardized_effects(value, parameters)[1]

    def standardized_effects(
        self, value: Variable, parameters: Sequence[Variable]
    ) -> list[Variable]:
        """Return standardized effects, and the part of each in the logarithm of the Jacobian."""
        return standardized_effects(value, *parameters)

    def residual(self, u: Variable, parameters: Sequence[Variable]) -> Variable:
        """Return what remains of standardized effects."""
        return residual(u, *parameters)


site_transform = SiteTransform()


def zeros_of(rv: TensorVariable) -> TensorVariable:
    """Return zeros of the lengths of a variable."""
    is_known = None not in rv.type.shape
    return pt.zeros(rv.type.shape if is_known else rv.shape)


def value_at_zero_residual(
    transform: Transform, zero: TensorVariable, inputs: Sequence[Variable]
) -> TensorVariable:
    """Return the variable where ``z`` is 0, the middle of what is left to sample, for chains to start at."""
    value = transform.backward(zero, *inputs)
    # So that the initial point need not undo what was just done.
    value.tag.residual = zero
    return value


def cached_residual(value: TensorVariable) -> TensorVariable | None:
    """Return ``z`` of what :func:`middle` returned, None for any other variable."""
    return getattr(value.tag, "residual", None)


class CenteredNormal(PartiallyCenteredNormal):
    """``Normal(mu, sigma)``; :class:`CenteredTransform` reads the other two parameters, mean and scale of the effect."""

    extended_signature = "[rng],[size],(),(),(),()->[rng],()"


@support_point_of.register(CenteredNormal)
def _support_point(
    op: CenteredNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return zeros_of(rv)


class CenteredTransform(Transform):
    """The change of variables of a :class:`CenteredNormal`."""

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
        """Return that of each entry."""
        return pt.zeros_like(value) - pt.log(pt.abs(inputs[-1]))


centered_transform = CenteredTransform()


def centered(effect: Effect) -> Variable:
    """Return the free variable of a non-centered effect, to be sampled centered."""
    rv, value = effect.variable.owner.inputs
    rng, size, *parameters = rv.owner.inputs
    parameters = [*parameters, effect.mean, effect.scale]
    new = CenteredNormal.rv_op(*parameters, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{centered_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, centered_transform)(new, new_value)
