r"""Crossed effects: each row has one effect of each of several factors, such as states, ages and schools. The factors share their mean.

The likelihood of the effects ``a_f`` of factor ``f`` is approximated by the site ``I_f, h_f``. Its second derivatives with respect to effects of two factors count the
rows that they share. If factors are independent of each other, that is ``W p_f p_f'^T`` with ``p_f = I_f / W``, and ``W = sum(I_f)`` is equal for all factors.
So factor ``f`` depends on the others only through one number, the shared mean ``S = sum over f' of p_f' @ a_f'``, and its gradient is ``h_f - I_f S``.
For an effect with coefficient -1, ``p`` has a minus sign.

Factors are eliminated one after the other, each conditional on the later factors. ``omega`` is the part of the information ``W`` about the shared mean that is
not yet used, and starts at 1. ``tau`` is the shared mean expected from the eliminated factors. The standardized effects ``u = (a - mu) / s`` of the next factor have

    precision   M = D - kappa q q^T,   D = diag(1 + s^2 I),  q = s p,  kappa = W (1 - omega)
    gradient    s r,   r = h - I (mu + tau + omega S) + kappa p (p @ mu)
    u = M^-1 s r + M^(-1/2) z

With ``e = q^T D^-1 q`` and ``psi = p @ (1 / D)``, which is 1 for a flat site and 0 for infinite information,

    m^2 = 1 - kappa e = omega + psi - omega psi,      det(M) = det(D) m^2
    M^-1 = D^-1 + kappa / m^2 D^-1 q q^T D^-1
    M^(-1/2) = D^(-1/2) (1 + kappa / (m (1 + m)) v v^T),   v = D^(-1/2) q
    tau <- tau + omega (p @ mu + q^T D^-1 s r / m^2)
    omega <- omega psi / m^2,                          1 / omega <- 1 / omega + 1 / psi - 1

The only difference of nearly equal numbers is ``1 - omega``. The change of variables is exact for any arrays. The pullback differentiates these lines
backwards. In the code, ``d_x`` is the derivative with respect to ``x``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import support_point_of
from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.partially_centered import (
    PartiallyCenteredNormal,
    SiteTransform,
    value_at_zero_residual,
    with_transform,
    zeros_of,
)
from pymc_fastlogp.reparametrization.site_node import Forward, Pullback, as_node
from pymc_fastlogp.reparametrization.sites import (
    Array,
    Block,
    Site,
    gradient_name,
    information_name,
    sign_name,
    weight_name,
    weights_name,
)

# Inputs per factor in the elimination. Parameters: scale, gradient, weighted prior mean. Site: information, weights, sign, total information.
N_PARAMETERS, N_SITE_ARRAYS = 3, 4
# Largest relative difference between the responses of a factor to another factor's mean and to its own.
MAX_MISMATCH = 0.1


class Crossing:
    """Elimination of crossed effects.

    Parameters
    ----------
    effects : sequence of Effect
        Effects in the order of elimination.
    arrays : mapping of str to Variable
        Arrays of their sites, by name.
    """

    def __init__(self, effects: Sequence[Effect], arrays: Mapping[str, Variable]):
        self._arrays, self._names = arrays, [effect.name for effect in effects]
        parameters: list[Any] = []
        constants: list[Any] = []
        for effect in effects:
            name = effect.name
            information, p = arrays[information_name(name, name)], arrays[weights_name(name)]
            gradient, own = arrays[gradient_name(name)], pt.constant(0.0)
            if effect.terms:
                gradient = gradient - information * effect.mean
                own = (p * effect.mean).sum()
            parameters += [effect.scale, gradient, own]
            constants += [information, p, arrays[sign_name(name)], arrays[weight_name(name)]]
        self._first_gradient = parameters[1]
        self._eliminated = as_node(*_functions(len(effects)), *parameters, *constants)

    def shared_mean(self, k: int, effect: Effect) -> Variable:
        """Return the contribution of a factor to the shared mean, from its effects."""
        name = self._names[k]
        whole = effect.variable if effect.is_centered else effect.deviation
        if effect.terms and not effect.is_centered:
            whole = whole + effect.mean
        return self._arrays[sign_name(name)] * (self._arrays[weights_name(name)] * whole).sum()

    def transform_inputs(self, k: int, shared_mean: Variable | None) -> list[Variable]:
        """Return the inputs of the transform of factor k after its scale: gradient and information, then p, kappa and m except for the first factor.

        Parameters
        ----------
        k : int
            Index of the factor.
        shared_mean : Variable, optional
            Contribution of all later factors, None for the last factor.
        """
        name = self._names[k]
        information = self._arrays[information_name(name, name)]
        signed = self._arrays[sign_name(name)] * information
        if k == 0:
            return [self._first_gradient - signed * shared_mean, information]
        gradient, omega, kappa, m = self._eliminated[4 * (k - 1) : 4 * k]
        if shared_mean is not None:
            gradient = gradient - signed * (omega * shared_mean)
        return [gradient, information, self._arrays[weights_name(name)], kappa, m]


class _Step(NamedTuple):
    """State of a factor at its elimination, in the symbols of the module docstring. ``own`` is ``p @ mu``, and ``inverse`` is 1 / D."""

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
        """Expected ``p @ (a - mu)``, times m2."""
        return (self.p * pt.sqr(self.scale) * self.r * self.inverse).sum()


@cache
def _functions(n: int) -> tuple[Forward, Pullback]:
    """Return forward and pullback for ``n`` factors, cached so that equal calls share one Op."""

    def forward(*inputs: Any) -> list[Variable]:
        return [y for x in _steps(n, inputs)[1:] for y in (x.r, x.omega, x.kappa, pt.sqrt(x.m2))]

    def pullback(inputs: Any, outputs: Any, gradients: Any) -> list[Variable]:
        found: list[Variable] = []
        d_omega = d_tau = 0.0
        steps = _steps(n, inputs)
        for k in reversed(range(1, n)):
            d_outputs = gradients[4 * (k - 1) : 4 * k]
            is_last = k == n - 1
            own, d_omega, d_tau = _pull_back_step(
                steps[k], d_outputs, d_omega, d_tau, is_last=is_last
            )
            found = own + found
        return _pull_back_first(steps[0], d_omega, d_tau) + found

    return forward, pullback


def _steps(n: int, inputs: Sequence[Any]) -> list[_Step]:
    omega: Any = 1.0
    tau: Any = 0.0
    steps: list[_Step] = []
    for k in range(n):
        scale, gradient, own = inputs[N_PARAMETERS * k : N_PARAMETERS * (k + 1)]
        begin = N_PARAMETERS * n + N_SITE_ARRAYS * k
        information, p, sign, weight = inputs[begin : begin + N_SITE_ARRAYS]
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


def _pull_back_step(
    step: _Step, d_outputs: Sequence[Any], d_next_omega: Any, d_tau: Any, *, is_last: bool
) -> tuple[list[Variable], Any, Any]:
    """Return the derivatives with respect to scale, gradient and ``p @ mu`` of a factor, and to its incoming omega and tau."""
    d_r, d_omega, d_kappa, d_m = d_outputs
    m2 = step.m2
    d_m2, d_psi, d_own, d_expected = 0.5 * d_m / pt.sqrt(m2), 0.0, 0.0, 0.0
    if not is_last:
        d_own = d_tau * step.omega * step.sign
        d_expected = d_own / m2
        d_psi = d_next_omega * step.omega / m2
        d_m2 = d_m2 - d_expected * step.expected / m2 - d_psi * step.psi / m2
        d_omega = d_omega + d_next_omega * step.psi / m2
        d_omega = d_omega + d_tau * step.sign * (step.own + step.expected / m2)
        d_r = d_r + d_expected * step.p * pt.sqr(step.scale) * step.inverse
    d_psi = d_psi + d_m2 * (1.0 - step.omega)
    d_omega = d_omega + d_m2 * (1.0 - step.psi)
    along = (step.p * d_r).sum()
    d_own = d_own + step.kappa * along
    d_omega = d_omega - step.weight * (d_kappa + step.own * along)
    d_tau = d_tau - step.sign * (step.information * d_r).sum()
    return [_derivative_by_scale(step, d_psi, d_expected), d_r, d_own], d_omega, d_tau


def _pull_back_first(step: _Step, d_omega: Any, d_tau: Any) -> list[Variable]:
    """Return the derivatives with respect to scale, gradient and ``p @ mu`` of the first factor, whose omega is 1."""
    d_own = d_tau * step.sign
    d_r = d_own * step.p * pt.sqr(step.scale) * step.inverse
    return [_derivative_by_scale(step, d_omega, d_own), d_r, d_own]


def _derivative_by_scale(step: _Step, d_psi: Any, d_expected: Any) -> Variable:
    """Return the derivative with respect to the scale of a factor, through psi and through ``expected``."""
    d_inverse = step.p * (d_psi + d_expected * pt.sqr(step.scale) * step.r)
    d_diagonal = -pt.sqr(step.inverse) * d_inverse
    by_variance = d_expected * step.p * step.r * step.inverse + step.information * d_diagonal
    return 2.0 * step.scale * by_variance


class CrossedNormal(PartiallyCenteredNormal):
    """``Normal(mu, sigma)`` of a vector, with scale, gradient, information, p, kappa and m for :class:`CrossedTransform`."""

    extended_signature = "[rng],[size],(),(),(),(),(),(j),(),()->[rng],()"


@support_point_of.register(CrossedNormal)
def _support_point(
    op: CrossedNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return value_at_zero_residual(crossed_transform, zeros_of(rv), inputs)


class CrossedTransform(SiteTransform):
    """Change of variables of a :class:`CrossedNormal`."""

    n_parameters = 8

    def standardized_effects(
        self, value: Variable, parameters: Sequence[Variable]
    ) -> list[Variable]:
        """Return standardized effects, and the log Jacobian of each."""
        scale, gradient, *arrays, kappa, m = parameters
        return as_node(
            _standardize, _standardize_pullback, scale, gradient, value, kappa, m, *arrays
        )

    def residual(self, u: Variable, parameters: Sequence[Variable]) -> Variable:
        """Return the residual of standardized effects."""
        scale, gradient, information, p, kappa, m = parameters
        r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(scale) * information))
        v, y = scale * p * r, scale * gradient * r
        e = pt.sqr(v).sum()
        stretched = u / r - y - v * (kappa / pt.sqr(m) * (v * y).sum())
        b = kappa / (m * (1.0 + m))
        return stretched - v * (b * (v * stretched).sum() / (1.0 + b * e))


def _standardize(
    s: Any, w: Any, z: Any, kappa: Any, m: Any, information: Any, p: Any
) -> list[Variable]:
    """Return u and its log Jacobian: ``u = r (y + z + v (c y @ v + b z @ v))``.

    Here ``r = D^(-1/2)``, ``y = r s w``, ``c = kappa / m^2`` and ``b = kappa / (m (1 + m))``.
    """
    r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(s) * information))
    y, v = s * w * r, s * p * r
    stretch = kappa / pt.sqr(m) * (v * y).sum() + kappa / (m * (1.0 + m)) * (v * z).sum()
    return [r * (y + z + v * stretch), pt.log(r) - pt.log(m) / _length(z)]


def _standardize_pullback(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Variable]:
    s, w, z, kappa, m, information, p = inputs
    d_u, d_log = gradients
    d_log = pt.as_tensor(d_log)
    r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(s) * information))
    y, v = s * w * r, s * p * r
    c, b = kappa / pt.sqr(m), kappa / (m * (1.0 + m))
    y_v, z_v = (v * y).sum(), (v * z).sum()
    t = d_u * r
    t_v = (t * v).sum()
    d_y, d_z = t + (t_v * c) * v, t + (t_v * b) * v
    d_v = (c * y_v + b * z_v) * t + (t_v * c) * y + (t_v * b) * z
    # The derivative with respect to log r: y and v are multiples of r, too.
    d_log_r = d_u * outputs[0] + d_log + d_y * y + d_v * v
    d_s = (d_y * w + d_v * p) * r - s * information * pt.sqr(r) * d_log_r
    d_kappa = t_v * (y_v / pt.sqr(m) + z_v / (m * (1.0 + m)))
    d_m = -t_v * (2.0 * c * y_v / m + b * z_v * (1.0 + 2.0 * m) / (m * (1.0 + m)))
    return [d_s, d_y * s * r, d_z, d_kappa, d_m - d_log.sum() / (_length(z) * m)]


def _length(z: Any) -> Any:
    [n] = z.type.shape
    return z.shape[0] if n is None else float(n)


crossed_transform = CrossedTransform()


def partially_centered_crossed(effect: Effect, inputs: Sequence[Variable]) -> Variable:
    """Return the free variable of a crossed effect, partially centered."""
    return with_transform(effect, CrossedNormal, crossed_transform, [effect.scale, *inputs])


def crossing_signs(responses: Mapping[Block, Mapping[Block, Array]]) -> dict[Block, float]:
    """Return the sign of each factor in the linear predictor, and 0 for factors that are not crossed.

    In rows that have effects of two factors, shifting all effects of one factor changes the gradient of the other factor like a shift of the other factor's effects.

    Parameters
    ----------
    responses : mapping of tuple of str to mapping of tuple of str to ndarray, shape (J,)
        For each factor, the response of the gradient of each factor, itself included, to a shift of its effects.
    """
    names = [*responses]
    signs, fits = np.zeros((2, len(names), len(names)))
    with np.errstate(all="ignore"):
        for i, one in enumerate(names):
            for j, other in enumerate(names):
                own, by_other = responses[one][one], responses[other][one]
                signs[i, j] = np.sign(own @ by_other)
                mismatch = np.abs(by_other - signs[i, j] * own).sum() / np.abs(own).sum()
                # Factors of different rows have no response, and are not crossed.
                fits[i, j] = signs[i, j] != 0 and mismatch < MAX_MISMATCH
    kept = consistent_subset((fits > 0) & (fits.T > 0) & (signs == signs.T))
    if len(kept) < 2:
        return dict.fromkeys(names, 0.0)
    return {name: signs[kept[0], i] if i in kept else 0.0 for i, name in enumerate(names)}


def consistent_subset(fits: NDArray[np.bool_]) -> list[int]:
    """Return indices that all fit each other, after greedily removing those with the fewest fits from a symmetric table."""
    kept = list(range(len(fits)))
    while kept and not fits[np.ix_(kept, kept)].all():
        kept.pop(int(np.argmin(fits[np.ix_(kept, kept)].sum(1))))
    return kept


def at_zero_shared_mean(
    sites: Mapping[Block, Site], effects: Mapping[Block, Array], signs: Mapping[Block, float]
) -> dict[Block, Site]:
    """Shift the gradients of sites to a shared mean of 0 of the other factors.

    Parameters
    ----------
    sites : mapping of tuple of str to Site
        Sites with the gradient at the current effects of other factors.
    effects : mapping of tuple of str to ndarray, shape (K, *shape)
        Current effects.
    signs : mapping of tuple of str to float
        Signs of candidates for crossing.
    """
    means = {x: sign * _shared_mean(sites[x], effects[x]) for x, sign in signs.items()}
    found = dict(sites)
    for names, sign in signs.items():
        others = sum(means.values()) - means[names]
        site = sites[names]
        gradient = site.gradient + sign * site.information[0] * others
        found[names] = replace(site, gradient=gradient, sign=sign).projected()
    return found


def _shared_mean(site: Site, effects: Array) -> float:
    total = site.information.sum()
    return float((site.information[0, 0] * effects[0]).sum() / total) if total > 0 else 0.0
