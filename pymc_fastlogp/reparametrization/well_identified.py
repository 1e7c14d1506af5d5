r"""Effects that each group identifies so well that they should be sampled centered.

With a Gaussian likelihood ``y ~ Normal(X a[g], s)``, least squares estimates the effects of each group with covariance ``V_g = s^2 (X_g' X_g)^-1``. The variance of
effects between groups is about ``T = var(a) - mean(V)``. Given mean and scale, the prior contributes the fraction ``V / (V + T)`` of the precision of an effect.
If this is small for all effects, the residual ``z`` of a site is the effect in other units. The centered model then samples as well, and its smaller graph compiles faster.

The decision takes a few products of data, without random numbers or a pilot. It only affects speed.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_fastlogp.reparametrization.model_with_sites import ModelEffects, with_sites
from pymc_fastlogp.reparametrization.sites import Array, Site

if TYPE_CHECKING:
    import pymc as pm

WRITTEN = {"centered", "non-centered"}
# Least number of groups. The scale of fewer groups may still be near zero.
MIN_GROUPS = 20
# Least T / V.
MIN_RATIO = 20.0


class _Rows(NamedTuple):
    """A Gaussian likelihood ``response ~ Normal((covariates * a[:, group]).sum(0), s)``.

    Attributes
    ----------
    response : ndarray, shape (N,)
    covariates : ndarray, shape (K, N)
    group : ndarray of int, shape (N,)
    """

    response: Array
    covariates: Array
    group: NDArray[np.int64]


def centered_if_well_identified(model: "pm.Model", found: ModelEffects) -> "pm.Model | None":
    """Return the model with all effects centered, None unless the rows of a Gaussian likelihood identify each of them well.

    Parameters
    ----------
    model : pymc.Model
        Model with constant data.
    found : ModelEffects
        Effects of the model.
    """
    if len(found.blocks) != 1 or not _has_gaussian_rows(model):
        return None
    [(names, flat)] = found.blocks.items()
    shape = flat.gradient.shape
    if len(shape) != 2 or shape[1] < MIN_GROUPS or not {*found.kinds.values()} <= WRITTEN:
        return None
    new = with_sites(model, {names: Site.infinite(shape[0], shape[1:])})
    if not all(map(_is_scalar, (*new.means.values(), *new.factors.values()))):
        return None
    rows = _rows_of(new.model, names, shape)
    is_identified = rows is not None and _least_ratio(rows, shape[1]) >= MIN_RATIO
    return new.model if is_identified else None


def _is_scalar(x: Variable) -> bool:
    return all(x.type.broadcastable)


def _has_gaussian_rows(model: "pm.Model") -> bool:
    """Return whether the only likelihood of a model is a Gaussian vector with a scalar deviation."""
    if len(model.observed_RVs) != 1 or model.potentials:
        return False
    [observed] = model.observed_RVs
    response = model.rvs_to_values[observed]
    if not isinstance(observed.owner.op, NormalRV) or not isinstance(response, Constant):
        return False
    mean, deviation = observed.owner.op.dist_params(observed.owner)
    return mean.type.ndim == observed.type.ndim == 1 and _is_scalar(deviation)


def _rows_of(model: "pm.Model", names: Sequence[str], shape: tuple[int, ...]) -> _Rows | None:
    """Return the rows, None unless the mean of each row depends only and linearly on the effects of one group."""
    [observed] = model.observed_RVs
    mean, deviation = observed.owner.op.dist_params(observed.owner)
    effects = [model[name] for name in names]
    if any(x in effects for x in ancestors([deviation])):
        return None
    values = [model.rvs_to_values[x] for x in effects]
    others = [x for x in model.value_vars if x not in values]
    if any(None in x.type.shape for x in others):
        return None
    function = pytensor.function(
        [*values, *others],
        model.replace_rvs_by_values([mean])[0],
        mode=Mode("py", None),
        on_unused_input="ignore",
    )
    rng = np.random.default_rng(0)

    def mean_at(*effects: Array) -> Array:
        # Random values of all other variables make a dependence on them visible.
        return function(*effects, *(rng.normal(size=x.type.shape) for x in others))

    response = np.asarray(model.rvs_to_values[observed].data, dtype=np.float64)
    return _linear_in(mean_at, shape, response)


def _linear_in(mean: Callable[..., Array], shape: tuple[int, ...], response: Array) -> _Rows | None:
    """Recover covariates and group of each row by evaluating the mean, and check the result at random effects."""
    at_zero = mean(*np.zeros(shape))
    if at_zero.shape != response.shape:
        return None
    units = np.eye(shape[0])[:, :, None] * np.ones(shape[1])
    covariates = np.array([mean(*unit) - at_zero for unit in units])
    numbered = mean(*np.broadcast_to(np.arange(1.0, shape[1] + 1.0), shape)) - at_zero
    with np.errstate(all="ignore"):
        group = np.rint(numbered / covariates.sum(0)) - 1
    if not ((group >= 0) & (group < shape[1])).all():
        return None
    rows = _Rows(response - at_zero, covariates, group.astype(np.int64))
    effects = np.random.default_rng(1).normal(size=shape)
    expected = at_zero + (covariates * effects[:, rows.group]).sum(0)
    is_linear = np.allclose(mean(*effects), expected, rtol=1e-6, atol=1e-9)
    return rows if is_linear and np.isfinite(response).all() else None


def _least_ratio(rows: _Rows, n_groups: int) -> float:
    """Return the least T / V of all effects, NaN if the rows of a group do not identify its effects."""

    def summed(values: Array) -> Array:
        return np.bincount(rows.group, values, minlength=n_groups)

    x, n_effects = rows.covariates, len(rows.covariates)
    n_left = len(rows.response) - n_groups * n_effects
    products = np.array([[summed(one * other) for other in x] for one in x])
    gram = np.moveaxis(products, -1, 0)
    if n_left <= 0 or (np.linalg.matrix_rank(gram) < n_effects).any():
        return float("nan")
    right = np.array([summed(one * rows.response) for one in x]).T
    estimates = np.linalg.solve(gram, right[:, :, None])[:, :, 0]
    residuals = rows.response - (x * estimates[rows.group].T).sum(0)
    variance = residuals @ residuals / n_left
    uncertain = variance * np.diagonal(np.linalg.inv(gram), axis1=1, axis2=2)
    between = estimates.var(axis=0, ddof=1) - uncertain.mean(axis=0)
    with np.errstate(all="ignore"):
        return float(np.min(between / uncertain))
