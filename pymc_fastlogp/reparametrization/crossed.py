r"""Crossed effects, of which each row of the data has one of each factor: what they share is their common level.

The likelihood of the effects ``a_f`` of the factors ``f`` is summarized by sites ``I_f, h_f``. Its second derivatives by effects of two factors are a table of
the rows that they share; where factors are independent of each other, that is ``W p_f p_f'^T`` with ``W = sum(I_f)``, the same for all factors, and ``p_f = I_f / W``.
So a factor knows of the others no more than their level, the number ``S = sum over f' of p_f' @ a_f'``; its gradient is ``h_f - I_f S``. A coefficient of -1 has a minus before ``p``.

Factors are eliminated one after the other, each conditional on those that stand after it. What remains to be said of the level has the weight
``omega W``, where ``omega`` falls from 1, and the level ``tau`` is what the eliminated ones are expected to have. Of the standardized effects ``u = (a - mu) / s`` of the next factor, then

    precision   M = D - kappa q q^T,   D = diag(1 + s^2 I),  q = s p,  kappa = W (1 - omega)
    gradient    s r,   r = h - I (mu + tau + omega S) + kappa p (p @ mu)
    u = M^-1 s r + M^(-1/2) z

and with ``psi = p @ (1 / D)``, which is 1 where the data say nothing and 0 where they say all, and ``e = q^T D^-1 q``,

    m^2 = 1 - kappa e = omega + psi - omega psi,      det(M) = det(D) m^2
    M^-1 = D^-1 + kappa / m^2 D^-1 q q^T D^-1
    M^(-1/2) = D^(-1/2) (1 + kappa / (m (1 + m)) v v^T),   v = D^(-1/2) q
    tau <- tau + omega (p @ mu + q^T D^-1 s r / m^2)
    omega <- omega psi / m^2,                          1 / omega <- 1 / omega + 1 / psi - 1

No difference of nearly equal numbers is taken, but for ``1 - omega``. It is an exact change of variables for any numbers, as all others are. The derivatives are those of
each line, backwards; a derivative by ``x`` is written ``of_x`` below.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pymc.model.fgraph import ModelFreeRV
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import support_point_of
from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.site_node import Forward, Pullback, as_node
from pymc_fastlogp.reparametrization.sited_normal import (
    SitedNormal,
    SiteTransform,
    middle,
    zeros_of,
)
from pymc_fastlogp.reparametrization.sites import (
    gradient_name,
    information_name,
    sign_name,
    weight_name,
    weights_name,
)

# What a factor has in the elimination: scale, gradient, level of its means; and the numbers of its site.
N_PARAMETERS, N_NUMBERS = 3, 4


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
        self._numbers, self._names = numbers, [effect.name for effect in effects]
        parameters: list[Any] = []
        constants: list[Any] = []
        for effect in effects:
            name = effect.name
            information, p = numbers[information_name(name, name)], numbers[weights_name(name)]
            gradient, level = numbers[gradient_name(name)], pt.constant(0.0)
            if effect.terms:
                gradient = gradient - information * effect.mean
                level = (p * effect.mean).sum()
            parameters += [effect.scale, gradient, level]
            constants += [information, p, numbers[sign_name(name)], numbers[weight_name(name)]]
        self._first_gradient = parameters[1]
        self._levels = as_node(*_functions(len(effects)), *parameters, *constants)

    def level(self, k: int, effect: Effect) -> Variable:
        """Return what a factor adds to the level, from its effects."""
        name = self._names[k]
        whole = effect.variable if effect.is_centered else effect.deviation
        if effect.terms and not effect.is_centered:
            whole = whole + effect.mean
        return self._numbers[sign_name(name)] * (self._numbers[weights_name(name)] * whole).sum()

    def place(self, k: int, level: Variable | None) -> list[Variable]:
        """Return what the transform of a factor reads besides its scale: gradient and information, and, but for the first, weights in the level, kappa and m.

        Parameters
        ----------
        k : int
            Which one.
        level : Variable, optional
            Of all factors after it; None for the last one.
        """
        name = self._names[k]
        information = self._numbers[information_name(name, name)]
        pulled = self._numbers[sign_name(name)] * information
        if k == 0:
            return [self._first_gradient - pulled * level, information]
        gradient, omega, kappa, m = self._levels[4 * (k - 1) : 4 * k]
        if level is not None:
            gradient = gradient - pulled * (omega * level)
        return [gradient, information, self._numbers[weights_name(name)], kappa, m]


class _Step(NamedTuple):
    """A factor when it is eliminated, by the names of the module's docstring; ``own`` is the level of its means, ``inverse`` is 1 / D."""

    scale: Any
    own: Any
    information: Any
    p: Any
    sign: Any
    weight: Any
    r: Any
    inverse: Any
    omega: Any
    psi: Any
    m2: Any
    kappa: Any

    @property
    def expected(self) -> Any:
        """Of the level of the effects without their means, times m2."""
        return (self.p * pt.sqr(self.scale) * self.r * self.inverse).sum()


@cache
def _functions(n: int) -> tuple[Forward, Pullback]:
    """Return both functions for a number of factors, always the same ones."""

    def forward(*inputs: Any) -> list[Variable]:
        return [y for x in _steps(n, inputs)[1:] for y in (x.r, x.omega, x.kappa, pt.sqrt(x.m2))]

    def pullback(inputs: Any, outputs: Any, gradients: Any) -> list[Variable]:
        found: list[Variable] = []
        of_omega = of_tau = 0.0
        steps = _steps(n, inputs)
        for k in reversed(range(1, n)):
            of_outputs = gradients[4 * (k - 1) : 4 * k]
            is_last = k == n - 1
            own, of_omega, of_tau = _back(steps[k], of_outputs, of_omega, of_tau, is_last=is_last)
            found = own + found
        return _back_to_first(steps[0], of_omega, of_tau) + found

    return forward, pullback


def _steps(n: int, inputs: Sequence[Any]) -> list[_Step]:
    omega: Any = 1.0
    tau: Any = 0.0
    steps: list[_Step] = []
    for k in range(n):
        scale, gradient, own = inputs[N_PARAMETERS * k : N_PARAMETERS * (k + 1)]
        begin = N_PARAMETERS * n + N_NUMBERS * k
        information, p, sign, weight = inputs[begin : begin + N_NUMBERS]
        inverse = pt.reciprocal(1.0 + pt.sqr(scale) * information)
        psi = (1.0 - pt.sqr(sign)) + (p * inverse).sum()
        r, kappa, m2 = gradient, None, 1.0
        if k > 0:
            kappa = weight * (1.0 - omega)
            r = gradient - information * (sign * tau) + (kappa * own) * p
            m2 = omega + psi - omega * psi
        step = _Step(scale, own, information, p, sign, weight, r, inverse, omega, psi, m2, kappa)
        steps.append(step)
        if k == 0:
            omega, tau = psi, sign * (own + step.expected)
        else:
            omega, tau = omega * psi / m2, tau + omega * sign * (own + step.expected / m2)
    return steps


def _back(
    step: _Step, of_outputs: Sequence[Any], of_next_omega: Any, of_tau: Any, *, is_last: bool
) -> tuple[list[Variable], Any, Any]:
    """Return the derivatives by scale, gradient and level of the means of a factor, and by the omega and tau that it meets."""
    of_r, of_omega, of_kappa, of_m = of_outputs
    m2 = step.m2
    of_m2, of_psi, of_own, of_expected = 0.5 * of_m / pt.sqrt(m2), 0.0, 0.0, 0.0
    if not is_last:
        of_own = of_tau * step.omega * step.sign
        of_expected = of_own / m2
        of_psi = of_next_omega * step.omega / m2
        of_m2 = of_m2 - of_expected * step.expected / m2 - of_psi * step.psi / m2
        of_omega = of_omega + of_next_omega * step.psi / m2
        of_omega = of_omega + of_tau * step.sign * (step.own + step.expected / m2)
        of_r = of_r + of_expected * step.p * pt.sqr(step.scale) * step.inverse
    of_psi = of_psi + of_m2 * (1.0 - step.omega)
    of_omega = of_omega + of_m2 * (1.0 - step.psi)
    along = (step.p * of_r).sum()
    of_own = of_own + step.kappa * along
    of_omega = of_omega - step.weight * (of_kappa + step.own * along)
    of_tau = of_tau - step.sign * (step.information * of_r).sum()
    return [_of_scale(step, of_psi, of_expected), of_r, of_own], of_omega, of_tau


def _back_to_first(step: _Step, of_omega: Any, of_tau: Any) -> list[Variable]:
    """Return the derivatives by scale, gradient and level of the means of the first factor, whose omega is 1."""
    of_own = of_tau * step.sign
    of_r = of_own * step.p * pt.sqr(step.scale) * step.inverse
    return [_of_scale(step, of_omega, of_own), of_r, of_own]


def _of_scale(step: _Step, of_psi: Any, of_expected: Any) -> Variable:
    """Return the derivative by the scale of a factor, which is in psi and in what is expected."""
    of_inverse = step.p * (of_psi + of_expected * pt.sqr(step.scale) * step.r)
    of_diagonal = -pt.sqr(step.inverse) * of_inverse
    by_variance = of_expected * step.p * step.r * step.inverse + step.information * of_diagonal
    return 2.0 * step.scale * by_variance


class SitedCrossed(SitedNormal):
    """``Normal(mu, sigma)`` of a vector; :class:`CrossedTransform` reads the other six parameters, and both of these."""

    extended_signature = "[rng],[size],(),(),(),(),(),(j),(),()->[rng],()"


@support_point_of.register(SitedCrossed)
def _support_point(
    op: SitedCrossed, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return middle(crossed_transform, zeros_of(rv), inputs)


class CrossedTransform(SiteTransform):
    """The change of variables of a :class:`SitedCrossed`."""

    n_parameters = 8

    def placed(self, value: Variable, parameters: Sequence[Variable]) -> list[Variable]:
        """Return standardized effects, and the part of each in the logarithm of the Jacobian."""
        scale, gradient, *numbers, kappa, m = parameters
        return as_node(_placed, _placed_back, scale, gradient, value, kappa, m, *numbers)

    def remaining(self, u: Variable, parameters: Sequence[Variable]) -> Variable:
        """Return what remains of standardized effects."""
        scale, gradient, information, p, kappa, m = parameters
        r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(scale) * information))
        v, y = scale * p * r, scale * gradient * r
        e = pt.sqr(v).sum()
        stretched = u / r - y - v * (kappa / pt.sqr(m) * (v * y).sum())
        by_pull = kappa / (m * (1.0 + m))
        return stretched - v * (by_pull * (v * stretched).sum() / (1.0 + by_pull * e))


def _placed(s: Any, w: Any, z: Any, kappa: Any, m: Any, information: Any, p: Any) -> list[Variable]:
    """Return u and its log Jacobian: ``u = r (y + z + v (c y @ v + b z @ v))``, ``r = D^(-1/2)``, ``y = r s w``, ``c = kappa / m^2``, ``b = kappa / (m (1 + m))``."""
    r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(s) * information))
    y, v = s * w * r, s * p * r
    stretch = kappa / pt.sqr(m) * (v * y).sum() + kappa / (m * (1.0 + m)) * (v * z).sum()
    return [r * (y + z + v * stretch), pt.log(r) - pt.log(m) / _length(z)]


def _placed_back(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Variable]:
    s, w, z, kappa, m, information, p = inputs
    of_u, of_log = gradients
    of_log = pt.as_tensor(of_log)
    r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(s) * information))
    y, v = s * w * r, s * p * r
    c, b = kappa / pt.sqr(m), kappa / (m * (1.0 + m))
    y_v, z_v = (v * y).sum(), (v * z).sum()
    t = of_u * r
    t_v = (t * v).sum()
    of_y, of_z = t + (t_v * c) * v, t + (t_v * b) * v
    of_v = (c * y_v + b * z_v) * t + (t_v * c) * y + (t_v * b) * z
    # of_r r, since y and v are multiples of r as well
    by_r = of_u * outputs[0] + of_log + of_y * y + of_v * v
    of_s = (of_y * w + of_v * p) * r - s * information * pt.sqr(r) * by_r
    of_kappa = t_v * (y_v / pt.sqr(m) + z_v / (m * (1.0 + m)))
    of_m = -t_v * (2.0 * c * y_v / m + b * z_v * (1.0 + 2.0 * m) / (m * (1.0 + m)))
    return [of_s, of_y * s * r, of_z, of_kappa, of_m - of_log.sum() / (_length(z) * m)]


def _length(z: Any) -> Any:
    [n] = z.type.shape
    return z.shape[0] if n is None else float(n)


crossed_transform = CrossedTransform()


def sited_crossed(effect: Effect, place: Sequence[Variable]) -> Variable:
    """Return the free variable with its place."""
    rv, value = effect.variable.owner.inputs
    rng, size, mu, sigma = rv.owner.inputs
    new = SitedCrossed.rv_op(mu, sigma, effect.scale, *place, size=size, rng=rng)
    new_value = value.type(name=f"{effect.name}_{crossed_transform.name}__")
    return ModelFreeRV(effect.name, effect.dims, crossed_transform)(new, new_value)
