"""A chain that cannot start: the error names the variables and the rows."""

import gc
import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pymc_fastlogp
from pymc_fastlogp.sampling import diagnosis
from pymc_fastlogp.sampling.diagnosis import causes, failed_start_explained
from tests.callbacks import models

OPTIONS = {"draws": 5, "tune": 5, "chains": 2, "cores": 1, "progressbar": False, "quiet": True}
START = {"initvals": None, "compile_kwargs": None}
N_ROWS = 50
THREADS = Path("/proc/self/task")
X = np.linspace(-1.0, 1.0, N_ROWS)


def with_nan(index):
    x = X.copy()
    x[index] = np.nan
    return x


def nan_data():
    with pm.Model() as model:
        y = pm.Data("y", X)
        pm.Normal("obs", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=y)
    pm.set_data({"y": with_nan(3)}, model=model)
    return model


def nan_covariate():
    with pm.Model() as model:
        pm.Normal("obs", pm.Normal("b") * pm.Data("x", X), 1, observed=np.zeros(N_ROWS))
    model["x"].set_value(with_nan(3))  # PyMC would mask it, which PyTensor cannot rewrite
    return model


def negative_counts():
    counts = np.arange(N_ROWS)
    counts[[7, 9]] = -1, -2
    with pm.Model() as model:
        pm.Poisson("obs", pm.Exponential("rate", 1), observed=counts)
    return model


def index_out_of_range():
    group = np.arange(N_ROWS) % 5
    group[12] = 7
    with pm.Model() as model:
        a = pm.Normal("a", shape=5)
        pm.Normal("obs", a[pm.Data("group", group)], 1, observed=X)
    return model


def outside_of_the_support():
    with pm.Model() as model:
        pm.TruncatedNormal("weight", pm.Normal("mu"), 1, lower=1.0, observed=[2.0, 0.5, 3.0])
    return model


def infinite_potential():
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Potential("order", pt.switch(a[1] > a[0] + 99, 0.0, -np.inf))
    return model


def nan_gradient():
    """The square root has an infinite derivative at zero, which the covariate multiplies by zero."""
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=3), pm.Normal("b")
        mu = pt.sqrt(pt.abs(a * np.array([1.0, 0.0, 1.0])))
        pm.Normal("obs", mu + b, 1, observed=np.zeros(3))
    return model


def deterministic_out_of_range():
    with pm.Model() as model:
        a = pm.Normal("a", shape=5)
        pm.Deterministic("picked", a[pm.Data("index", [1, 7, 0])])
    return model


CAUSES = {
    nan_data: "obs: 1 of 50 rows is nan, the first at index 3",
    nan_covariate: "obs: 1 of 50 rows has log density nan, the first at index 3 (value 0);"
    " x: 1 of 50 rows is nan, the first at index 3",
    negative_counts: "obs: 2 of 50 rows have log density -inf, the first at index 7 (value -1)",
    index_out_of_range: "obs: index 7 is out of bounds for axis 0 with size 5;"
    " group: 1 of 50 rows is out of range, the first at index 12 (value 7)",
    outside_of_the_support: "weight: 1 of 3 rows has log density -inf, the first at index 1 (value 0.5)",
    infinite_potential: "order: the log density is -inf",
    nan_gradient: "a: 1 of 3 rows has gradient nan, the first at index 1",
    deterministic_out_of_range: "picked: index 7 is out of bounds for axis 0 with size 5;"
    " index: 1 of 3 rows is out of range, the first at index 1 (value 7)",
}


@pytest.mark.parametrize("make", CAUSES, ids=lambda make: make.__name__)
def test_sample_error_names_variables_and_rows(make):
    with pytest.raises(SamplingError) as raised:
        pymc_fastlogp.sample(model=make(), **OPTIONS)
    assert str(raised.value) == f"sampling cannot start: {CAUSES[make]}"
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "options",
    [
        {"reparametrize": True},
        {"compile_kwargs": {"freeze_model": False}},
        {"nuts": {"adaptation": "draw_diag"}},
    ],
    ids=["reparametrized", "not frozen", "by nutpie"],
)
def test_every_entry_point_names_variables_and_rows(options):
    with pytest.raises(SamplingError, match="obs: 1 of 50 rows is nan, the first at index 3"):
        pymc_fastlogp.sample(model=nan_data(), **OPTIONS, **options)


def test_given_initial_values_are_those_that_are_named():
    with pm.Model() as model:
        pm.Uniform("u", 0, 1, default_transform=None)
    with pytest.raises(SamplingError, match=r"u: the log density is -inf \(value [45]"):
        pymc_fastlogp.sample(model=model, initvals={"u": 5.0}, **OPTIONS)


def test_valid_model_is_not_evaluated_again(monkeypatch):
    def fail(*_):
        raise AssertionError("evaluated again")

    monkeypatch.setattr(diagnosis, "causes", fail)
    idata = pymc_fastlogp.sample(model=models.one_number(), **OPTIONS)
    assert idata.posterior["x"].shape == (2, 5)


@pytest.mark.parametrize("make", [models.one_number, models.hierarchy, models.correlated])
def test_valid_model_has_no_cause(make):
    model = make()
    assert causes(model, [model.initial_point(seed) for seed in range(3)]) == []


def test_other_errors_are_unchanged():
    with pytest.raises(RuntimeError, match="of nutpie"), failed_start_explained(nan_data(), START):
        raise RuntimeError("another one of nutpie")


@pytest.mark.skipif(not THREADS.exists(), reason="needs the names of threads from Linux")
@pytest.mark.parametrize("cores", [1, 4])
def test_a_failed_start_frees_the_sampler(cores):
    """Without a garbage collection: a sampler that is freed, or runs, at interpreter exit can crash the process."""

    def n_threads_of_samplers():
        time.sleep(0.1)
        names = [path.read_text() for path in THREADS.glob("*/comm")]
        return sum(name.startswith(("tokio", "nutpie")) for name in names)

    gc.collect()
    before = n_threads_of_samplers()
    gc.disable()
    try:
        with pytest.raises(SamplingError):
            pymc_fastlogp.sample(model=nan_data(), **{**OPTIONS, "chains": cores, "cores": cores})
        assert n_threads_of_samplers() == before
    finally:
        gc.enable()


def test_an_unknown_cause_keeps_the_error_of_nutpie():
    nutpies = RuntimeError(f"{diagnosis.FAILED_START}\nErrorCode(3)")
    with (
        pytest.raises(SamplingError, match=r"model\.debug") as raised,
        failed_start_explained(models.one_number(), START),
    ):
        raise nutpies
    assert raised.value.__cause__ is nutpies


def test_a_failed_check_of_parameters_names_its_rows():
    with pm.Model() as model:
        mu = pm.math.exp(pm.Normal("b") * with_nan(3))
        pm.Poisson("obs", mu, observed=np.arange(N_ROWS))
    [cause] = causes(model, [model.initial_point()])
    assert "50 of 50 rows have log density -inf, the first at index 0 (value 0)" in cause
    assert "mu >= 0 does not hold (1 of 50 rows is outside, the first at index 3)" in cause
    assert cause.endswith("an array of shape (50,): 1 of 50 rows is nan, the first at index 3")


def test_entries_of_matrices_have_two_indices():
    y = np.zeros((6, 2))
    y[4, 1] = np.nan
    with pm.Model() as model:
        pm.MvNormal("obs", pm.Normal("mu", shape=2), np.eye(2), shape=(6, 2))
    observed = pm.observe(model, {"obs": y})
    expected = "obs: 1 of 12 entries is nan, the first at index [4, 1]"
    assert causes(observed, [observed.initial_point()]) == [expected]


def test_the_first_causes_are_listed_and_others_counted():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        for k in range(8):
            pm.Exponential(f"y{k}", pt.exp(mu), observed=[1.0, -1.0])
    found = causes(model, [model.initial_point()])
    assert [x.partition(":")[0] for x in found] == ["y0", "y1", "y2", "y3", "y4", "and 3 more"]


def test_terms_that_python_cannot_evaluate_are_no_cause():
    with pm.Model() as model:
        terms = [pm.Normal(f"x{k}", shape=2) for k in range(33)]  # NumPy takes 32 at once
        pm.Normal("y", pt.add(*terms), 1, observed=[0.0, 1.0])
    assert diagnosis._causes_or_none(model, START) == []
