r"""Standardized effects of a group from what remains to be sampled, where effects are correlated: M by Cholesky's method, without square roots.

    d_k = max(M_kk, 1),   g_i <- g_i - M_ik g_k / d_k,   M_ij <- M_ij - M_ik M_jk / d_k      for i >= j > k
    u_k = (g_k - sum_{i > k} M_ik u_i) / d_k + z_k / sqrt(d_k),   from the last to the first

All is spelled out in vectors over groups, of which PyTensor makes a few loops, and so are the derivatives, which go the same way back: a derivative
by ``x`` is written ``of_x`` below.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.site_node import as_node

Triangle = dict[tuple[int, int], Any]


def placed_together(lower: Variable, gradient: Variable, z: Variable) -> list[Variable]:
    """Return standardized effects and the pivots, both of shape (K, J).

    Parameters
    ----------
    lower : Variable, shape (K (K + 1) / 2, J)
        The lower triangle of M, row by row.
    gradient, z : Variable, shape (K, J)
        g, and what remains.
    """
    return as_node(_forward, _pullback, lower, gradient, z)


def remaining(lower: Variable, gradient: Variable, u: Variable) -> Variable:
    """Return z, (K, J), from u: the inverse of :func:`placed_together`."""
    steps = _steps(lower, gradient)
    us = _rows(u, len(steps))
    return pt.concatenate(
        [(u_k - step.expected(us)) / step.root for u_k, step in zip(us, steps, strict=True)]
    )


def lower_places(n: int) -> list[tuple[int, int]]:
    """Return the places of a lower triangle, row by row."""
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
    places = lower_places(n)
    entries: Triangle = dict(zip(places, _rows(lower, len(places)), strict=True))
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
    of_u, of_pivots = (_rows(x + pt.zeros_like(z), n) for x in gradients)
    u, zs = _rows(outputs[0], n), _rows(z, n)
    of_g: list[Any] = [0.0] * n
    of_z, of_m = [], dict.fromkeys(lower_places(n), 0.0)
    for k, step in enumerate(steps):
        weight = of_u[k] * step.inverse
        of_g[k] = weight
        of_z.append(of_u[k] * step.root)
        # u_k = left / d + z / sqrt(d)
        of_pivots[k] = of_pivots[k] - weight * (u[k] - 0.5 * zs[k] * step.root)
        for i, coupling in step.couplings.items():
            of_m[i, k] = -weight * u[i]
            of_u[i] = of_u[i] - weight * coupling
    for k in reversed(range(n)):
        of_m[k, k] = of_m[k, k] + of_pivots[k]
        _back(k, steps[k], of_g, of_m)
    return [
        pt.concatenate([of_m[place] for place in lower_places(n)]),
        pt.concatenate(of_g),
        pt.concatenate(of_z),
    ]


def _back(k: int, step: _Step, of_g: list[Any], of_m: Triangle) -> None:
    """Put the derivatives by what an effect was, when it was eliminated, in place of those by what was left."""
    of_inverse: Any = 0.0
    of_own: Any = 0.0
    for i, coupling in step.couplings.items():
        by_gradient = row = of_g[i] * step.gradient
        for j, other in step.couplings.items():
            of_left = of_m[max(i, j), min(i, j)]
            row = row + (of_left + of_left if i == j else of_left) * other
        # Each product of two couplings is in the rows of both.
        of_inverse = of_inverse - 0.5 * coupling * (row + by_gradient)
        of_m[i, k] = of_m[i, k] - step.inverse * row
        of_own = of_own + of_g[i] * coupling
    if step.couplings:
        of_g[k] = of_g[k] - step.inverse * of_own
    of_pivot = of_m[k, k] - pt.sqr(step.inverse) * of_inverse
    of_m[k, k] = pt.switch(step.diagonal >= 1.0, of_pivot, 0.0)
