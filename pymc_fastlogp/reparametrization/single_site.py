r"""Standardized effect from its residual ``z``, for one effect per group.

For a scale ``s``, the gradient ``w`` of the site at the mean of the effect, and the information ``I`` of the site,

    d = 1 + s^2 I,   r = 1 / sqrt(d),   u = s w r^2 + z r,   log |du/dz| = -log(d) / 2

With gradients ``U`` and ``J`` of the two outputs, the derivatives are

    z: U r        w: U s r^2        d: -r^2 (U (u - z r / 2) + J / 2) =: D        s: U w r^2 + 2 s I D        I: s^2 D

In the code, ``d_x`` is the derivative with respect to ``x``.
"""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.site_node import as_node


def standardized_effects(z: Any, scale: Any, gradient: Any, information: Any) -> list[Variable]:
    """Return standardized effects, and the log Jacobian of each.

    Parameters
    ----------
    z : Variable
        Residual.
    scale, gradient : Variable
        Scale of the effect, and gradient of the site at the mean of the effect.
    information : Variable
        Information of the site, of the shape of ``z``.
    """
    return as_node(_forward, _pullback, scale, gradient, z, information)


def residual(u: Any, scale: Any, gradient: Any, information: Any) -> Variable:
    """Return the residual of standardized effects: the inverse of :func:`standardized_effects`."""
    d = 1.0 + pt.sqr(scale) * information
    return (u - scale * gradient / d) * pt.sqrt(d)


def _forward(s: Any, w: Any, z: Any, information: Any) -> list[Variable]:
    d = 1.0 + pt.sqr(s) * information
    r = pt.reciprocal(pt.sqrt(d))
    return [s * w * pt.sqr(r) + z * r, -0.5 * pt.log(d)]


def _pullback(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any]
) -> list[Variable]:
    s, w, z, information = inputs
    d_u, d_log = gradients
    r = pt.reciprocal(pt.sqrt(1.0 + pt.sqr(s) * information))
    weight = d_u * pt.sqr(r)
    d_d = -weight * (outputs[0] - 0.5 * z * r) - 0.5 * pt.sqr(r) * d_log
    return [weight * w + 2.0 * s * information * d_d, weight * s, d_u * r, pt.sqr(s) * d_d]
