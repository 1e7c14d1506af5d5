"""Models in linearly mapped coordinates: the same density, gradient, stored values, starts, shared data and errors, also from disk."""

import ctypes
import logging

import numpy as np
import nutpie
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.callbacks.native import WRONG_LENGTH
from pymc_fastlogp.compilation.nutpie_model import TransformedModel, transformed
from pymc_fastlogp.reparametrization.linear_map import LinearMap

RNG = np.random.default_rng(5)
YEAR = RNG.integers(1990, 2020, size=200).astype(float)
Y = 0.3 * YEAR - 500 + RNG.normal(size=200)
STATUS = {"raised": "status", "length": "shape"}


def regression() -> pm.Model:
    with pm.Model(coords={"coefficient": ["intercept", "slope"]}) as model:
        beta = pm.Normal("beta", 0, [1000, 10], dims="coefficient")
        sigma = pm.HalfNormal("sigma", 5)
        pm.Deterministic("now", beta[0] + 2026 * beta[1])
        pm.Normal("y", beta[0] + beta[1] * YEAR, sigma, observed=Y)
    return model


def with_groups() -> pm.Model:
    """Return a model with shared data, whose point has 6 numbers."""
    with pm.Model() as model:
        x = pm.Data("x", np.arange(5.0))
        index = pm.Data("index", np.array([0, 1, 2, 2, 0]))
        a = pm.Normal("a", shape=3)
        b, sigma, c = pm.Normal("b"), pm.HalfNormal("sigma"), pm.Normal("c")
        pm.Deterministic("mean", a[index] * c + b * x)
        pm.Normal("y", a[index] * c + b * x, sigma, observed=np.zeros(5))
    return model


MAPS = {
    "parameters": LinearMap(
        np.array([5, 1]),
        RNG.normal(size=(2, 2)),
        np.empty(0, int),
        np.empty((2, 0)),
        np.empty((0, 0)),
    ),
    "followers": LinearMap(
        np.array([3, 4, 0]),
        RNG.normal(size=(3, 3)),
        np.array([5, 1, 2]),
        RNG.normal(size=(3, 2)),
        RNG.normal(size=(2, 3)),
    ),
}


@pytest.fixture(scope="module")
def original():
    return pymc_fastlogp.compile_pymc_model(with_groups(), freeze_model=False)


def expanded(model, x: np.ndarray) -> np.ndarray:
    """Return what nutpie stores."""
    type_ = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_uint64] * 2, *[ctypes.c_void_p] * 3)
    found = np.empty(model.n_expanded)
    pointers = (x.ctypes.data, found.ctypes.data, model.user_data.ctypes.data)
    assert type_(model.compiled_expand_func.address)(len(x), len(found), *pointers) == 0
    return found


@pytest.mark.parametrize("linear_map", MAPS.values(), ids=MAPS)
def test_density_gradient_and_stored_values_are_those_of_the_model(original, linear_map):
    model = transformed(original, linear_map)
    jacobian = np.array([linear_map.forward(row) for row in np.eye(6)])
    for w in RNG.normal(size=(5, 6)):
        x = linear_map.forward(w)
        logp, gradient = model.logp_dlogp(w)
        expected, by_x = original.logp_dlogp(x)
        np.testing.assert_allclose(logp, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, jacobian @ by_x, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(expanded(model, w), expanded(original, x), rtol=1e-13)


def test_chains_start_where_those_of_the_model_do(original):
    model = transformed(original, MAPS["followers"])
    x = MAPS["followers"].forward(model.initial_point_func(3))
    np.testing.assert_allclose(x, original.initial_point_func(3), rtol=1e-12)


def test_shared_data_are_exchanged(original):
    w, new = RNG.normal(size=6), {"x": np.full(5, 2.0), "index": np.array([1, 1, 1, 0, 2])}
    model = transformed(original, MAPS["followers"]).with_transform_adapt(verbose=False)
    changed = model.with_data(**new)
    assert changed._transform_adapt_args == {"verbose": False}
    expected = original.with_data(**new).logp_dlogp(MAPS["followers"].forward(w))[0]
    np.testing.assert_allclose(changed.logp_dlogp(w)[0], expected, rtol=1e-13)
    assert model.logp_dlogp(w)[0] != pytest.approx(expected)


def test_errors_of_the_model_come_through(original):
    outside = original.with_data(index=np.array([0, 1, 2, 3, 0]))
    with pytest.raises(ValueError, match="cannot be evaluated at this point"):
        transformed(outside, MAPS["parameters"]).logp_dlogp(np.zeros(6))
    with pytest.raises(ValueError, match=r"give one of shape \(6,\)"):
        transformed(original, MAPS["parameters"]).logp_dlogp(np.zeros(5))


def test_a_point_of_another_length_is_refused_before_it_is_mapped(original):
    type_ = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_void_p] * 4)
    model = transformed(original, MAPS["followers"])
    x, gradient, logp = np.zeros(6), np.full(6, 7.0), np.zeros(1)
    pointers = (x.ctypes.data, gradient.ctypes.data, logp.ctypes.data, model.user_data.ctypes.data)
    logp_func = type_(model.compiled_logp_func.address)
    assert logp_func(2, *pointers) == WRONG_LENGTH
    assert list(gradient) == [7.0] * 6
    assert logp_func(6, *pointers) == 0


def test_mapped_coordinates_have_labels_of_their_own(original):
    names = list(original.coords["unconstrained_parameter"])
    labels = list(transformed(original, MAPS["parameters"]).coords["unconstrained_parameter"])
    for k, (name, label) in enumerate(zip(names, labels, strict=True)):
        assert label == (f"{name} (moved)" if k in (5, 1) else name)


def test_stored_points_have_labels():
    options = {"draws": 5, "tune": 5, "chains": 1, "cores": 1, "progressbar": False, "quiet": True}
    stored = {"idata_kwargs": {"include_transformed": True}, "random_seed": 1}
    trace = pymc_fastlogp.sample(model=regression(), reparametrize=True, **options, **stored)
    names = trace.sample_stats["unconstrained_parameter"].to_numpy().tolist()
    assert len(names) == 3
    assert all(name.endswith("(moved)") for name in names if name.startswith("beta"))


def test_verify_compares_it_with_the_model():
    model = regression()
    compiled = pymc_fastlogp.compile_pymc_model(model, reparametrize=True)
    assert isinstance(compiled, TransformedModel)
    assert pymc_fastlogp.verify(model, compiled=compiled)


def test_a_regression_takes_fewer_steps_and_keeps_its_posterior(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path))
    compiled = pymc_fastlogp.compile_pymc_model(regression(), reparametrize=True)
    assert isinstance(compiled, TransformedModel)
    options = {"chains": 2, "cores": 1, "seed": 1, "progress_bar": False}
    trace = nutpie.sample(compiled, **options)
    assert trace.sample_stats["n_steps"].mean() < 16
    design = np.column_stack([np.ones_like(YEAR), YEAR])
    [*_, (intercept, slope)] = [np.linalg.lstsq(design, Y)[0]]
    beta = trace.posterior["beta"].to_numpy()
    assert trace.posterior["beta"].coords["coefficient"].to_numpy().tolist() == [
        "intercept",
        "slope",
    ]
    error = np.sqrt(1 / np.sum((YEAR - YEAR.mean()) ** 2))
    assert beta[..., 1].mean() == pytest.approx(slope, abs=error)
    assert beta[..., 1].std() == pytest.approx(
        error * np.std(Y - design @ [intercept, slope]), rel=0.2
    )
    now = trace.posterior["now"].to_numpy()
    np.testing.assert_allclose(now, beta[..., 0] + 2026 * beta[..., 1], rtol=1e-12)

    with caplog.at_level(logging.INFO, logger="pymc_fastlogp"):
        again = pymc_fastlogp.compile_pymc_model(regression(), reparametrize=True)
    assert "found on disk" in caplog.text
    assert "other coordinates" not in caplog.text
    same = nutpie.sample(again, **options).posterior["beta"].to_numpy()
    np.testing.assert_array_equal(same, beta)


def test_a_model_that_cannot_be_frozen_is_compiled_as_it_is():
    with pm.Model(), pm.Model("inner") as model:
        x = pm.Normal("x")
        pm.Normal("y", x, observed=1.0)
    compiled = pymc_fastlogp.compile_pymc_model(model, reparametrize=True)
    assert compiled.logp_dlogp(np.zeros(1))[1] == 1.0


def test_sample_applies_the_map():
    trace = pymc_fastlogp.sample(
        model=regression(),
        reparametrize=True,
        draws=200,
        tune=300,
        chains=1,
        random_seed=1,
        progressbar=False,
    )
    assert trace.sample_stats["n_steps"].mean() < 16
    assert list(trace.posterior) == ["beta", "sigma", "now"]
