r"""Variables of correlated effects that know where their data want them: the Ops, and the change of variables.

With the site of a group, information ``I`` and gradient ``h``, the standardized effects ``u`` have

    precision  M = 1 + factor.T @ I @ factor = R @ R.T,   gradient  g = factor.T @ (h - I @ mean)  at  u = 0
    u = R^-T (R^-1 g + z),   log |du/dz| = -sum(log(diag(R)))

The eigenvalues of M are at least 1 whatever the factor is, and so are the squares on the diagonal of R.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pymc.model.fgraph import ModelFreeRV
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
    zeros_of,
)


class CorrelatedNormal(SiteRV):
    """Standardized effects; :class:`MatrixTransform` reads the last two parameters, the lower triangle of M, and g."""

    name = "normal"
    group_axis = 0
    extended_signature = "[rng],[size],(),(),(m,j),(k,j)->[rng],()"
    _print_name = ("Normal", "\\operatorname{Normal}")

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws."""
        return normal(*parameters[:2], size=size, rng=rng, return_next_rng=True)


class CorrelatedNormalColumns(CorrelatedNormal):
    """The same with groups on the second axis."""

    group_axis = 1


class PartiallyCenteredMvNormal(SiteRV):
    """``MvNormal(mu, cov)``; :class:`MatrixTransform` reads the last three parameters, the factor, the lower triangle of M, and g."""

    name = "multivariate_normal"
    extended_signature = "[rng],[size],(n),(n,n),(n,n),(m,j),(n,j)->[rng],(n)"
    _print_name = ("MultivariateNormal", "\\operatorname{MultivariateNormal}")

    @classmethod
    def drawn(cls, *parameters: Variable, size: Any, rng: Variable) -> Sequence[Variable]:
        """Return draws."""
        return pm.MvNormal.rv_op(*parameters[:2], size=size, rng=rng, return_next_rng=True)


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
    """The change of variables of correlated effects.

    Parameters
    ----------
    group_axis : int
        Of the variable.
    is_centered : bool
        Whether the variable is the effects, or else the standardized effects.
    """

    name = "site"

    def __init__(self, group_axis: int, is_centered: bool):
        self.group_axis, self.is_centered = group_axis, is_centered
        self.ndim_supp = 1 if is_centered else 0

    def forward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return ``z``."""
        if (z := cached_residual(value)) is not None:
            return z
        u = self._turned(value)
        lower, gradient = inputs[-2:]
        if self.is_centered:
            mu, _, factor = inputs[-5:-2]
            u = pt.linalg.solve_triangular(factor, (value - mu).T, lower=True)
        return self._turned(residual(lower, gradient, u))

    def backward(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return the variable."""
        u, _ = self._node(value, inputs)
        if not self.is_centered:
            return self._turned(u)
        mu, _, factor = inputs[-5:-2]
        return mu + (factor @ u).T

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return its part of each entry, or of each group where the variable is of vectors."""
        logs = -0.5 * pt.log(self._node(value, inputs)[1])
        if not self.is_centered:
            return self._turned(logs)
        return logs.sum(0) + pt.log(pt.abs(pt.diagonal(inputs[-3]))).sum()

    def _node(self, value: Variable, inputs: Sequence[Variable]) -> list[Variable]:
        precision, gradient = inputs[-2:]
        return standardized_effects(precision, gradient, self._turned(value))

    def _turned(self, x: TensorVariable) -> TensorVariable:
        """Return a variable with effects first, or the other way round."""
        return x.T if self.group_axis == 0 else x


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
        The site.
    """
    factor, k = effects.factor, effects.n_effects
    indices = np.array(lower_indices(k))
    # M_ab = [a = b] + sum over i >= j of I_ij (L_ia L_jb + L_ja L_ib), the second one where i > j only.
    (a, b), (i, j) = indices.T[:, :, None], indices.T[:, None, :]
    products = factor[i, a] * factor[j, b] + (i > j) * factor[j, a] * factor[i, b]
    lower = information[indices[:, 0], indices[:, 1]]
    own = (indices[:, :1] == indices[:, 1:]).astype("float64")
    mean = effects.mean.T + pt.zeros_like(gradient)
    slope = gradient - (information * mean[None]).sum(1)
    return own + products @ lower, factor.T @ slope


def partially_centered_correlated(
    effects: Correlated, place: tuple[Variable, Variable], name: str
) -> Variable:
    """Return the free variable with a place for its site, M and g."""
    rv, value = effects.variable.owner.inputs
    rng, size, *parameters = rv.owner.inputs
    op: type[SiteRV] = (CorrelatedNormal, CorrelatedNormalColumns)[effects.group_axis]
    if effects.is_centered:
        op, parameters = PartiallyCenteredMvNormal, [*parameters, effects.factor]
    new = op.rv_op(*parameters, *place, size=size, rng=rng)
    transform = MatrixTransform(effects.group_axis, effects.is_centered)
    return ModelFreeRV(effects.name, effects.dims, transform)(new, value.type(name=name))


def standardised_effects(rv: TensorVariable) -> TensorVariable:
    """Return the standardized effects of a sited variable, effects first."""
    if isinstance(rv.owner.op, PartiallyCenteredMvNormal):
        mu, _, factor = rv.owner.inputs[-5:-2]
        return pt.linalg.solve_triangular(factor, (rv - mu).T, lower=True)
    return rv.T if rv.owner.op.group_axis == 0 else rv
