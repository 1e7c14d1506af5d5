r"""Crossed effects, of which each row of the data has one of each factor: what they share is their common level.

The likelihood of the effects ``a_f`` of the factors ``f`` is summarised by sites ``I_f, h_f``. Its second derivatives by effects of two factors are a table of
the rows that they share; where factors are independent of each other, that is ``W p_f p_f'^T`` with ``W = sum(I_f)``, the same for all factors, and ``p_f = I_f / W``.
So a factor knows of the others no more than their level, the number ``S = sum over f' of p_f' @ a_f'``; its gradient is ``h_f - I_f S``. A coefficient of -1 has a minus before ``p``.

Factors are eliminated one after the other, each conditional on those that stand after it. What remains to be said of the level has the weight
``omega W``, where ``omega`` falls from 1, and the level ``tau`` is what the eliminated ones are expected to have. Of the standardised effects ``u = (a - mu) / s`` of the next factor, then

    precision   M = D - kappa q q^T,   D = diag(1 + s^2 I),  q = s p,  kappa = W (1 - omega)
    gradient    s r,   r = h - I (mu + tau + omega S) + kappa p (p @ mu)
    u = M^-1 s r + M^(-1/2) z

and with ``psi = p @ (1 / D)``, which is 1 where the data say nothing and 0 where they say all, and ``e = q^T D^-1 q``,

    m^2 = 1 - kappa e = omega + psi - omega psi,      det(M) = det(D) m^2
    M^-1 = D^-1 + kappa / m^2 D^-1 q q^T D^-1
    M^(-1/2) = D^(-1/2) (1 + kappa / (m (1 + m)) v v^T),   v = D^(-1/2) q
    tau <- tau + omega (p @ mu + q^T D^-1 s r / m^2)
    omega <- omega psi / m^2,                          1 / omega <- 1 / omega + 1 / psi - 1

No difference of nearly equal numbers is taken, but for ``1 - omega``. It is an exact change of variables for any numbers, as all others are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import ModelFreeRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import logprob_of, support_point_of
from pymc_fastlogp.parametrisation.effects import Effect
from pymc_fastlogp.parametrisation.normal import (
    SitedNormal,
    SiteTransform,
    middle,
    middle_of,
    zeros_of,
)
from pymc_fastlogp.parametrisation.sites import (
    gradient_name,
    information_name,
    sign_name,
    weight_name,
    weights_name,
)


class Place(NamedTuple):
    """Where the standardised effects of a factor are.

    Attributes
    ----------
    location, precision : Variable, shape (J,)
        Expectation, and the diagonal D.
    direction, pull : Variable, shape (J,), or None
        ``v`` and its multiple: ``u = location + (z + pull (direction @ z)) / sqrt(precision)``. None for the first factor.
    """

    location: Variable
    precision: Variable
    direction: Variable | None = None
    pull: Variable | None = None


class _Factor(NamedTuple):
    """What is known of a factor before the level of those after it is."""

    scale: Variable
    diagonal: Variable
    gradient: Variable
    pulled: Variable
    omega: Variable
    kappa: Variable
    q: Variable
    m: Variable


class Crossing:
    """The places of crossed effects.

    Parameters
    ----------
    effects : sequence of Effect
        In the order of elimination.
    numbers : mapping of str to Variable
        Of their sites.
    """

    def __init__(self, effects: Sequence[Effect], numbers: Mapping[str, Variable]):
        self._effects, self._numbers = effects, numbers
        self._factors: list[_Factor] = []
        omega, tau = pt.constant(1.0), pt.constant(0.0)
        for effect in effects:
            omega, tau = self._eliminate(effect, omega, tau)

    def _eliminate(self, effect: Effect, omega: Variable, tau: Variable) -> tuple[Any, Any]:
        """Return what is left to say of the level after another factor, and the level that is expected of all so far."""
        name, scale, mean = effect.name, effect.scale, effect.mean
        information = self._numbers[information_name(name, name)]
        p, sign = self._numbers[weights_name(name)], self._numbers[sign_name(name)]
        is_first = not self._factors
        kappa = self._numbers[weight_name(name)] * (1.0 - omega)
        own_level = (p * mean).sum() if effect.terms else pt.constant(0.0)
        gradient = self._numbers[gradient_name(name)] - information * (mean + sign * tau)
        if effect.terms and not is_first:
            gradient += kappa * own_level * p
        diagonal = 1.0 + pt.sqr(scale) * information
        psi = (1.0 - pt.sqr(sign)) + (p / diagonal).sum()
        m2 = omega + psi - omega * psi
        q = scale * p
        self._factors.append(
            _Factor(scale, diagonal, gradient, sign * information, omega, kappa, q, pt.sqrt(m2))
        )
        expected = (q * scale * gradient / diagonal).sum() / m2
        return omega * psi / m2, tau + omega * sign * (own_level + expected)

    def level(self, k: int, effect: Effect) -> Variable:
        """Return what a factor adds to the level, from its effects."""
        name = self._effects[k].name
        whole = effect.deviation + effect.mean if effect.terms else effect.deviation
        if effect.is_centred:
            whole = effect.variable
        return self._numbers[sign_name(name)] * (self._numbers[weights_name(name)] * whole).sum()

    def place(self, k: int, level: Variable | None) -> Place:
        """Return the place of a factor.

        Parameters
        ----------
        k : int
            Which one.
        level : Variable, optional
            Of all factors after it; None for the last one.
        """
        factor = self._factors[k]
        gradient = factor.gradient
        if level is not None:
            gradient = gradient - factor.pulled * (factor.omega * level)
        location = factor.scale * gradient / factor.diagonal
        if k == 0:
            return Place(location, factor.diagonal)
        less = factor.kappa / pt.sqr(factor.m) * (factor.q * location).sum()
        direction = factor.q / pt.sqrt(factor.diagonal)
        return Place(
            location + less * factor.q / factor.diagonal,
            factor.diagonal,
            direction,
            factor.kappa / (factor.m * (1.0 + factor.m)) * direction,
        )


class SitedCrossed(SitedNormal):
    """``Normal(mu, sigma)`` of a vector; :class:`CrossedTransform` reads the last four parameters, and both of the distribution."""

    extended_signature = "[rng],[size],(),(),(),(),(j),(j)->[rng],()"

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which the place has no part in."""
        return normal(*parameters[:2], size=size, rng=rng, return_next_rng=True)

    @classmethod
    def standardised(cls, rv: TensorVariable) -> TensorVariable:
        """Return a variable minus its mean, in units of its scale."""
        mu, sigma, *_ = rv.owner.inputs[-6:]
        return (rv - mu) / sigma


@logprob_of.register(SitedCrossed)
def _logprob(
    op: SitedCrossed, values: Sequence[Variable], rng: Any, size: Any, *inputs: Any, **kwargs: Any
) -> TensorVariable:
    return pm.logp(pm.Normal.dist(*inputs[:2]), values[0], **kwargs)


@support_point_of.register(SitedCrossed)
def _support_point(
    op: SitedCrossed, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return middle(crossed_transform, zeros_of(rv), inputs)


class CrossedTransform(SiteTransform):
    """The change of variables of a :class:`SitedCrossed`: that of effects on their own, after one direction of ``z`` is stretched."""

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return ``z``."""
        if (z := middle_of(value)) is not None:
            return z
        *own, direction, pull = inputs[-6:]
        stretched = super().forward(value, *own)
        return stretched - pull * (direction * stretched).sum() / _stretch(direction, pull)

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        *own, direction, pull = inputs[-6:]
        return super().backward(value + pull * (direction * value).sum(), *own)

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return its part of each entry: an equal part of that of the stretched direction."""
        *own, direction, pull = inputs[-6:]
        of_all = pt.log(_stretch(direction, pull)) / value.shape[0]
        return super().log_jac_det(value, *own) + of_all


crossed_transform = CrossedTransform()


def _stretch(direction: Variable, pull: Variable) -> Variable:
    """Return by what the direction is stretched."""
    return 1.0 + (direction * pull).sum()


def sited_crossed(effect: Effect, place: Place) -> Variable:
    """Return the free variable with its place."""
    rv, value = effect.variable.owner.inputs
    rng, size, mu, sigma = rv.owner.inputs
    new = SitedCrossed.rv_op(mu, sigma, *place, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{crossed_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, crossed_transform)(new, new_value)
