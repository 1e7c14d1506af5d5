r"""Effects that are placed well as they are written: centred, and each known so well by its rows that a site would be all there is to know.

With a Gaussian likelihood ``y ~ Normal(X a[g], s)``, the rows of a group say of its effects what least squares says: ``a_g`` with covariance ``V_g = s^2 (X_g' X_g)^-1``. The variance
of effects between groups is about ``T = var(a) - mean(V)``. Given mean and scale, the prior takes the part ``V / (V + T)`` of the variance of an effect; where that is a few percent for
all, ``z`` of a site is the effect in other units, and the model as written takes less time to compile. No random numbers, no pilot: some products of data.

Nothing depends on what is found here but speed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

if TYPE_CHECKING:
    import pymc as pm

Array = NDArray[np.float64]

# Groups: the scale of fewer may be near zero all the same.
LEAST_GROUPS = 20
# T in units of V.
LEAST_RATIO = 20.0


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


def are_known_well(model: "pm.Model", names: Sequence[str]) -> bool:
    """Whether effects are written centred, and known so well by the rows of a Gaussian likelihood that they may stay so.

    Parameters
    ----------
    model : pymc.Model
        With data that are constants.
    names : sequence of str
        Of the effects of one group, which are all that the model has.
    """
    effects = [model[name] for name in names]
    if not all(map(_is_centred, effects)) or effects[0].type.shape[0] < LEAST_GROUPS:
        return False
    rows = _rows_of(model, effects)
    return rows is not None and bool(_least_ratio(rows, effects[0].type.shape[0]) >= LEAST_RATIO)


def _is_centred(x: Variable) -> bool:
    """Whether an effect is a vector whose mean and scale are one number each, at least one of which is random."""
    if not isinstance(x.owner.op, NormalRV) or x.type.ndim != 1 or x.type.shape[0] is None:
        return False
    parameters = x.owner.op.dist_params(x.owner)
    is_one_number = all(all(y.type.broadcastable) for y in parameters)
    return is_one_number and not all(isinstance(y, Constant) for y in parameters)


def _rows_of(model: "pm.Model", effects: Sequence[Any]) -> _Rows | None:
    """Return the likelihood, None where it is another, or depends on more than the effects."""
    if len(model.observed_RVs) != 1 or model.potentials:
        return None
    [observed] = model.observed_RVs
    response = model.rvs_to_values[observed]
    if not isinstance(observed.owner.op, NormalRV) or not isinstance(response, Constant):
        return None
    mean, deviation = observed.owner.op.dist_params(observed.owner)
    free = {*model.free_RVs}
    read = free & {*ancestors([mean], blockers=free)}
    has_one_deviation = all(deviation.type.broadcastable) and deviation not in effects
    if read != {*effects} or not has_one_deviation or mean.type.ndim != 1:
        return None
    if any(x in effects for x in ancestors([deviation])) or observed.type.ndim != 1:
        return None
    return _linear_in(mean, effects, np.asarray(response.data, dtype=np.float64))


def _linear_in(mean: Variable, effects: Sequence[Any], response: Array) -> _Rows | None:
    """Return the rows of a mean that is linear in the effects of one group each, None if it is not."""
    n, shape = len(effects), (len(effects), effects[0].type.shape[0])
    inputs = [x.type() for x in effects]
    graph = clone_replace(mean, dict(zip(effects, inputs, strict=True)))
    evaluated = pytensor.function(inputs, graph, mode=Mode("py", None))
    at_zero = evaluated(*np.zeros(shape))
    if at_zero.shape != response.shape:
        return None
    units = np.eye(n)[:, :, None] * np.ones(shape[1])
    covariates = np.array([evaluated(*unit) - at_zero for unit in units])
    numbered = evaluated(*np.broadcast_to(np.arange(1.0, shape[1] + 1.0), shape)) - at_zero
    with np.errstate(all="ignore"):
        group = np.rint(numbered / covariates.sum(0)) - 1
    if not ((group >= 0) & (group < shape[1])).all():
        return None
    rows = _Rows(response - at_zero, covariates, group.astype(np.int64))
    anywhere = np.random.default_rng(0).normal(size=shape)
    expected = at_zero + (covariates * anywhere[:, rows.group]).sum(0)
    is_linear = np.allclose(evaluated(*anywhere), expected, rtol=1e-6, atol=1e-9)
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
