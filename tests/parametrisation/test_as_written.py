"""Models as users write them: `parametrise` does not raise, and what it returns is the same model in other coordinates."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from tests.parametrisation import as_written
from tests.parametrisation.test_exact import function

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


@pytest.mark.parametrize("make", as_written.ALL, ids=lambda x: x.__name__)
def test_what_is_parametrised_is_the_model_as_written(make):
    model = make()
    new = pymc_fastlogp.parametrise(model)
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
