r"""Other coordinates for parameters that are correlated: a linear map of the unconstrained point.

Parameters ``p``, a few, and others that follow them, ``f``, many, which are independent of each other given ``p``, as abilities are given the items. Minus the
second derivatives of the log density at its mode are

    [[H, G], [G.T, diag(d)]],   H = R^-T R^-1,   R.T G diag(d)^(-1/2) = U diag(s) V.T

with the correlations ``s``, below 1, of pairs of combinations of both. Of a Gaussian, ``z = f - p @ B`` is independent of ``p``, whose precision is then ``S``,

    B = -G / d,   S = H - G diag(1 / d) G.T

and of ``B`` and ``S`` the few pairs that are highly correlated are enough: ``B = R^-T U * (-diag(s) V.T diag(d)^(-1/2))``. So the sampler moves in ``z`` and in ``w``,

    p = D C^(-1/2) w,   S = D^-1 C D^-1,   diag(C) = 1

of which the entries are uncorrelated with variance 1, and as near to those of ``p`` in units of their scales as such can be: one that is correlated with no other
stays as it is, but for its scale. The map
is exact for any posterior, for its Jacobian is a constant; where the posterior is no Gaussian, or the derivatives are poor, it may help less.

How slow a sampler would be that knows of each parameter's scale alone is seen from the largest and the smallest curvature in units of these scales: the larger the
ratio, the longer the paths between independent draws.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Gradient = Callable[[Array], Array]

# Parameters that are mapped: a matrix of them is part of each evaluation.
MAX_PARAMETERS = 128
# Numbers in B.
MAX_COUPLINGS = 65_536
# Below this ratio of curvatures, paths are not much longer than of independent parameters. Their length is as its root, and the work as the
# square of the number of parameters, of which so many double that of a small model.
MIN_CONDITION, DOUBLE_WORK = 5.0, 64
# Squares of correlations from which on others follow the parameters.
MIN_SQUARED_CORRELATION = 0.5
# Of differences of gradients: of what has a scale not known yet, and in standard deviations.
STEP, RELATIVE_STEP = 1e-4, 1e-2
# Relative differences of second derivatives that those which follow may have when moved in another direction.
DIAGONAL_TOLERANCE = 0.02
# The least curvature in units of a parameter's own that differences of gradients can tell from none.
MIN_CURVATURE = 1e-9


class LinearMap(NamedTuple):
    """From the coordinates ``w`` of a sampler to an unconstrained point ``x``.

    Attributes
    ----------
    indices : ndarray of int64, shape (k,)
        Where the parameters are in both.
    matrix : ndarray of float64, shape (k, k)
        ``x[indices] = matrix @ w[indices]``.
    dependents : ndarray of int64, shape (m,)
        Where those are that follow them.
    left, right : ndarray of float64, shapes (k, r) and (r, m)
        ``x[dependents] = w[dependents] + x[indices] @ left @ right``.
    """

    indices: Indices
    matrix: Array
    dependents: Indices
    left: Array
    right: Array

    def forward(self, w: Array) -> Array:
        """Return ``x``."""
        x = np.array(w, dtype=np.float64)
        x[self.indices] = self.matrix @ x[self.indices]
        x[self.dependents] += x[self.indices] @ self.left @ self.right
        return x

    def gradient(self, by_x: Array) -> Array:
        """Return the gradient by ``w`` of what has one by ``x``."""
        by_w = np.array(by_x, dtype=np.float64)
        of_dependents = self.left @ (self.right @ by_x[self.dependents])
        by_w[self.indices] = (by_x[self.indices] + of_dependents) @ self.matrix
        return by_w

    def inverse(self, x: Array) -> Array:
        """Return ``w``."""
        w = np.array(x, dtype=np.float64)
        w[self.dependents] -= w[self.indices] @ self.left @ self.right
        w[self.indices] = np.linalg.solve(self.matrix, w[self.indices])
        return w


def linear_map(
    gradient: Gradient, x: Array, variables: Sequence[Indices], others: Sequence[Indices] = ()
) -> tuple[LinearMap | None, float]:
    """Find the map, by the curvature of the log density at a point.

    Parameters
    ----------
    gradient : callable
        Of the log density, from a point, shape ``(n,)``.
    x : ndarray, shape (n,)
        The mode, or somewhere near.
    variables : sequence of ndarray of int64
        Where each variable is in the point.
    others : sequence of ndarray of int64
        The same of variables that may only follow.

    Returns
    -------
    linear_map : LinearMap or None
        None where there is nothing to gain, or the derivatives make no sense.
    ratio : float
        Of the curvatures; infinite where the smallest is not positive, as may be where the mode is not. The map is then good for finding it.
    """
    indices, large = _parameters(variables)
    if len(indices) == 0 or len(indices) == len(x) == 1:
        return None, 1.0
    with np.errstate(all="ignore"):
        found = _Curvature.at(gradient, x, indices, [*large, *others])
        return (None, np.nan) if found is None else found.chosen()


def _parameters(variables: Sequence[Indices]) -> tuple[Indices, list[Indices]]:
    """Return the indices of the parameters, of the shortest variables first, and the variables that are too long."""
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
        Of what.
    own, cross, diagonal : ndarray, shapes (k, k), (k, m) and (m,)
        Their parts.
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
        """Return the curvature at a point, None where it makes no sense."""

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

    def chosen(self) -> tuple[LinearMap | None, float]:
        """Return the map, None where there is nothing to gain, and the ratio of the curvatures."""
        scale = 1 / np.sqrt(np.diagonal(self.own))
        root = _inverse_root(self.own)
        dependents, left, right = self._dependents(root)
        of_dependents = right * self.diagonal[: len(dependents)] @ right.T
        marginal = self.own - left @ of_dependents @ left.T
        fastest = np.linalg.eigvalsh(_scaled(self.own, scale))[-1]
        slowest = np.linalg.eigvalsh(_scaled(marginal, scale))[0]
        ratio = float(fastest / slowest) if slowest > MIN_CURVATURE else np.inf
        work = 1 + (len(self.indices) / DOUBLE_WORK) ** 2
        if ratio < MIN_CONDITION * work**2:
            return None, ratio
        return LinearMap(self.indices, _inverse_root(marginal), dependents, left, right), ratio

    def _dependents(self, root: Array) -> tuple[Indices, Array, Array]:
        """Return those that follow the parameters, and the two parts of B."""
        unit = np.sqrt(self.diagonal)
        u, s, v = np.linalg.svd(root.T @ self.cross / unit, full_matrices=False)
        r = int(np.sum(np.square(s) > MIN_SQUARED_CORRELATION))
        following = slice(None if r else 0)
        left, right = np.linalg.solve(root.T, u[:, :r]), -s[:r, None] * v[:r] / unit
        return self.dependents[following], left, right[:, following]


def _independent(
    along: Callable[[Array], Array], others: Sequence[Indices], n: int, most: int
) -> tuple[Indices, Array]:
    """Return the indices of variables whose entries are independent of all others of them, and minus their second derivatives."""
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
    one, other = diagonal(steps), diagonal(steps * signs)
    is_good = (one > 0) & (np.abs(one - other) <= DIAGONAL_TOLERANCE * one)
    kept = np.concatenate([np.full(len(x), is_good[np.isin(indices, x)].all()) for x in chosen])
    return indices[kept], one[kept]


def _scaled(matrix: Array, scale: Array) -> Array:
    return scale[:, None] * matrix * scale


def _inverse_root(precision: Array) -> Array:
    """Return ``D C^(-1/2)``, see the module."""
    scale = 1 / np.sqrt(np.diagonal(precision))
    values, vectors = np.linalg.eigh(_scaled(precision, scale))
    return (
        scale[:, None] * (vectors / np.sqrt(np.maximum(np.abs(values), MIN_CURVATURE))) @ vectors.T
    )
