"""`reparametrize` accepts models as users write them, and returns the same model in other coordinates."""

from collections.abc import Callable

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_fastlogp
from tests.reparametrization import as_written
from tests.reparametrization.test_exact import function

Array = np.ndarray
OPTIONS = {
    "draws": 1000,
    "tune": 1000,
    "chains": 4,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "quiet": True,
}
# Of differences of posterior means, in their Monte Carlo errors: the largest of some hundreds.
MOST_ERRORS = 5.0
CONVERGED = 1.02


def jacobian(f: Callable[[Array], Array], x: Array, step: float = 1e-5) -> Array:
    """Return the derivatives of ``f``, by differences of fourth order."""
    columns = []
    for move in step * np.eye(len(x)):
        near, far = f(x + move) - f(x - move), f(x + 2 * move) - f(x - 2 * move)
        columns.append((8 * near - far) / (12 * step))
    return np.array(columns).T


def values_as_written(model: pm.Model, new: pm.Model) -> list:
    """Return what the value variables of a model are, in the graph of another with the same variables."""
    transforms = [model.rvs_to_transforms[model[x.name]] for x in new.free_RVs]
    return [
        x if transform is None else transform.forward(x, *x.owner.inputs)
        for x, transform in zip(new.free_RVs, transforms, strict=True)
    ]


def moments_of(draws: xr.DataArray) -> tuple[Array, Array, float]:
    """Return means with their Monte Carlo errors, and the largest R-hat; entries that are the same in all draws have neither."""
    data = draws.to_dataset(name="x")
    error, rhat = (np.asarray(x["x"]) for x in (az.mcse(data, method="mean"), az.rhat(data)))
    mean = draws.mean(("chain", "draw")).to_numpy()
    return mean, np.nan_to_num(error, nan=0.0) + 1e-9, float(np.max(np.nan_to_num(rhat, nan=1.0)))


@pytest.mark.parametrize("make", as_written.ALL, ids=lambda x: x.__name__)
def test_reparametrized_model_keeps_names_and_dims(make):
    model = make()
    new = pymc_fastlogp.reparametrize(model)
    assert [x.name for x in new.free_RVs] == [x.name for x in model.free_RVs]
    for which in ("observed_RVs", "deterministics", "data_vars", "potentials"):
        names = [x.name for x in getattr(model, which)]
        assert sorted(x.name for x in getattr(new, which)) == sorted(names)
    assert new.named_vars_to_dims == model.named_vars_to_dims
    assert new.coords == model.coords
    of_values = function(new, values_as_written(model, new))
    logp, density = function(new, [new.logp()]), function(model, [model.logp()])
    shapes = [x.shape for x in new.initial_point().values()]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])

    def parts(x: Array) -> list[Array]:
        pieces = zip(np.split(x, ends[:-1]), shapes, strict=True)
        return [part.reshape(shape) for part, shape in pieces]

    def flat(x: Array) -> Array:
        return np.concatenate([np.ravel(part) for part in of_values(*parts(x))])

    x = 0.7 * np.random.default_rng(2).normal(size=ends[-1])
    log_jacobian = np.linalg.slogdet(jacobian(flat, x))[1]
    expected = density(*of_values(*parts(x)))[0] + log_jacobian
    np.testing.assert_allclose(logp(*parts(x))[0], expected, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("make", as_written.ALL, ids=lambda x: x.__name__)
def test_draws_are_of_the_same_posterior(make):
    model = make()
    one, other = (
        pymc_fastlogp.sample(model=model, reparametrize=x, **OPTIONS) for x in (False, True)
    )
    assert set(one.posterior.data_vars) == set(other.posterior.data_vars)
    for name, x in one.posterior.data_vars.items():
        xr.testing.assert_equal(x.coords.to_dataset(), other.posterior[name].coords.to_dataset())
        assert x.dims == other.posterior[name].dims
        moments = [moments_of(idata.posterior[name]) for idata in (one, other)]
        if max(converged for _, _, converged in moments) > CONVERGED:
            continue
        (mean, error, _), (again, its_error, _) = moments
        errors = np.hypot(error, its_error)
        assert (np.abs(mean - again) <= MOST_ERRORS * errors).all(), name
    if model.observed_RVs:
        options = {"model": model, "random_seed": 1, "progressbar": False}
        seen = [
            pm.sample_posterior_predictive(x, **options).posterior_predictive for x in (one, other)
        ]
        assert {x: y.sizes for x, y in seen[0].items()} == {x: y.sizes for x, y in seen[1].items()}
