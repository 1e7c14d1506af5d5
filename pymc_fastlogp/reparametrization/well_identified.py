r"""Effects that are to be sampled centered: each known so well by its rows that a site would be all there is to know.

With a Gaussian likelihood ``y ~ Normal(X a[g], s)``, the rows of a group say of its effects what least squares says: ``a_g`` with covariance ``V_g = s^2 (X_g' X_g)^-1``. The variance
of effects between groups is about ``T = var(a) - mean(V)``. Given mean and scale, the prior takes the part ``V / (V + T)`` of the variance of an effect; where that is a few percent for
all, ``z`` of a site is the effect in other units, and the model with effects that are centered takes less time to compile. No random numbers, no pilot: some products of data.

Nothing depends on what is found here but speed.
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
from pymc_fastlogp.reparametrization.sites import Site

if TYPE_CHECKING:
    import pymc as pm

Array = NDArray[np.float64]

WRITTEN = {"centered", "non-centered"}
# Groups: the scale of fewer may be near zero all the same.
MIN_GROUPS = 20
# T in units of V.
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
    """Return a model with all effects centered, None unless the rows of a Gaussian likelihood know each of them well.

    Parameters
    ----------
    model : pymc.Model
        With data that are constants.
    found : ModelEffects
        Its effects.
    """
    if len(found.blocks) != 1 or not _has_gaussian_rows(model):
        return None
    [(names, flat)] = found.blocks.items()
    shape = flat.gradient.shape
    if len(shape) != 2 or shape[1] < MIN_GROUPS or not {*found.kinds.values()} <= WRITTEN:
        return None
    sited = with_sites(model, {names: Site.infinite(shape[0], shape[1:])})
    if not all(map(_is_one_number, (*sited.means.values(), *sited.factors.values()))):
        return None
    rows = _rows_of(sited.model, names, shape)
    is_known = rows is not None and _least_ratio(rows, shape[1]) >= MIN_RATIO
    return sited.model if is_known else None


def _is_one_number(x: Variable) -> bool:
    return all(x.type.broadcastable)


def _has_gaussian_rows(model: "pm.Model") -> bool:
    """Return whether all that a model has besides priors is a vector of Gaussian data with one deviation."""
    if len(model.observed_RVs) != 1 or model.potentials:
        return False
    [observed] = model.observed_RVs
    response = model.rvs_to_values[observed]
    if not isinstance(observed.owner.op, NormalRV) or not isinstance(response, Constant):
        return False
    mean, deviation = observed.owner.op.dist_params(observed.owner)
    return mean.type.ndim == observed.type.ndim == 1 and _is_one_number(deviation)


def _rows_of(model: "pm.Model", names: Sequence[str], shape: tuple[int, ...]) -> _Rows | None:
    """Return the rows, None where their mean is not linear in the effects of one group each, or depends on more."""
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

    def anywhere(*of_effects: Array) -> Array:
        return function(*of_effects, *(rng.normal(size=x.type.shape) for x in others))

    response = np.asarray(model.rvs_to_values[observed].data, dtype=np.float64)
    return _linear_in(anywhere, shape, response)


def _linear_in(mean: Callable[..., Array], shape: tuple[int, ...], response: Array) -> _Rows | None:
    """Return the rows of a mean that is linear in effects of some shape, of which each row has those of one group, None if it is not."""
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
    """Return T in units of V of the effect that is known least; nan where some are not known at all."""

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
