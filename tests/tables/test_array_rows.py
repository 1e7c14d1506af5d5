"""Likelihoods over long arrays in memory are evaluated at their distinct rows."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorConstant

import pymc_fastlogp
from pymc_fastlogp.models import array_rows
from pymc_fastlogp.models.array_rows import with_distinct_rows
from pymc_fastlogp.models.table_likelihood import graphs_of
from pymc_fastlogp.models.weighted_rows import WeightedRows
from pymc_fastlogp.reparametrization.selection import select_parametrization
from pymc_fastlogp.reparametrization.sites import site_arrays

N, GROUPS = 6_000, 5
rng = np.random.default_rng(0)
GROUP, TREATED, X = rng.integers(GROUPS, size=N), rng.integers(2, size=N), rng.normal(size=N)
COUNT = rng.poisson(2.0 + GROUP)
Y = rng.normal(GROUP + 0.3 * X)


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(array_rows, "MIN_ROWS", 5_000)
    monkeypatch.setattr(array_rows, "BATCH", 1_000)


def as_data(name, x):
    return pm.Data(name, x)


def as_array(name, x):
    return x


def counts(given, **options):
    a, b = pm.Normal("a", shape=GROUPS), pm.Normal("b")
    eta = a[given("group", GROUP)] + b * given("treated", TREATED)
    pm.Poisson("count", pm.math.exp(eta), observed=given("y", COUNT), **options)


def gaussian(given, **options):
    a, b = pm.Normal("a", shape=GROUPS), pm.Normal("b")
    mean = a[given("group", GROUP)] + b * given("x", X)
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=given("observed", Y), **options)


def zero_inflated(given, **options):
    a = pm.Normal("a", shape=GROUPS)
    rate = pm.math.exp(a[given("group", GROUP)])
    pm.ZeroInflatedPoisson("y", 0.8, rate, observed=given("observed", COUNT), **options)


def two_likelihoods(given, **options):
    counts(given, **options)
    sd = pm.HalfNormal("sd")
    pm.Normal("other", pm.modelcontext(None)["a"][given("of_other", GROUP)], sd, observed=Y)


def one_that_repeats_and_one_that_does_not(given, **options):
    counts(given, **options)
    b = pm.modelcontext(None)["b"]
    pm.Bernoulli("other", logit_p=b * given("x", X), observed=given("of_other", TREATED))


def potential(given, **options):
    a = pm.Normal("a", shape=GROUPS)
    density = pm.logp(pm.Poisson.dist(pm.math.exp(a[given("group", GROUP)])), COUNT)
    pm.Potential("count", density)


def of_rounded(given, **options):
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b * pt.round(given("x", X)), observed=given("t", TREATED), **options)


def model_of(likelihood, given=as_data, coords=None, **options):
    with pm.Model(coords=coords) as model:
        likelihood(given, **options)
    return model


def density(model, x):
    compiled = pymc_fastlogp.compile_pymc_model(model)
    names, places, _ = compiled.shape_info
    order = np.concatenate(
        [np.r_[place] for _, place in sorted(zip(names, places)) if place.stop <= compiled.n_dim]
    )
    point = np.empty(compiled.n_dim)
    point[order] = x[: compiled.n_dim]
    logp, gradient = compiled.logp_dlogp(point)
    return logp, gradient[order]


@pytest.mark.parametrize("given", [as_data, as_array])
@pytest.mark.parametrize(
    ("likelihood", "n_rows"),
    [
        (counts, {"count": 120}),
        (gaussian, {"y": GROUPS * 7}),
        (two_likelihoods, {"count": 120, "other": GROUPS * 4}),
        (potential, {}),
        (of_rounded, {"y": 20}),
    ],
)
def test_distinct_rows_have_the_density_of_all(likelihood, n_rows, given, monkeypatch):
    model = model_of(likelihood, given)
    reduced = with_distinct_rows(model).model
    assert reduced is not model
    for name, most in n_rows.items():
        assert isinstance(reduced[name].owner.op, WeightedRows)
        assert 1 < reduced.rvs_to_values[reduced[name]].data.size <= most
    x = np.random.default_rng(1).normal(size=10) / 3
    logp, gradient = density(model, x)
    monkeypatch.setattr(array_rows, "MIN_ROWS", N + 1)
    assert with_distinct_rows(model).model is model
    expected = density(model, x)
    np.testing.assert_allclose(logp, expected[0], rtol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)


def few_values(given):
    rate = pm.Exponential("rate", shape=2)
    pm.Exponential("y", rate[given("treated", TREATED)], observed=given("t", 1.0 + TREATED))


@pytest.mark.parametrize("given", [as_data, as_array])
@pytest.mark.parametrize(
    ("likelihood", "terms"),
    [
        (counts, {"count": 10}),
        (potential, {"count": GROUPS}),
        (of_rounded, {"y": 15}),
        (few_values, {"y": 2}),
    ],
)
def test_explain_counts_all_rows(likelihood, terms, given, monkeypatch):
    model = model_of(likelihood, given)
    found = pymc_fastlogp.explain(model)
    said = [x for x in found.sentences() if " rows " in x]
    assert said == [
        f"{name}: {N} rows are summed as {n} terms, exactly." for name, n in terms.items()
    ]
    monkeypatch.setattr(array_rows, "MIN_ROWS", N + 1)
    assert found.effects == pymc_fastlogp.explain(model).effects


@pytest.mark.parametrize("given", [as_data, as_array])
def test_explain_counts_all_rows_of_triangular_factors(given):
    [found] = [
        x for x in pymc_fastlogp.explain(model_of(gaussian, given)).sentences() if " rows " in x
    ]
    n_before, n_after = map(int, re.findall(r"\d+", found))
    assert n_before == N
    # Two points of each factor correct the rounding of its means, and have no weight if a mean is exact.
    assert GROUPS * 6 < n_after <= GROUPS * 7


def effects(given):
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    eta = pm.Normal("a", mu, tau, shape=GROUPS)[given("group", GROUP)]
    pm.Poisson("count", pm.math.exp(eta - 6), observed=given("y", (COUNT > 8).astype(int)))


def test_sites_are_found_from_distinct_rows(monkeypatch):
    model = model_of(effects)

    def found():
        return select_parametrization(
            model, lambda x: pymc_fastlogp.compile_pymc_model(x, freeze_model=False)
        )

    merged = found()
    assert isinstance(merged.model["count"].owner.op, WeightedRows)
    monkeypatch.setattr(array_rows, "MIN_ROWS", N + 1)
    expected = found()
    assert not isinstance(expected.model["count"].owner.op, WeightedRows)
    np.testing.assert_allclose(merged.point, expected.point, rtol=1e-6)
    assert merged.sites.keys() == expected.sites.keys()
    for block, site in merged.sites.items():
        for ours, theirs in zip(
            site_arrays(block, site).values(),
            site_arrays(block, expected.sites[block]).values(),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_explain_with_data_that_can_change_counts_no_distinct_rows():
    explained = pymc_fastlogp.explain(model_of(counts), freeze_model=False)
    assert not any(x.rows_before == N for x in explained["count"])


def test_mixtures_of_data_are_reduced():
    reduced = with_distinct_rows(model_of(zero_inflated)).model
    assert 1 < reduced.rvs_to_values[reduced["y"]].data.size <= 80


def test_mixtures_of_arrays_have_a_fixed_length():
    model = model_of(zero_inflated, as_array)
    assert with_distinct_rows(model).model is model


def test_data_that_nothing_reads_are_dropped():
    reduced = with_distinct_rows(model_of(counts)).model
    assert [x.name for x in reduced.data_vars] == ["count_n_rows"]
    assert int(reduced["count_n_rows"].data.sum()) == N


def test_rows_with_dims_are_reduced():
    model = model_of(counts, coords={"row": range(N)}, dims="row")
    reduced = with_distinct_rows(model).model
    assert isinstance(reduced["count"].owner.op, WeightedRows)
    assert "row" not in reduced.coords
    assert "row" not in reduced.dim_lengths
    assert len(model.coords["row"]) == N


def test_coordinates_that_a_variable_has_stay():
    model = model_of(counts, coords={"row": range(N)}, dims="row")
    with model:
        pm.Deterministic("twice", 2 * model["b"] * model["treated"], dims="row")
    reduced = with_distinct_rows(model).model
    assert isinstance(reduced["count"].owner.op, WeightedRows)
    assert len(reduced.coords["row"]) == N


def test_data_that_a_deterministic_reads_stay():
    model = model_of(counts)
    with model:
        pm.Deterministic("twice", 2 * model["b"] * model["treated"])
    reduced = with_distinct_rows(model).model
    assert {x.name for x in reduced.data_vars} == {"treated", "count_n_rows"}
    assert reduced["twice"].eval({reduced["b"]: 1.0}).shape == (N,)


def effect_a_row(given):
    pm.Poisson("y", pm.math.exp(pm.Normal("u", shape=N)), observed=given("observed", COUNT))


def prior_a_row(given):
    u = pm.Normal("u", given("mean", X))
    pm.Poisson("y", pm.math.exp(u), observed=given("observed", COUNT))


def design_matrix(given):
    matrix = given("matrix", np.column_stack([TREATED, GROUP]))
    pm.Normal("y", matrix @ pm.Normal("b", shape=2), observed=given("observed", Y))


def distinct(given):
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b * given("x", X), observed=given("treated", TREATED))


def increments(given):
    y = given("observed", COUNT.astype(float))
    pm.Potential("y", -pt.sqr(y[1:] - pm.Normal("rho") * y[:-1]).sum())


def lagged(given):
    y = COUNT.astype(float)
    pm.Normal("y", pm.Normal("rho") * given("before", y[:-1]), observed=given("observed", y[1:]))
    pm.Normal("z", pm.modelcontext(None)["y"].mean(), observed=np.zeros(N))


def missing(given):
    pm.Normal("y", pm.Normal("mu"), observed=np.where(GROUP == 0, np.nan, COUNT))


@pytest.mark.filterwarnings("ignore:Data in y contains missing")
@pytest.mark.parametrize(
    "likelihood",
    [effect_a_row, prior_a_row, design_matrix, distinct, increments, lagged, missing],
)
def test_other_models_of_arrays_stay_as_they_are(likelihood):
    model = model_of(likelihood, as_array)
    assert with_distinct_rows(model).model is model


def test_a_model_stays_as_it_is_if_a_variable_reads_the_outcomes():
    model = model_of(lagged)
    assert with_distinct_rows(model).model is model


@pytest.mark.parametrize(
    "likelihood", [effect_a_row, prior_a_row, design_matrix, distinct, increments]
)
def test_data_of_other_likelihoods_become_constants_of_the_same_memory(likelihood, monkeypatch):
    model = model_of(likelihood)
    data = [x.get_value(borrow=True) for x in model.data_vars if x.name != "mean"]
    names = {*model.named_vars}
    found = with_distinct_rows(model)
    assert found.merged == {}
    assert {*model.named_vars} == names
    read = ancestors(graphs_of(found.model, found.model["y"]))
    constants = [x.data for x in read if isinstance(x, TensorConstant) and x.data.size >= N]
    assert sorted(map(id, constants)) == sorted(map(id, data))
    assert [x.name for x in found.model.data_vars] == ["mean"] * (likelihood is prior_a_row)
    x = np.random.default_rng(1).normal(size=N) / 3
    logp, gradient = density(model, x)
    monkeypatch.setattr(array_rows, "MIN_ROWS", N + 1)
    expected = density(model, x)
    np.testing.assert_array_equal(logp, expected[0])
    np.testing.assert_array_equal(gradient, expected[1])


def test_frozen_data_do_not_change_with_the_data_of_the_model():
    model = model_of(distinct)
    compiled = pymc_fastlogp.compile_pymc_model(model)
    before = compiled.logp_dlogp(np.ones(1))
    pm.set_data({"x": 2 * X, "treated": 1 - TREATED}, model=model)
    for found, expected in zip(compiled.logp_dlogp(np.ones(1)), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert pymc_fastlogp.compile_pymc_model(model).logp_dlogp(np.ones(1))[0] != before[0]


@pytest.mark.parametrize("likelihood", [distinct, effect_a_row, design_matrix])
def test_explain_says_the_same_of_data_without_a_copy(likelihood, monkeypatch):
    found = pymc_fastlogp.explain(model_of(likelihood)).sentences()
    monkeypatch.setattr(array_rows, "MIN_ROWS", N + 1)
    assert found == pymc_fastlogp.explain(model_of(likelihood)).sentences()


def test_each_likelihood_is_reduced_by_itself():
    found = with_distinct_rows(model_of(one_that_repeats_and_one_that_does_not))
    assert {*found.merged} == {"count"}
    assert isinstance(found.model["count"].owner.op, WeightedRows)
    assert found.model.rvs_to_values[found.model["other"]].eval().size == N


def test_rows_with_nan_are_not_merged():
    model = model_of(gaussian)
    model["x"].set_value(np.where(GROUP == 0, np.nan, X))
    assert with_distinct_rows(model).merged == {}


def test_shared_data_can_still_change():
    model = model_of(counts)
    compiled = pymc_fastlogp.compile_pymc_model(model, freeze_model=False)
    x = np.zeros(compiled.n_dim)
    before = compiled.logp_dlogp(x)[0]
    changed = compiled.with_data(y=COUNT + 1)
    assert changed.logp_dlogp(x)[0] != before


def test_the_result_has_all_rows():
    model = model_of(counts, coords={"row": range(N)}, dims="row")
    idata = pymc_fastlogp.sample(
        20, tune=50, chains=1, random_seed=1, progressbar=False, quiet=True, model=model
    )
    np.testing.assert_array_equal(idata.observed_data["count"], COUNT)
    assert {*idata.constant_data.data_vars} == {"group", "treated", "y"}
    pm.compute_log_likelihood(idata, model=model, progressbar=False)
    assert idata.log_likelihood["count"].shape == (1, 20, N)
    pm.sample_posterior_predictive(idata, model=model, progressbar=False, extend_inferencedata=True)
    assert idata.posterior_predictive["count"].dims == ("chain", "draw", "row")
