r"""Standardized effects of a group from what remains to be sampled, where effects are correlated: M by Cholesky's method, without square roots.

    d_k = max(M_kk, 1),   g_i <- g_i - M_ik g_k / d_k,   M_ij <- M_ij - M_ik M_jk / d_k      for i >= j > k
    u_k = (g_k - sum_{i > k} M_ik u_i) / d_k + z_k / sqrt(d_k),   from the last to the first

All is spelled out in vectors over groups, of which PyTensor makes a few loops, and so are the derivatives, which go the same way back: a derivative
by ``x`` is written ``d_x`` below.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.site_node import as_node

Triangle = dict[tuple[int, int], Any]


def standardized_effects(lower: Variable, gradient: Variable, z: Variable) -> list[Variable]:
    """Return standardized effects and the pivots, both of shape (K, J).

    Parameters
    ----------
    lower : Variable, shape (K (K + 1) / 2, J)
        The lower triangle of M, row by row.
    gradient, z : Variable, shape (K, J)
        g, and what remains.
    """
    return as_node(_forward, _pullback, lower, gradient, z)


def residual(lower: Variable, gradient: Variable, u: Variable) -> Variable:
    """Return z, (K, J), from u: the inverse of :func:`standardized_effects`."""
    steps = _steps(lower, gradient)
    us = _rows(u, len(steps))
    return pt.concatenate(
        [(u_k - step.expected(us)) / step.root for u_k, step in zip(us, steps, strict=True)]
    )


def lower_indices(n: int) -> list[tuple[int, int]]:
    """Return the indices of a lower triangle, row by row."""
    return [(i, j) for i in range(n) for j in range(i + 1)]


class _Step(NamedTuple):
    """An effect when it is eliminated: M_kk as it was, what M couples it with by number, g_k, and 1 / sqrt(d_k)."""

    diagonal: Any
    couplings: dict[int, Any]
    gradient: Any
    root: Any

    @property
    def inverse(self) -> Any:
        """Of the pivot; a division takes longer than a product, so that there is one of each pivot."""
        return pt.sqr(self.root)

    def left(self, u: Sequence[Any]) -> Any:
        """Return the gradient, given the effects that stand after this one."""
        left = self.gradient
        for i, coupling in self.couplings.items():
            left = left - coupling * u[i]
        return left

    def expected(self, u: Sequence[Any]) -> Any:
        """Return where the effect is expected."""
        return self.left(u) * self.inverse


def _rows(x: Variable, n_rows: int) -> list[Variable]:
    """Return the rows of a matrix, each with an axis of length 1 before its own."""
    return list(pt.split(x, [1] * n_rows))


def _steps(lower: Variable, gradient: Variable) -> list[_Step]:
    n = gradient.type.shape[0]
    indices = lower_indices(n)
    entries: Triangle = dict(zip(indices, _rows(lower, len(indices)), strict=True))
    gradients = _rows(gradient, n)
    steps = []
    for k in range(n):
        # Not below 1 but by rounding, which the elimination of huge numbers may do.
        root = pt.reciprocal(pt.sqrt(pt.maximum(entries[k, k], 1.0)))
        couplings = {i: entries[i, k] for i in range(k + 1, n)}
        steps.append(_Step(entries[k, k], couplings, gradients[k], root))
        for i, coupling in couplings.items():
            ratio = coupling * steps[k].inverse
            gradients[i] = gradients[i] - ratio * gradients[k]
            for j in range(k + 1, i + 1):
                entries[i, j] = entries[i, j] - ratio * couplings[j]
    return steps


def _forward(lower: Variable, gradient: Variable, z: Variable) -> list[Variable]:
    steps = _steps(lower, gradient)
    u: list[Any] = [None] * len(steps)
    for k, z_k in reversed([*enumerate(_rows(z, len(steps)))]):
        u[k] = steps[k].expected(u) + z_k * steps[k].root
    pivots = [pt.maximum(step.diagonal, 1.0) for step in steps]
    return [pt.concatenate(u), pt.concatenate(pivots)]


def _pullback(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Variable]:
    lower, gradient, z = inputs
    steps = _steps(lower, gradient)
    n = len(steps)
    d_u, d_pivots = (_rows(x + pt.zeros_like(z), n) for x in gradients)
    u, zs = _rows(outputs[0], n), _rows(z, n)
    d_g: list[Any] = [0.0] * n
    d_z, d_m = [], dict.fromkeys(lower_indices(n), 0.0)
    for k, step in enumerate(steps):
        weight = d_u[k] * step.inverse
        d_g[k] = weight
        d_z.append(d_u[k] * step.root)
        # u_k = left / d + z / sqrt(d)
        d_pivots[k] = d_pivots[k] - weight * (u[k] - 0.5 * zs[k] * step.root)
        for i, coupling in step.couplings.items():
            d_m[i, k] = -weight * u[i]
            d_u[i] = d_u[i] - weight * coupling
    for k in reversed(range(n)):
        d_m[k, k] = d_m[k, k] + d_pivots[k]
        _back(k, steps[k], d_g, d_m)
    return [
        pt.concatenate([d_m[place] for place in lower_indices(n)]),
        pt.concatenate(d_g),
        pt.concatenate(d_z),
    ]


def _back(k: int, step: _Step, d_g: list[Any], d_m: Triangle) -> None:
    """Put the derivatives by what an effect was, when it was eliminate, in place of those by what was left."""
    d_inverse: Any = 0.0
    d_own: Any = 0.0
    for i, coupling in step.couplings.items():
        by_gradient = row = d_g[i] * step.gradient
        for j, other in step.couplings.items():
            d_left = d_m[max(i, j), min(i, j)]
            row = row + (d_left + d_left if i == j else d_left) * other
        # Each product of two couplings is in the rows of both.
        d_inverse = d_inverse - 0.5 * coupling * (row + by_gradient)
        d_m[i, k] = d_m[i, k] - step.inverse * row
        d_own = d_own + d_g[i] * coupling
    if step.couplings:
        d_g[k] = d_g[k] - step.inverse * d_own
    d_pivot = d_m[k, k] - pt.sqr(step.inverse) * d_inverse
    d_m[k, k] = pt.switch(step.diagonal >= 1.0, d_pivot, 0.0)
