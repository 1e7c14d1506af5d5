"""Log likelihoods of models of tables: a row of each cell, with its count."""

import warnings

import arviz
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_fastlogp

pytestmark = pytest.mark.usefixtures("engines")

N = 400
OPTIONS = {"draws": 100, "tune": 200, "chains": 2, "progressbar": False, "quiet": True}


def build(rows):
    with pm.Model() as model:
        zone, sigma = pm.Normal("zone", shape=23), pm.HalfNormal("sigma")
        pm.Poisson("tips", pm.math.exp(sigma * zone[rows["zone"]]), observed=rows["tips"])
        pm.StudentT("noise", 4, mu=sigma * rows["night"], sigma=1, observed=rows["noise"])
        pm.Normal("other", zone, sigma, observed=np.zeros(23))
    return model


@pytest.fixture(scope="module")
def first(relation):
    return relation.limit(N)


@pytest.fixture(scope="module")
def model(first):
    return build(pymc_fastlogp.table(first))


@pytest.fixture(scope="module")
def whole(first):
    return build(first.fetchnumpy())


@pytest.fixture(scope="module")
def idata(model):
    return pymc_fastlogp.sample(model=model, random_seed=1, **OPTIONS)


@pytest.fixture(scope="module")
def ours(idata, model):
    return pymc_fastlogp.compute_log_likelihood(
        idata, model=model, progressbar=False, extend_inferencedata=False
    )


@pytest.fixture(scope="module")
def theirs(idata, whole):
    return pm.compute_log_likelihood(
        idata, model=whole, progressbar=False, extend_inferencedata=False
    )


def test_each_row_has_the_value_of_its_cell(ours, theirs, idata, first):
    rows = first.fetchnumpy()
    observed = idata.observed_data["tips"].to_numpy()
    n_rows = ours["tips_n_rows"].to_numpy()
    assert n_rows.sum() == N
    np.testing.assert_array_equal(n_rows, idata.constant_data["tips_n_rows"])
    # Cells are sorted by zone and tips.
    cells, inverse = np.unique(np.c_[rows["zone"], rows["tips"]], axis=0, return_inverse=True)
    np.testing.assert_array_equal(cells[:, 1], observed)
    np.testing.assert_allclose(ours["tips"].to_numpy()[..., inverse], theirs["tips"], rtol=1e-13)


def test_rows_that_are_loaded_and_others_have_no_counts(ours, theirs):
    assert {*ours.coords} - {*theirs.coords} == {"tips_n_rows"}
    np.testing.assert_allclose(np.sort(ours["noise"]), np.sort(theirs["noise"]), rtol=1e-13)
    np.testing.assert_allclose(ours["other"], theirs["other"], rtol=1e-13)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_loo_of_rows_is_the_weighted_sum_of_cells(ours, theirs, idata):
    def loo(log_likelihood):
        both = idata.copy()
        both["log_likelihood"] = log_likelihood
        return arviz.loo(both, var_name="tips", pointwise=True)

    cells, rows = loo(ours), loo(theirs)
    n_rows = cells.elpd_i.tips_n_rows
    np.testing.assert_allclose(float((n_rows * cells.elpd_i).sum()), rows.elpd, rtol=1e-12)


def test_extends_the_draws(idata, model):
    extended = idata.copy()
    found = pymc_fastlogp.compute_log_likelihood(
        extended, model=model, progressbar=False, var_names=["tips"]
    )
    assert found is extended
    assert [*extended.log_likelihood.data_vars] == ["tips"]


def test_a_model_of_no_table_is_left_to_pymc(idata, whole, theirs):
    found = pymc_fastlogp.compute_log_likelihood(
        idata, model=whole, progressbar=False, extend_inferencedata=False
    )
    np.testing.assert_array_equal(found["tips"], theirs["tips"])


def test_several_values_per_row(first):
    def build(rows):
        with pm.Model() as model:
            a = pm.Normal("a", shape=2)
            observed = pt.stack([rows["rank"], rows["night"]], axis=0)
            pm.Normal("y", a[:, None] * rows["night"], observed=observed)
        return model

    model = build(pymc_fastlogp.table(first))
    idata = pymc_fastlogp.sample(model=model, random_seed=1, **OPTIONS)
    options = {"progressbar": False, "extend_inferencedata": False}
    cells = pymc_fastlogp.compute_log_likelihood(idata, model=model, **options)
    columns = {name: pt.constant(x) for name, x in first.fetchnumpy().items() if name != "size"}
    rows = pm.compute_log_likelihood(idata, model=build(columns), **options)
    assert cells["y"].dims[3] == cells["y_n_rows"].dims[0]
    assert cells["y"].shape[2] == 2
    np.testing.assert_allclose(
        (cells["y"] * cells["y_n_rows"]).sum("y_dim_1"), rows["y"].sum("y_dim_1"), rtol=1e-12
    )


def test_the_log_likelihood_of_pymc_warns_of_first_rows(first, idata):
    model = build(pymc_fastlogp.table(first))
    with pytest.warns(
        UserWarning, match=r"first 400 rows .* pymc_fastlogp\.compute_log_likelihood"
    ):
        pm.compute_log_likelihood(idata, model=model, progressbar=False, extend_inferencedata=False)


def test_nutpie_warns_of_first_rows(first):
    nutpie = pytest.importorskip("nutpie")
    model = build(pymc_fastlogp.table(first))
    with pytest.warns(UserWarning, match=r"first 400 rows of a table"):
        nutpie.compile_pymc_model(model)


def regression(rows):
    with pm.Model() as model:
        zone, sigma = pm.Normal("zone", shape=23), pm.HalfNormal("sigma")
        mu = zone[rows["zone"]] + sigma * rows["income"]
        pm.Normal("noise", mu, 0.1 + sigma, observed=rows["noise"])
    return model


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_that_are_merged_to_factors_have_sums_by_cell(relation, idata):
    first = relation.limit(2000)
    options = {"progressbar": False, "extend_inferencedata": False}
    found = pymc_fastlogp.compute_log_likelihood(
        idata, model=regression(pymc_fastlogp.table(first)), **options
    )
    rows = first.fetchnumpy()
    each = pm.compute_log_likelihood(idata, model=regression(rows), **options)["noise"]
    assert [*found] == ["noise_by_cell"]
    zones, counts = np.unique(rows["zone"], return_counts=True)
    np.testing.assert_array_equal(found["zone"], zones)
    np.testing.assert_array_equal(found["noise_by_cell_n_rows"], counts)
    expected = np.stack([each[..., rows["zone"] == zone].sum("noise_dim_0") for zone in zones], -1)
    sizes = np.stack(
        [abs(each[..., rows["zone"] == zone]).sum("noise_dim_0") for zone in zones], -1
    )
    assert (abs(found["noise_by_cell"].to_numpy() - expected) <= 1e-12 * sizes).all()
    both = idata.copy()
    both["log_likelihood"] = found
    assert arviz.loo(both, var_name="noise_by_cell").n_data_points == len(zones)


def test_factors_of_all_rows_are_one_cell(first, idata):
    table = pymc_fastlogp.table(first)
    with pm.Model() as model:
        zone = pm.Normal("zone", shape=23)
        pm.Normal("noise", zone[0], 1, observed=table["noise"])
        pm.Poisson("tips", pm.math.exp(zone[table["zone"]]), observed=table["tips"])
    options = {"model": model, "progressbar": False, "extend_inferencedata": False}
    found = pymc_fastlogp.compute_log_likelihood(idata, **options)
    assert {*found} == {"noise_by_cell", "tips"}
    with table.use(first), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        rows = pm.compute_log_likelihood(idata, **options)
    np.testing.assert_allclose(
        found["noise_by_cell"].squeeze(), rows["noise"].sum("noise_dim_0"), rtol=1e-12
    )


def test_predictive_draws_do_not_warn(first, idata):
    model = build(pymc_fastlogp.table(first))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pm.sample_prior_predictive(2, model=model)
        pm.sample_posterior_predictive(idata, model=model, progressbar=False)
