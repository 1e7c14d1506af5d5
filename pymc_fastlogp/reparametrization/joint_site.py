r"""Standardized correlated effects of a group from their residuals ``z``, by a Cholesky factorization of M without square roots.

    d_k = max(M_kk, 1),   g_i <- g_i - M_ik g_k / d_k,   M_ij <- M_ij - M_ik M_jk / d_k      for i >= j > k
    u_k = (g_k - sum_{i > k} M_ik u_i) / d_k + z_k / sqrt(d_k),   from the last k to the first

All operations are unrolled over vectors of groups, which fuse into a few loops. The pullback runs backwards.
In the code, ``d_x`` is the derivative with respect to ``x``.
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
        g, and the residuals.
    """
    return as_node(_forward, _pullback, lower, gradient, z)


def residual(lower: Variable, gradient: Variable, u: Variable) -> Variable:
    """Return the residuals z, shape (K, J), from u: the inverse of :func:`standardized_effects`."""
    steps = _steps(lower, gradient)
    us = _rows(u, len(steps))
    return pt.concatenate(
        [(u_k - step.conditional_mean(us)) / step.root for u_k, step in zip(us, steps, strict=True)]
    )


def lower_indices(n: int) -> list[tuple[int, int]]:
    """Return the indices of a lower triangle, row by row."""
    return [(i, j) for i in range(n) for j in range(i + 1)]


class _Step(NamedTuple):
    """State of one effect at its elimination: M_kk, the entries M_ik for i > k, g_k, and 1 / sqrt(d_k)."""

    diagonal: Any
    couplings: dict[int, Any]
    gradient: Any
    root: Any

    @property
    def inverse(self) -> Any:
        """Inverse of the pivot, from the root, so that each pivot costs one division."""
        return pt.sqr(self.root)

    def conditional_mean(self, u: Sequence[Any]) -> Any:
        """Return the mean of the effect given the later effects."""
        gradient = self.gradient
        for i, coupling in self.couplings.items():
            gradient = gradient - coupling * u[i]
        return gradient * self.inverse


def _rows(x: Variable, n_rows: int) -> list[Variable]:
    """Return the rows of a matrix, each of shape (1, n)."""
    return list(pt.split(x, [1] * n_rows))


def _steps(lower: Variable, gradient: Variable) -> list[_Step]:
    n = gradient.type.shape[0]
    indices = lower_indices(n)
    entries: Triangle = dict(zip(indices, _rows(lower, len(indices)), strict=True))
    gradients = _rows(gradient, n)
    steps = []
    for k in range(n):
        # Exact arithmetic keeps pivots at 1 or more. Rounding may not if entries are huge.
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
        u[k] = steps[k].conditional_mean(u) + z_k * steps[k].root
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
        # u_k = (g_k - sum M_ik u_i) / d_k + z_k / sqrt(d_k)
        d_pivots[k] = d_pivots[k] - weight * (u[k] - 0.5 * zs[k] * step.root)
        for i, coupling in step.couplings.items():
            d_m[i, k] = -weight * u[i]
            d_u[i] = d_u[i] - weight * coupling
    for k in reversed(range(n)):
        d_m[k, k] = d_m[k, k] + d_pivots[k]
        _pull_back_step(k, steps[k], d_g, d_m)
    return [
        pt.concatenate([d_m[place] for place in lower_indices(n)]),
        pt.concatenate(d_g),
        pt.concatenate(d_z),
    ]


def _pull_back_step(k: int, step: _Step, d_g: list[Any], d_m: Triangle) -> None:
    """Turn derivatives with respect to the state after the elimination of effect k into those before it, in place."""
    d_inverse: Any = 0.0
    d_sum: Any = 0.0
    for i, coupling in step.couplings.items():
        by_gradient = row = d_g[i] * step.gradient
        for j, other in step.couplings.items():
            d_entry = d_m[max(i, j), min(i, j)]
            row = row + (d_entry + d_entry if i == j else d_entry) * other
        # The product of two couplings occurs in both rows, hence the factor 1/2.
        d_inverse = d_inverse - 0.5 * coupling * (row + by_gradient)
        d_m[i, k] = d_m[i, k] - step.inverse * row
        d_sum = d_sum + d_g[i] * coupling
    if step.couplings:
        d_g[k] = d_g[k] - step.inverse * d_sum
    d_pivot = d_m[k, k] - pt.sqr(step.inverse) * d_inverse
    d_m[k, k] = pt.switch(step.diagonal >= 1.0, d_pivot, 0.0)
