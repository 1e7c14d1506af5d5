r"""Elimination of the effects of a block, one after the other, from the information ``I`` and the gradient ``w`` of their site.

Eliminating effect ``k`` with prior standard deviation ``s_k`` updates the site of the later effects:

    ratio = s_k^2 / (1 + s_k^2 I_kk)
    I_ij <- I_ij - ratio I_ki I_kj,   w_i <- w_i - ratio I_ki w_k      for i, j > k

The pullback runs backwards. With the gradients ``I'_ij`` and ``w'_i`` of the updated site, and the gradient ``R`` of the ratio,

    R     = -sum_i w'_i I_ki w_k - sum_ij I'_ij I_ki I_kj
    I'_ki = -w'_i ratio w_k - sum_j I'_ij ratio I_kj,    w'_k = -sum_i w'_i ratio I_ki
    I'_kk = -R ratio^2,                                  s'_k = 2 s_k R / (1 + s_k^2 I_kk)^2

Sums over ``ij`` have ``i <= j``. Each term has derivatives with respect to both of its factors. In the code, ``d_x`` is the derivative with respect to ``x``.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.effects import Effect
from pymc_fastlogp.reparametrization.site_node import Forward, Pullback, as_node
from pymc_fastlogp.reparametrization.sites import gradient_name, information_name

Triangle = dict[tuple[int, int], Any]


class Elimination:
    """Conditional sites of the effects of a block, each given the effects after it.

    Parameters
    ----------
    effects : sequence of Effect
        Effects in the order of elimination.
    site : mapping of str to Variable
        Arrays of their site, by name.
    """

    def __init__(self, effects: Sequence[Effect], site: Mapping[str, Variable]):
        names = [effect.name for effect in effects]
        upper = {
            (i, j): site[information_name(other, one)]
            for i, one in enumerate(names)
            for j, other in enumerate(names[i:], start=i)
        }
        w = []
        for i, effect in enumerate(effects):
            at_zero = site[gradient_name(effect.name)]
            parts = [
                upper[min(i, j), max(i, j)] * other.mean
                for j, other in enumerate(effects)
                if other.terms
            ]
            w.append(at_zero - sum(parts) if parts else at_zero)
        self._gradients, self._upper = eliminate([effect.scale for effect in effects], w, upper)

    def information(self, k: int) -> Variable:
        """Return the information about effect k, given the later effects."""
        return self._upper[k, k]

    def gradient(self, k: int, later: Sequence[Effect]) -> Variable:
        """Return the gradient at the mean of effect k, given the later effects."""
        gradient = self._gradients[k]
        for j, other in enumerate(later, start=k + 1):
            gradient = gradient - self._upper[k, j] * other.deviation
        return gradient


class _Step(NamedTuple):
    """State of one effect at its elimination: row of the information, clipped diagonal entry, gradient and scale."""

    row: list[Any]
    diagonal: Any
    gradient: Any
    scale: Any

    @property
    def inverse(self) -> Any:
        return pt.reciprocal(1.0 + pt.sqr(self.scale) * self.diagonal)


def eliminate(
    scales: Sequence[Any], gradients: Sequence[Any], information: Triangle
) -> tuple[list[Any], Triangle]:
    """Return gradients and information of each effect after the effects before it are eliminated.

    Parameters
    ----------
    scales, gradients : sequence of Variable
        Scales and gradients of K effects.
    information : mapping of (int, int) to Variable
        Upper triangle of the information.

    Returns
    -------
    gradients : list of Variable
    information : mapping of (int, int) to Variable
    """
    n = len(scales)
    if n == 1:
        return [*gradients], {**information}
    forward, pullback = _functions(n)
    arrays = [information[place] for place in _upper(n)]
    # The last effect is not eliminated, so its scale is not an input.
    outputs = as_node(forward, pullback, *scales[:-1], *gradients, *arrays)
    later = [place for place in _upper(n) if place[0] > 0]
    return [gradients[0], *outputs[: n - 1]], {
        **information,
        **dict(zip(later, outputs[n - 1 :], strict=True)),
    }


def _upper(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i, n)]


@cache
def _functions(n: int) -> tuple[Forward, Pullback]:
    """Return forward and pullback for ``n`` effects, cached so that equal calls share one Op."""

    def forward(*inputs: Any) -> list[Variable]:
        steps = _steps(n, inputs)
        rows = [[step.diagonal, *step.row[1:]] for step in steps[1:]]
        return [*(step.gradient for step in steps[1:]), *(x for row in rows for x in row)]

    def pullback(inputs: Any, outputs: Any, gradients: Any) -> list[Variable]:
        later = [place for place in _upper(n) if place[0] > 0]
        d_w = dict(enumerate(gradients[: n - 1], start=1)) | {0: 0.0}
        d_information = dict(zip(later, gradients[n - 1 :], strict=True))
        steps = _steps(n, inputs)
        last = n - 1, n - 1
        d_information[last] = pt.switch(steps[-1].row[0] >= 0.0, d_information[last], 0.0)
        d_scales = [
            _pull_back_step(k, n, steps, d_w, d_information) for k in reversed(range(n - 1))
        ]
        return [*reversed(d_scales), *(d_w[k] for k in range(n))]

    return forward, pullback


def _steps(n: int, inputs: Sequence[Any]) -> list[_Step]:
    scales, w = [*inputs[: n - 1], None], [*inputs[n - 1 : 2 * n - 1]]
    information = dict(zip(_upper(n), inputs[2 * n - 1 :], strict=True))
    steps = []
    for k, scale in enumerate(scales):
        row = [information[k, j] for j in range(k, n)]
        # Exact arithmetic keeps the diagonal nonnegative. Rounding may not if the information is huge.
        steps.append(_Step(row, row[0] if k == 0 else pt.maximum(row[0], 0.0), w[k], scale))
        if scale is None:
            break
        ratio = pt.sqr(scale) * steps[k].inverse
        for i in range(k + 1, n):
            weight = ratio * row[i - k]
            w[i] = w[i] - weight * w[k]
            for j in range(i, n):
                information[i, j] = information[i, j] - weight * row[j - k]
    return steps


def _pull_back_step(
    k: int, n: int, steps: list[_Step], d_w: dict[int, Any], d_information: Triangle
) -> Any:
    """Return the derivative with respect to the scale of an effect, and update the derivatives with respect to gradients and information in place."""
    step = steps[k]
    ratio = pt.sqr(step.scale) * step.inverse
    d_row, d_ratio = [0.0] * n, 0.0
    for i in range(k + 1, n):
        coupling = step.row[i - k]
        d_ratio = d_ratio - d_w[i] * coupling * step.gradient
        d_row[i] = d_row[i] - d_w[i] * ratio * step.gradient
        d_w[k] = d_w[k] - d_w[i] * ratio * coupling
        for j in range(i, n):
            other = step.row[j - k]
            d_ratio = d_ratio - d_information[i, j] * coupling * other
            d_row[i] = d_row[i] - d_information[i, j] * ratio * other
            d_row[j] = d_row[j] - d_information[i, j] * ratio * coupling
    if k > 0:  # the first row holds constants of the site
        for i in range(k + 1, n):
            d_information[k, i] = d_information[k, i] + d_row[i]
        d_diagonal = d_information[k, k] - d_ratio * pt.sqr(ratio)
        d_information[k, k] = pt.switch(step.row[0] >= 0.0, d_diagonal, 0.0)
    return 2.0 * step.scale * d_ratio * pt.sqr(step.inverse)
