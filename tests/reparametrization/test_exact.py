"""The change of variables is exact for any site: logp of the model as written at the mapped point, and the logarithm of the Jacobian."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ZeroSumTransform
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.model_with_sites import find_effects, with_sites
from pymc_fastlogp.reparametrization.sites import Site
from tests.conftest import PYTHON
from tests.reparametrization import models

FAST = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}
SCALES = {
    "ordinary": [1.0],
    "none": [0.0],
    "tiny and huge": [0.0, 1e-12, 1.0, 1e8],
}


def random_sites(model: pm.Model, scales: list[float], seed: int) -> dict:
    """Return sites of random positive semidefinite matrices, each group of another size."""
    rng = np.random.default_rng(seed)
    sites = {}
    for names, flat in find_effects(freeze_dims_and_data(model)).blocks.items():
        n, *shape = flat.gradient.shape
        scale = rng.choice(scales, size=shape)
        root = rng.normal(size=(n, n, *shape)) * np.sqrt(scale)
        information = np.einsum("ik...,jk...->ij...", root, root)
        slopes = {
            name: scale[..., None] * rng.normal(size=x.shape) for name, x in flat.slopes.items()
        }
        gradient = scale * rng.normal(size=(n, *shape))
        sign = None if flat.sign is None else float(rng.choice([-1.0, 1.0]))
        sites[names] = Site(information, gradient, slopes, sign).projected()
    return sites


def function(model: pm.Model, outputs: list[Variable]) -> Callable[..., list[np.ndarray]]:
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    return pytensor.function(values, model.replace_rvs_by_values(outputs), **FAST)


def values_of(model: pm.Model, rv: Variable, x: Variable) -> Variable:
    """Return what the value variable of a model as written is where a variable has some value."""
    transform = model.rvs_to_transforms[rv]
    return x if transform is None else transform.forward(x, *rv.owner.inputs)


def extended_by_pymc(x: np.ndarray) -> np.ndarray:
    """Return what PyMC makes of the value of effects that sum to zero."""
    return ZeroSumTransform([-1]).backward(pt.as_tensor(x)).eval(mode=PYTHON)


def log_jacobian(written: pm.Model, model: pm.Model, point: list[np.ndarray]) -> float:
    """Return that of the value variables of the model as written by those of another, by its determinant."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    variables = model.replace_rvs_by_values(model.free_RVs)
    as_written = [values_of(written, *x) for x in zip(written.free_RVs, variables, strict=True)]
    columns = pytensor.gradient.jacobian(pt.concatenate([x.ravel() for x in as_written]), values)
    # PyTensor lets a rule be used so often for each node that is left, and of sites that say nothing few nodes of the derivatives are left.
    with pytensor.config.change_flags(optdb__max_use_ratio=20):
        evaluated = pytensor.function(values, columns, **FAST)
    matrix = np.column_stack([part.reshape(len(part), -1) for part in evaluated(*point)])
    return np.linalg.slogdet(matrix)[1]


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("make", models.ALL)
def test_logp_is_that_of_the_model_as_written_and_the_jacobian(make, scales):
    model = make()
    sites = random_sites(model, scales, seed=1)
    assert sites
    new = with_sites(model, sites).model
    rng = np.random.default_rng(2)
    of_values = function(new, new.free_RVs)
    logp = function(new, [new.logp()])
    density = function(model, [model.logp()])
    for _ in range(3):
        point = [rng.normal(size=x.shape) for x in new.initial_point().values()]
        variables = of_values(*point)
        as_written = [
            values_of(model, rv, pt.as_tensor(x)).eval(mode=PYTHON)
            for rv, x in zip(model.free_RVs, variables, strict=True)
        ]
        expected = density(*as_written)[0] + log_jacobian(model, new, point)
        np.testing.assert_allclose(logp(*point)[0], expected, rtol=1e-9)


@pytest.mark.parametrize("make", models.ALL)
def test_effects_without_information_are_non_centered(make):
    model = make()
    found = find_effects(freeze_dims_and_data(model))
    sited = with_sites(model, found.blocks)
    rng = np.random.default_rng(3)
    point = [rng.normal(size=x.shape) for x in sited.model.initial_point().values()]
    names = [x.name for x in sited.model.free_RVs]
    values = dict(zip(names, point, strict=True))
    of_effects = [sited.means, sited.factors, {x: sited.model[x] for x in found.kinds}]
    for name, kind in found.kinds.items():
        mean, factor, variable = function(sited.model, [x[name] for x in of_effects])(*point)
        expected = values[name]
        if kind == "centered":
            expected = mean + factor * values[name]
        elif kind == "correlated, centered":
            expected = mean + values[name] @ factor.T
        elif kind == "sums to zero, centered":
            expected = extended_by_pymc(factor * values[name])
        elif kind == "sums to zero, non-centered":
            expected = extended_by_pymc(values[name])
        np.testing.assert_allclose(variable, expected, rtol=1e-13)


@pytest.mark.parametrize("make", models.ALL)
def test_names_dims_and_deterministics_are_those_of_the_model(make):
    model = make()
    new = with_sites(model, random_sites(model, [1.0], seed=4)).model
    for which in ("free_RVs", "observed_RVs", "deterministics", "data_vars", "potentials"):
        names = [x.name for x in getattr(model, which)]
        assert sorted(x.name for x in getattr(new, which)) == sorted(names)
    assert [x.name for x in new.free_RVs] == [x.name for x in model.free_RVs]
    assert new.named_vars_to_dims == model.named_vars_to_dims
    assert new.coords == model.coords
    assert "site" not in str([x.name for x in model.value_vars])


@pytest.mark.parametrize("make", models.ALL)
def test_draws_of_the_prior_are_those_of_the_model(make):
    model = make()
    new = with_sites(model, random_sites(model, [1.0, 1e6], seed=5)).model
    for name in find_effects(freeze_dims_and_data(model)).kinds:
        one, other = (pm.draw(x[name], 2000, random_seed=1) for x in (model, new))
        np.testing.assert_allclose(np.median(one, 0), np.median(other, 0), atol=0.25)
        np.testing.assert_allclose(
            np.quantile(one, 0.9, 0) / np.quantile(other, 0.9, 0), 1, atol=0.25
        )
