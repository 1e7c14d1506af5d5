r"""Gaussian site of the effects of a group: a Gaussian approximation of their likelihood, as in expectation propagation.

The likelihood of the K effects ``a`` of a group is approximated by ``exp(h @ a - a @ I @ a / 2)``, with a positive semidefinite ``I``.
The prior is ``a_k ~ Normal(mu_k, s_k)``. The product of prior and site is Gaussian. In the standardized effects ``u = (a - mu) / s`` it has

    precision   M_ij = [i = j] + s_i I_ij s_j
    gradient    s_i w_i  at  u = 0,  w = h - I @ mu

Effects are eliminated one after the other, as in a Cholesky factorization. The first is then conditional on all others, and the last is marginal:

    u_k = s_k (w_k - sum_{j > k} I_kj (a_j - mu_j)) / d_k + z_k / sqrt(d_k),   d_k = 1 + s_k^2 I_kk
    I_ij <- I_ij - s_k^2 I_ik I_kj / d_k,   w_i <- w_i - s_k^2 I_ik w_k / d_k      for i, j > k

The sampler moves in the residuals ``z``. This change of variables is exact for any ``I`` and ``h``, because ``u_k`` is affine in ``z_k`` given the later
effects. Nothing is divided by a scale, so scales may be 0 or large, and every ``d_k`` is at least 1.

Other parameters ``x`` of the likelihood, such as a common intercept or coefficients, shift the gradient: ``h`` is replaced by ``h - B @ x`` with a constant ``B``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Names of the effects of one joint site, in the order of elimination.
Block = tuple[str, ...]
# Largest eigenvalue of the information: a standard deviation of 1e-6 in units of the model, which is as good as exact.
MAX_INFORMATION = 1e12


@dataclass(frozen=True)
class Site:
    """Gaussian site of a block of effects, all of one shape.

    Attributes
    ----------
    information : ndarray, shape (K, K, *shape)
        ``I``, symmetric and positive semidefinite in its first two axes.
    gradient : ndarray, shape (K, *shape)
        ``h``.
    slopes : mapping of str to ndarray, shape (K, *shape, n)
        ``B`` for each other parameter, by its name.
    sign : float, optional
        Sign of a crossed effect in the linear predictor, the same for all rows: 1 or -1. It is 0 if only part of the rows have the effect,
        and None if the effect is no candidate for crossing.
    """

    information: Array
    gradient: Array
    slopes: Mapping[str, Array] = field(default_factory=dict)
    sign: float | None = None

    @classmethod
    def flat(
        cls, n_effects: int, shape: tuple[int, ...], others: Mapping[str, int] | None = None
    ) -> "Site":
        """Return the site of a flat likelihood, which makes effects non-centered.

        Parameters
        ----------
        n_effects : int
            Number of effects K.
        shape : tuple of int
            Shape of an effect.
        others : mapping of str to int, optional
            Names and lengths of other parameters.
        """
        slopes = {name: np.zeros((n_effects, *shape, n)) for name, n in (others or {}).items()}
        return cls(np.zeros((n_effects, n_effects, *shape)), np.zeros((n_effects, *shape)), slopes)

    @classmethod
    def infinite(cls, n_effects: int, shape: tuple[int, ...]) -> "Site":
        """Return the site with infinite information, which makes effects centered."""
        return cls(np.full((n_effects, n_effects, *shape), np.inf), np.zeros((n_effects, *shape)))

    @property
    def is_infinite(self) -> bool:
        """Return whether the information is infinite."""
        return bool(np.isinf(self.information).all())

    def projected(self) -> "Site":
        """Return the nearest site with finite, positive semidefinite information. Groups with NaN or infinite entries get a flat site."""
        matrices = np.moveaxis(self.information, (0, 1), (-2, -1))
        matrices = (matrices + np.swapaxes(matrices, -1, -2)) / 2
        gradient = np.moveaxis(self.gradient, 0, -1)
        good = np.isfinite(matrices).all((-2, -1)) & np.isfinite(gradient).all(-1)
        matrices = np.where(good[..., None, None], matrices, 0.0)
        values, vectors = np.linalg.eigh(matrices)
        clipped = (vectors * np.clip(values, 0.0, MAX_INFORMATION)[..., None, :]) @ np.swapaxes(
            vectors, -1, -2
        )
        is_inside = (values >= 0).all(-1) & (values <= MAX_INFORMATION).all(-1)
        matrices = np.where(is_inside[..., None, None], matrices, clipped)
        gradient = np.where(
            good[..., None], np.clip(gradient, -MAX_INFORMATION, MAX_INFORMATION), 0.0
        )
        return Site(
            np.moveaxis(matrices, (-2, -1), (0, 1)),
            np.moveaxis(gradient, -1, 0),
            {
                name: np.where(good[..., None] & np.isfinite(x).all(-1)[..., None], x, 0.0)
                for name, x in self.slopes.items()
            },
            self.sign,
        )


def site_arrays(names: Sequence[str], site: Site) -> dict[str, Array]:
    """Return the arrays of a site by the names of their variables in the graph.

    Parameters
    ----------
    names : sequence of str
        Names of the variables: one per effect, or a single one for correlated effects.
    site : Site
        The site.
    """
    if len(names) < len(site.gradient):
        [name] = names
        return {
            information_name(name, name): site.information,
            gradient_name(name): site.gradient,
        }
    lower = {
        information_name(one, other): site.information[i, j]
        for i, one in enumerate(names)
        for j, other in enumerate(names[: i + 1])
    }
    slopes = {
        slope_name(name, other): of_effect
        for other, slope in site.slopes.items()
        for name, of_effect in zip(names, slope, strict=True)
    }
    gradients = {gradient_name(name): h for name, h in zip(names, site.gradient, strict=True)}
    shared = (
        {}
        if site.sign is None
        else _shared_mean_arrays(names[0], site.information[0, 0], site.sign)
    )
    return lower | slopes | gradients | shared


def _shared_mean_arrays(name: str, information: Array, sign: float) -> dict[str, Array]:
    """Return the arrays for the shared mean of crossed effects, zeros if the effect is not crossed."""
    total = abs(sign) * information.sum()
    is_there = total > 0
    return {
        sign_name(name): np.asarray(sign if is_there else 0.0),
        weight_name(name): np.asarray(total),
        weights_name(name): information / total if is_there else np.zeros_like(information),
    }


def information_name(one: str, other: str) -> str:
    """Return the name of the variable for the information about two effects, the later effect first."""
    return f"information of {one} and {other}"


def gradient_name(effect: str) -> str:
    """Return the name of the variable for the gradient of a site."""
    return f"gradient of {effect}"


def slope_name(effect: str, other: str) -> str:
    """Return the name of the variable for the slope of a gradient with respect to another parameter."""
    return f"slope of {effect} by {other}"


def sign_name(effect: str) -> str:
    """Return the name of the variable for the sign with which rows have a crossed effect."""
    return f"sign of {effect}"


def weight_name(effect: str) -> str:
    """Return the name of the variable for the information about the shared mean of crossed effects."""
    return f"weight of the level of {effect}"


def weights_name(effect: str) -> str:
    """Return the name of the variable for the weight of each group in the shared mean of crossed effects."""
    return f"weights in the level of {effect}"
