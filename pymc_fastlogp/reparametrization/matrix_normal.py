r"""Correlated effects, partially centered by a joint site: random variables and their change of variables.

With the site of a group, information ``I`` and gradient ``h``, the standardized effects ``u`` have

    precision  M = 1 + factor.T @ I @ factor = R @ R.T,   gradient  g = factor.T @ (h - I @ mean)  at  u = 0
    u = R^-T (R^-1 g + z),   log |du/dz| = -sum(log(diag(R)))

The eigenvalues of M, and the squared diagonal of R, are at least 1 for any factor.

Centered, the limit of infinite information for effects that the model writes non-centered, with a lower triangular factor:

    z = factor^-1 (a - mean),   log |dz/da| = -sum(log |diag(factor)|)

The variable of the model is ``z``, and the sampler moves in ``a``. A rewrite simplifies ``mean + factor @ z`` in the likelihood to ``a``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import normal
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pymc_dispatch import logprob_of, support_point_of
from pymc_fastlogp.reparametrization.correlated import Correlated
from pymc_fastlogp.reparametrization.joint_site import lower_indices, residual, standardized_effects
from pymc_fastlogp.reparametrization.partially_centered import (
    SiteRV,
    cached_residual,
    value_at_zero_residual,
    with_transform,
    zeros_of,
)


class CorrelatedNormal(SiteRV):
    """Standardized effects, with the lower triangle of M and g for :class:`MatrixTransform`."""

    name = "normal"
    group_axis = 0
    extended_signature = "[rng],[size],(),(),(m,j),(k,j)->[rng],()"
    _print_name = ("Normal", "\\operatorname{Normal}")

    @classmethod
    def draws(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which do not depend on the site."""
        return normal(*parameters[:2], size=size, rng=rng, return_next_rng=True)

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the standardized effects, effects first."""
        return rv.T if cls.group_axis == 0 else rv


class CorrelatedNormalColumns(CorrelatedNormal):
    """Standardized effects with groups on the second axis."""

    group_axis = 1


class CenteredCorrelatedNormal(CorrelatedNormal):
    """Standardized effects, with mean and factor of the effects for :class:`CenteredMatrixTransform`."""

    extended_signature = "[rng],[size],(),(),(j,k),(k,k)->[rng],()"


class PartiallyCenteredMvNormal(SiteRV):
    """``MvNormal(mu, cov)`` with the factor, the lower triangle of M, and g for :class:`MatrixTransform`."""

    name = "multivariate_normal"
    extended_signature = "[rng],[size],(n),(n,n),(n,n),(m,j),(n,j)->[rng],(n)"
    _print_name = ("MultivariateNormal", "\\operatorname{MultivariateNormal}")

    @classmethod
    def draws(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws, which do not depend on the site."""
        return pm.MvNormal.rv_op(*parameters[:2], size=size, rng=rng, return_next_rng=True)

    @classmethod
    def standardized(cls, rv: TensorVariable) -> TensorVariable:
        """Return the standardized effects, effects first."""
        mu, _, factor = rv.owner.inputs[-5:-2]
        return pt.linalg.solve_triangular(factor, (rv - mu).T, lower=True)


@logprob_of.register(CorrelatedNormal)
def _logprob(
    op: CorrelatedNormal,
    values: Sequence[Variable],
    rng: Any,
    size: Any,
    *inputs: Any,
    **kwargs: Any,
) -> TensorVariable:
    return pm.logp(pm.Normal.dist(*inputs[:2]), values[0], **kwargs)


@logprob_of.register(PartiallyCenteredMvNormal)
def _logprob_of_mvnormal(
    op: PartiallyCenteredMvNormal,
    values: Sequence[Variable],
    rng: Any,
    size: Any,
    *inputs: Any,
    **kwargs: Any,
) -> TensorVariable:
    return logprob_of(pm.MvNormal.rv_op, values, rng, size, *inputs[:2], **kwargs)


class MatrixTransform(Transform):
    """Change of variables of correlated effects.

    Parameters
    ----------
    group_axis : int
        Axis of the groups in the variable.
    is_centered : bool
        True if the variable holds the effects, False if it holds the standardized effects.
    """

    name = "site"

    def __init__(self, group_axis: int, is_centered: bool):
        self.group_axis, self.is_centered = group_axis, is_centered
        self.ndim_supp = 1 if is_centered else 0

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the residual ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        u = self._effects_first(value)
        lower, gradient = inputs[-2:]
        if self.is_centered:
            mu, _, factor = inputs[-5:-2]
            u = pt.linalg.solve_triangular(factor, (value - mu).T, lower=True)
        return self._effects_first(residual(lower, gradient, u))

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        u, _ = self._node(value, inputs)
        if not self.is_centered:
            return self._effects_first(u)
        mu, _, factor = inputs[-5:-2]
        return mu + (factor @ u).T

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of each entry, or of each group if the variable is centered."""
        logs = -0.5 * pt.log(self._node(value, inputs)[1])
        if not self.is_centered:
            return self._effects_first(logs)
        return logs.sum(0) + pt.log(pt.abs(pt.diagonal(inputs[-3]))).sum()

    def _node(self, value: Variable, inputs: Sequence[Variable]) -> list[Variable]:
        precision, gradient = inputs[-2:]
        return standardized_effects(precision, gradient, self._effects_first(value))

    def _effects_first(self, x: TensorVariable) -> TensorVariable:
        """Move the axis of effects to the front, or back."""
        return x.T if self.group_axis == 0 else x


class CenteredMatrixTransform(Transform):
    """Change of variables of a :class:`CenteredCorrelatedNormal`.

    Parameters
    ----------
    group_axis : int
        Axis of the groups in the variable.
    """

    name = "centered"
    ndim_supp = 0

    def __init__(self, group_axis: int):
        self.group_axis = group_axis

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the effects."""
        mean, factor = inputs[-2:]
        return self._effects_first(mean.T + factor @ self._effects_first(value))

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        mean, factor = inputs[-2:]
        deviation = self._effects_first(value) - mean.T
        return self._effects_first(pt.linalg.solve_triangular(factor, deviation, lower=True))

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the log Jacobian of each entry."""
        logs = -pt.log(pt.abs(pt.diagonal(inputs[-1])))
        return self._effects_first(pt.zeros_like(self._effects_first(value)) + logs[:, None])

    def _effects_first(self, x: TensorVariable) -> TensorVariable:
        """Move the axis of effects to the front, or back."""
        return x.T if self.group_axis == 0 else x


@support_point_of.register(CenteredCorrelatedNormal)
def _support_point_of_centered(
    op: CenteredCorrelatedNormal, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    return zeros_of(rv)


@support_point_of.register(CorrelatedNormal)
@support_point_of.register(PartiallyCenteredMvNormal)
def _support_point(
    op: Any, rv: TensorVariable, rng: Any, size: Any, *inputs: Variable
) -> TensorVariable:
    group_axis = getattr(op, "group_axis", 0)
    transform = MatrixTransform(group_axis, isinstance(op, PartiallyCenteredMvNormal))
    return value_at_zero_residual(transform, zeros_of(rv), inputs)


def precision_and_gradient(
    effects: Correlated, information: Variable, gradient: Variable
) -> tuple[Variable, Variable]:
    """Return the lower triangle of M, and g.

    Parameters
    ----------
    effects : Correlated
        The effects.
    information, gradient : Variable, shapes (K, K, J) and (K, J)
        Information and gradient of the site.
    """
    factor, k = effects.factor, effects.n_effects
    indices = np.array(lower_indices(k))
    # M_ab = [a = b] + sum over i >= j of I_ij (L_ia L_jb + L_ja L_ib), with the second product only if i > j.
    (a, b), (i, j) = indices.T[:, :, None], indices.T[:, None, :]
    products = factor[i, a] * factor[j, b] + (i > j) * factor[j, a] * factor[i, b]
    lower = information[indices[:, 0], indices[:, 1]]
    own = (indices[:, :1] == indices[:, 1:]).astype("float64")
    mean = effects.mean.T + pt.zeros_like(gradient)
    slope = gradient - (information * mean[None]).sum(1)
    return own + products @ lower, factor.T @ slope


def partially_centered_correlated(effects: Correlated, inputs: Sequence[Variable]) -> Variable:
    """Return the free variable, partially centered by M and g."""
    op: type[SiteRV] = (CorrelatedNormal, CorrelatedNormalColumns)[effects.group_axis]
    if effects.is_centered:
        op, inputs = PartiallyCenteredMvNormal, [effects.factor, *inputs]
    transform = MatrixTransform(effects.group_axis, effects.is_centered)
    return with_transform(effects, op, transform, inputs)


def centered_correlated(effects: Correlated) -> Variable:
    """Return the free variable of non-centered effects, with a transform that samples the effects centered."""
    transform = CenteredMatrixTransform(effects.group_axis)
    inputs = [effects.mean, effects.factor]
    return with_transform(effects, CenteredCorrelatedNormal, transform, inputs)
