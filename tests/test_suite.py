import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import stanli

from benchmarks.suite import SUITE, Case, case
from tests.conftest import PYTHON, WITHOUT_C, with_flags

TESTS = Path(__file__).parent
NAMES = [case.name for case in SUITE]
WITH_STAN = [case.name for case in SUITE if case.stan_code() is not None]

# Stan's Cholesky factor of a correlation matrix and PyMC's of a covariance matrix are
# unconstrained in different ways: a test of its own.
GROUPS_BY_COEFFICIENTS = {
    "sleepstudy": (18, 2),
    "lkj_slopes": (100, 4),
    "lkj_slopes_100k": (100, 4),
}
SAME_UNCONSTRAINED_SCALE = [name for name in WITH_STAN if name not in GROUPS_BY_COEFFICIENTS]


class LogpDlogp:
    """Log density and gradient at a flat unconstrained point, run by Python without Numba."""

    def __init__(self, model: pm.Model):
        inputs = model.continuous_value_vars
        logp = model.logp()
        gradient = pt.concatenate([g.ravel() for g in pt.grad(logp, inputs)])
        mode = pytensor.compile.mode.Mode(linker="py", optimizer="fast_compile")
        self.function = pytensor.function(inputs, [logp, gradient], mode=mode)
        initial = model.initial_point()
        self.shapes = [initial[v.name].shape for v in inputs]
        self.initial_point = np.concatenate([initial[v.name].ravel() for v in inputs])

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(point, stops[:-1])
        logp, gradient = self.function(*(p.reshape(s) for p, s in zip(parts, self.shapes)))
        return float(logp), gradient


@pytest.fixture(scope="module")
def model_of() -> Callable[[str], pm.Model]:
    """Build a model of the suite once for all tests that look at it."""
    return cache(lambda name: case(name).make())


@pytest.fixture(scope="module")
def logp_dlogp_of(model_of: Callable[[str], pm.Model]) -> Callable[[str], LogpDlogp]:
    """Compile a model of the suite once for all tests that evaluate it."""
    return cache(lambda name: LogpDlogp(model_of(name)))


def rows_of_title(case: Case) -> int | None:
    match = re.search(r"(\d[\d ]*) rows", case.title)
    return int(match[1].replace(" ", "")) if match else None


def test_names_are_unique():
    assert len(set(NAMES)) == len(SUITE)


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match=r"no model named 'radom' in the suite; it has .*radon"):
        case("radom")


@pytest.mark.parametrize("name", NAMES)
def test_logp_and_gradient_are_finite_at_initial_point(name, logp_dlogp_of):
    logp_dlogp = logp_dlogp_of(name)
    logp, gradient = logp_dlogp(logp_dlogp.initial_point)
    assert np.isfinite(logp)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", NAMES)
def test_title_says_the_number_of_rows(name, model_of):
    model = model_of(name)
    rows = [model.rvs_to_values[rv].shape[0].eval(mode=PYTHON) for rv in model.observed_RVs]
    said = rows_of_title(case(name))
    assert rows == ([] if said is None else [said])


@pytest.mark.parametrize("name", NAMES)
def test_make_is_reproducible(name, model_of):
    model = model_of(name)
    again = case(name).make()
    for data_var in model.data_vars:
        np.testing.assert_array_equal(data_var.get_value(), again[data_var.name].get_value())


def stan_model(name: str) -> stanli.Model:
    return stanli.Model(stan_code=case(name).stan_code(), data=case(name).stan_data())


@pytest.mark.parametrize("name", SAME_UNCONSTRAINED_SCALE)
def test_stan_program_is_the_same_posterior(name, logp_dlogp_of):
    """Stan drops constants, so differences of the log density are compared, and the gradient."""
    logp_dlogp = logp_dlogp_of(name)
    stan = stan_model(name)
    assert stan.n_unconstrained == len(logp_dlogp.initial_point)
    points = np.random.default_rng(1).normal(0, 0.5, size=(2, stan.n_unconstrained))
    logps, gradients = zip(*map(logp_dlogp, points))
    stan_logps, stan_gradients = zip(*map(stan.log_prob_grad, points))
    round_off = 1e-12 * np.abs(logps).sum()
    np.testing.assert_allclose(np.diff(logps), np.diff(stan_logps), rtol=0, atol=round_off)
    np.testing.assert_allclose(gradients, stan_gradients, rtol=1e-9, atol=round_off)


@pytest.mark.parametrize(("name", "shape"), GROUPS_BY_COEFFICIENTS.items())
def test_stan_program_is_the_same_given_the_cholesky_factor(name, shape, logp_dlogp_of):
    """All but the density of the Cholesky factor itself: it is the same at both points."""
    logp_dlogp = logp_dlogp_of(name)
    stan = stan_model(name)
    groups, n = shape
    lengths = {"mu0": n, "chol": n * (n + 1) // 2, "z": groups * n, "sigma": 1}
    stops = np.cumsum([*lengths.values()])
    assert stops[-1] == len(logp_dlogp.initial_point)
    points = np.random.default_rng(1).normal(0, 0.5, size=(2, stops[-1]))

    def parts(vector: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(lengths, np.split(vector, stops[:-1])))

    parts(points[1])["chol"][:] = packed = parts(points[0])["chol"]
    chol = np.zeros((n, n))
    chol[np.tril_indices(n)] = packed
    np.fill_diagonal(chol, np.exp(np.diagonal(chol)))
    sd = np.linalg.norm(chol, axis=1)

    def stan_point(point: np.ndarray) -> np.ndarray:
        values = {
            "mu0": parts(point)["mu0"],
            "L": (chol / sd[:, None]).ravel(order="F"),
            "sd": sd,
            "z": parts(point)["z"].reshape(groups, n).ravel(order="F"),
            "sigma": np.exp(parts(point)["sigma"][0]),
        }
        return stan.unconstrain({name: value.tolist() for name, value in values.items()})

    logps, gradients = zip(*map(logp_dlogp, points))
    stan_logps, stan_gradients = zip(*map(stan.log_prob_grad, map(stan_point, points)))
    round_off = 1e-12 * np.abs(logps).sum()
    np.testing.assert_allclose(np.diff(logps), np.diff(stan_logps), rtol=0, atol=round_off)
    for gradient, stan_gradient in zip(map(parts, gradients), stan_gradients):
        stan_z = stan_gradient[-1 - groups * n : -1].reshape(n, groups).T.ravel()
        np.testing.assert_allclose(gradient["mu0"], stan_gradient[:n], rtol=1e-9)
        np.testing.assert_allclose(gradient["z"], stan_z, rtol=1e-9, atol=round_off)
        np.testing.assert_allclose(gradient["sigma"], stan_gradient[-1:], rtol=1e-9)


@pytest.fixture(scope="module")
def texts_of(tmp_path_factory):
    """Return a function that compiles models in a process of their own, see graph_text.py."""

    @cache
    def run(side: str, data: str, *names: str) -> dict:
        out = tmp_path_factory.mktemp("graphs") / "texts.json"
        environment = {k: v for k, v in os.environ.items() if k != "PYMC_FASTLOGP"}
        environment["PYTHONPATH"] = str(TESTS.parent)
        environment["PYTENSOR_FLAGS"] = with_flags(WITHOUT_C)
        program = [sys.executable, str(TESTS / "graph_text.py"), side, data, str(out), *names]
        subprocess.run(program, env=environment, check=True)
        return json.loads(out.read_text())

    return run


# `make test` compares one model, in test_registration.py.
@pytest.mark.slow
@pytest.mark.parametrize("data", ["frozen", "shared"])
def test_switched_off_the_graph_is_upstreams_node_for_node(data, texts_of):
    off, absent = (texts_of(side, data, *NAMES) for side in ("off", "absent"))
    assert [*off] == [*absent] == NAMES
    assert not [name for name in NAMES if off[name] != absent[name]]


@pytest.mark.slow
@pytest.mark.parametrize("data", ["frozen", "shared"])
def test_switched_on_the_graph_of_lkj_corr_differs(data, texts_of):
    """Without this the comparison above could be one that never fails."""
    on, absent = texts_of("on", data, "lkj_corr_10"), texts_of("absent", data, *NAMES)
    assert on["lkj_corr_10"]["logp_dlogp"] != absent["lkj_corr_10"]["logp_dlogp"]
