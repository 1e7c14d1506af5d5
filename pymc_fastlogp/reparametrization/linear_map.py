r"""Linear coordinates for correlated parameters of an unconstrained point.

Consider few parameters ``p`` and many variables ``f`` that are conditionally independent given ``p``, such as abilities given the parameters of items. At the mode,
minus the second derivatives of the log density are

    [[H, G], [G.T, diag(d)]],   H = R^-T R^-1,   R.T G diag(d)^(-1/2) = U diag(s) V.T

where ``s``, below 1, holds the canonical correlations of ``p`` and ``f``. For a Gaussian, ``z = f - p @ B`` is independent of ``p``, whose marginal precision is ``S``:

    B = -G / d,   S = H - G diag(1 / d) G.T

The pairs with large correlations suffice for ``B`` and ``S``: ``B = R^-T U * (-diag(s) V.T diag(d)^(-1/2))``. The sampler moves in ``z`` and in ``w``,

    p = D C^(-1/2) w,   S = D^-1 C D^-1,   diag(C) = 1

The entries of ``w`` are uncorrelated with variance 1. Among such coordinates they are the nearest to ``p`` in units of its scales (ZCA-cor whitening). A parameter
without correlations is only scaled. The map is exact for any posterior, since its Jacobian is constant. It helps less if the posterior is not Gaussian.

The condition number, the ratio of the largest to the smallest curvature in units of the scales of ``p``, tells how slow a sampler with a diagonal mass matrix is: path
lengths between independent draws grow with its square root.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Gradient = Callable[[Array], Array]

# Largest number of mapped parameters. Every evaluation multiplies by a matrix of this size.
MAX_PARAMETERS = 128
# Largest number of entries of B.
MAX_COUPLINGS = 65_536
# Least condition number worth a map: paths grow with its root. The work of the map grows with the square of the number of parameters.
# A map of 64 parameters doubles the work of a small model, which takes as many multiplications. Each dependent adds more.
MIN_CONDITION, DOUBLE_WORK, WORK_OF_DEPENDENT = 5.0, 64, 8
# Least squared canonical correlation of a pair that B includes.
MIN_SQUARED_CORRELATION = 0.5
# Steps of differences of gradients: absolute while scales are unknown, then in standard deviations.
STEP, RELATIVE_STEP = 1e-4, 1e-2
# Largest relative change of the second derivatives of dependents if they move in another direction.
DIAGONAL_TOLERANCE = 0.02
# Least relative curvature that differences of gradients can tell from 0.
MIN_CURVATURE = 1e-9


class LinearMap(NamedTuple):
    """Linear map from the coordinates ``w`` of a sampler to an unconstrained point ``x``.

    Attributes
    ----------
    indices : ndarray of int64, shape (k,)
        Indices of the parameters in both.
    matrix : ndarray of float64, shape (k, k)
        ``x[indices] = matrix @ w[indices]``.
    dependents : ndarray of int64, shape (m,)
        Indices of the conditionally independent variables.
    left, right : ndarray of float64, shapes (k, r) and (r, m)
        ``x[dependents] = w[dependents] + x[indices] @ left @ right``.
    """

    indices: Indices
    matrix: Array
    dependents: Indices
    left: Array
    right: Array

    def forward(self, w: Array) -> Array:
        """Return the unconstrained point ``x`` for the coordinates ``w`` of the sampler."""
        x = np.array(w, dtype=np.float64)
        x[self.indices] = self.matrix @ x[self.indices]
        x[self.dependents] += x[self.indices] @ self.left @ self.right
        return x

    def gradient(self, by_x: Array) -> Array:
        """Return the gradient with respect to ``w``, from the gradient with respect to ``x``."""
        by_w = np.array(by_x, dtype=np.float64)
        of_dependents = self.left @ (self.right @ by_x[self.dependents])
        by_w[self.indices] = (by_x[self.indices] + of_dependents) @ self.matrix
        return by_w

    def inverse(self, x: Array) -> Array:
        """Return the coordinates ``w`` of the sampler for an unconstrained point ``x``."""
        w = np.array(x, dtype=np.float64)
        w[self.dependents] -= w[self.indices] @ self.left @ self.right
        w[self.indices] = np.linalg.solve(self.matrix, w[self.indices])
        return w


def linear_map(
    gradient: Gradient, x: Array, variables: Sequence[Indices], others: Sequence[Indices] = ()
) -> tuple[LinearMap | None, float]:
    """Find the map from the curvature of the log density at a point.

    Parameters
    ----------
    gradient : callable
        Gradient of the log density at a point of shape ``(n,)``.
    x : ndarray, shape (n,)
        Point near the mode.
    variables : sequence of ndarray of int64
        Indices of each variable in the point.
    others : sequence of ndarray of int64
        Indices of variables that may only be dependents.

    Returns
    -------
    linear_map : LinearMap or None
        The map, or None if the condition number is small or the derivatives are not usable.
    ratio : float
        Condition number. It is infinite if the smallest curvature is not positive, as may happen away from the mode. The map then helps to find the mode.
    """
    indices, large = _parameters(variables)
    if len(indices) == 0 or len(indices) == len(x) == 1:
        return None, 1.0
    with np.errstate(all="ignore"):
        found = _Curvature.at(gradient, x, indices, [*large, *others])
        return (None, np.nan) if found is None else found.map()


def _parameters(variables: Sequence[Indices]) -> tuple[Indices, list[Indices]]:
    """Return the indices of the mapped parameters, shortest variables first, and the variables that do not fit."""
    chosen: list[Indices] = [np.empty(0, np.int64)]
    large: list[Indices] = []
    for variable in sorted(variables, key=len):
        fits = sum(map(len, chosen)) + len(variable) <= MAX_PARAMETERS
        (chosen if fits else large).append(np.asarray(variable, np.int64))
    return np.concatenate(chosen), large


class _Curvature(NamedTuple):
    """Minus the second derivatives.

    Attributes
    ----------
    indices, dependents : ndarray of int64, shapes (k,) and (m,)
        Indices of parameters and dependents.
    own, cross, diagonal : ndarray, shapes (k, k), (k, m) and (m,)
        Blocks ``H``, ``G`` and ``d`` of the matrix.
    """

    indices: Indices
    dependents: Indices
    own: Array
    cross: Array
    diagonal: Array

    @classmethod
    def at(
        cls, gradient: Gradient, x: Array, indices: Indices, others: Sequence[Indices]
    ) -> "_Curvature | None":
        """Return the curvature at a point, None if it is not finite or not positive."""

        def along(direction: Array) -> Array:
            return (gradient(x - direction) - gradient(x + direction)) / 2

        def rows(steps: Array) -> Array:
            moves = np.zeros((len(indices), len(x)))
            moves[np.arange(len(indices)), indices] = steps
            return np.array([along(move) for move in moves]) / steps[:, None]

        own = np.diagonal(rows(np.full(len(indices), STEP))[:, indices])
        if not (own > 0).all():
            return None
        known = rows(RELATIVE_STEP / np.sqrt(own))
        dependents, diagonal = _independent(along, others, len(x), MAX_COUPLINGS // len(indices))
        own = (known[:, indices] + known[:, indices].T) / 2
        made = cls(indices, dependents, own, known[:, dependents], diagonal)
        is_known = np.isfinite(own).all() and np.isfinite(made.cross).all()
        return made if is_known and (np.diagonal(own) > 0).all() else None

    def map(self) -> tuple[LinearMap | None, float]:
        """Return the map, None if the condition number is too small, and the condition number."""
        scale = 1 / np.sqrt(np.diagonal(self.own))
        root = _inverse_root(self.own)
        dependents, left, right = self._dependents(root)
        of_dependents = right * self.diagonal[: len(dependents)] @ right.T
        marginal = self.own - left @ of_dependents @ left.T
        fastest = np.linalg.eigvalsh(_scaled(self.own, scale))[-1]
        slowest = np.linalg.eigvalsh(_scaled(marginal, scale))[0]
        ratio = float(fastest / slowest) if slowest > MIN_CURVATURE else np.inf
        of_model = DOUBLE_WORK**2 + WORK_OF_DEPENDENT * len(self.dependents)
        work = 1 + len(self.indices) ** 2 / of_model
        if ratio < MIN_CONDITION * work**2:
            return None, ratio
        return LinearMap(self.indices, _inverse_root(marginal), dependents, left, right), ratio

    def _dependents(self, root: Array) -> tuple[Indices, Array, Array]:
        """Return the dependents, and the two low-rank factors of B."""
        unit = np.sqrt(self.diagonal)
        u, s, v = np.linalg.svd(root.T @ self.cross / unit, full_matrices=False)
        r = int(np.sum(np.square(s) > MIN_SQUARED_CORRELATION))
        following = slice(None if r else 0)
        left, right = np.linalg.solve(root.T, u[:, :r]), -s[:r, None] * v[:r] / unit
        return self.dependents[following], left, right[:, following]


def _independent(
    along: Callable[[Array], Array], others: Sequence[Indices], n: int, most: int
) -> tuple[Indices, Array]:
    """Return the indices of variables whose entries are independent of each other, and minus their second derivatives."""
    chosen = [np.empty(0, np.int64)]
    for variable in sorted(others, key=len):
        if sum(map(len, chosen)) + len(variable) <= most:
            chosen.append(np.asarray(variable, np.int64))
    indices = np.concatenate(chosen)

    def diagonal(steps: Array) -> Array:
        move = np.zeros(n)
        move[indices] = steps
        return along(move)[indices] / steps

    rough = diagonal(np.full(len(indices), STEP))
    steps = RELATIVE_STEP / np.sqrt(np.where(rough > 0, rough, 1.0))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=len(indices))
    plain, signed = diagonal(steps), diagonal(steps * signs)
    is_good = (plain > 0) & (np.abs(plain - signed) <= DIAGONAL_TOLERANCE * plain)
    kept = np.concatenate([np.full(len(x), is_good[np.isin(indices, x)].all()) for x in chosen])
    return indices[kept], plain[kept]


def _scaled(matrix: Array, scale: Array) -> Array:
    return scale[:, None] * matrix * scale


def _inverse_root(precision: Array) -> Array:
    """Return ``D C^(-1/2)``, as in the docstring of the module."""
    scale = 1 / np.sqrt(np.diagonal(precision))
    values, vectors = np.linalg.eigh(_scaled(precision, scale))
    return (
        scale[:, None] * (vectors / np.sqrt(np.maximum(np.abs(values), MIN_CURVATURE))) @ vectors.T
    )
