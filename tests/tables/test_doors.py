"""Public functions take models of tables."""

import logging
import re
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.weighted_rows import WeightedRows
from tests.tables.conftest import N

pytestmark = pytest.mark.usefixtures("engines")

N_ZONES = 23


def build(rows):
    with pm.Model(coords={"place": range(N_ZONES)}) as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        zone = pm.Normal("zone", mu, tau, dims="place")
        b = pm.Normal("b")
        eta = zone[rows["zone"]] + b * rows["night"]
        pm.Poisson("tips", pm.math.exp(eta), observed=rows["tips"])
    return model


@pytest.fixture
def model(relation):
    return build(pymc_fastlogp.table(relation))


def test_a_compiled_model_has_the_density_of_all_rows(model, columns):
    ours = pymc_fastlogp.compile_pymc_model(model)
    whole = pymc_fastlogp.compile_pymc_model(build(columns))
    places = dict(zip(whole.shape_info[0], whole.shape_info[1], strict=True))
    x = np.random.default_rng(0).normal(size=ours.n_dim) / 3
    other = np.empty(whole.n_dim)
    for name, place in zip(ours.shape_info[0], ours.shape_info[1], strict=True):
        if place.stop <= ours.n_dim and name in places:
            other[places[name]] = x[place]
    logp, gradient = ours.logp_dlogp(x)
    expected, of_other = whole.logp_dlogp(other)
    np.testing.assert_allclose(logp, expected, rtol=1e-12)
    for name, place in zip(ours.shape_info[0], ours.shape_info[1], strict=True):
        if place.stop <= ours.n_dim and name in places:
            np.testing.assert_allclose(
                gradient[place], of_other[places[name]], rtol=1e-9, atol=1e-9
            )


def test_sample_reads_all_rows(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        idata = pymc_fastlogp.sample(
            50,
            tune=100,
            chains=2,
            random_seed=1,
            progressbar=False,
            quiet=True,
            model=model,
            # By variables of the model as it is written.
            initvals={model["mu"]: 0.5},
            compile_kwargs={"jitter_rvs": {model["b"]}},
        )
    # Poisson with 120 000 rows: the standard deviation of the mean is below 0.01.
    assert idata.posterior["b"].std() < 0.02
    assert idata.posterior["zone"].dims == ("chain", "draw", "place")
    assert float(idata.constant_data["tips_n_rows"].sum()) == N
    assert idata.observed_data["tips"].shape == idata.constant_data["tips_n_rows"].shape
    # Predictions are for the rows of the placeholders.
    pm.sample_posterior_predictive(idata, model=model, progressbar=False, extend_inferencedata=True)
    assert idata.posterior_predictive["tips"].shape == (2, 50, 1000)


def test_log_likelihoods_are_refused(model):
    with pytest.raises(ValueError, match=r"^log_likelihood is not available for the rows"):
        pymc_fastlogp.sample(model=model, idata_kwargs={"log_likelihood": True})


def test_a_model_with_a_discrete_variable_is_sampled_by_pymc(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        pm.Normal("meter", 1e8 + k, 1, observed=table["meter"])
    idata = pymc_fastlogp.sample(
        20, tune=20, chains=1, cores=1, progressbar=False, quiet=True, model=model
    )
    # The mean of all rows is 1e8 + 1.
    assert (idata.posterior["k"] == 1).all()
    with pytest.raises(ValueError, match=r"^step can't be given for a model of a table"):
        pymc_fastlogp.sample(step=pm.BinaryGibbsMetropolis([k], model=model), model=model)


def test_explain_names_the_query_before_and_after_it(model, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(pymc_fastlogp.Table, "rows", None)
        estimated, *_ = pymc_fastlogp.explain(model).sentences()
    how = "distinct rows with counts (DuckDB: GROUP BY zone, night, tips)"
    assert re.fullmatch(
        rf"tips: {N} rows of a table are to be read as about \d+ {re.escape(how)}; estimated from 100000 rows\.",
        estimated,
    )
    without_tables(model)
    explanation = pymc_fastlogp.explain(model)
    first, second, *_ = explanation.sentences()
    [n_cells] = {x.rows_before for x in explanation["tips"] if x.rewrite.endswith("compact_rows")}
    assert first == f"tips: {N} rows of a table are {n_cells} {how}."
    assert second.startswith(f"tips: {n_cells} rows are summed as ")
    assert explanation.to_dict()["tables"] == {"tips": first.removeprefix("tips: ")[:-1]}


def test_explain_says_that_rows_are_loaded(relation, monkeypatch):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        pm.StudentT("noise", 4, mu=pm.Normal("a"), sigma=1, observed=table["noise"])
    why = "rows of noise hardly repeat"
    advice = "round noise to fewer values in the table, or filter its rows"
    [first, *_] = pymc_fastlogp.explain(model).sentences()
    rows = f"{N} rows of a table, 960.0 kB"
    assert first == f"noise: {rows}, are to be loaded, since {why}: {advice}."
    with monkeypatch.context() as patched:
        patched.setattr("pymc_fastlogp.tables.engine_table.free_memory", lambda: 1_000_000)
        [first, *_] = pymc_fastlogp.explain(model).sentences()
    fit = "do not fit into the memory that is free, 1.0 MB"
    assert first == f"noise: {rows}, {fit}, and {why}: {advice}."
    without_tables(model)
    [first, *_] = pymc_fastlogp.explain(model).sentences()
    assert first == f"noise: {N} rows of a table are loaded, since {why}."


def test_verify_compares_the_first_rows_and_all(model, monkeypatch):
    assert pymc_fastlogp.verify(model, n_random=1)
    # Weights that are wrong by one row are found.
    from pymc_fastlogp.models import weighted_rows

    weighted = weighted_rows.weighted
    monkeypatch.setattr(weighted_rows, "weighted", lambda x, w, axis: weighted(x, w + 1e-9, axis))
    assert not pymc_fastlogp.verify(model, n_random=1)


def test_reparametrize_takes_a_model_of_a_table(model):
    new = pymc_fastlogp.reparametrize(model)
    assert isinstance(new["tips"].owner.op, WeightedRows)
    assert new.rvs_to_values[new["zone"]].name == "zone_site__"


def test_the_compiled_model_is_found_on_disk(model, relation, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path))
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        pymc_fastlogp.compile_pymc_model(model)
        n_files = len([*tmp_path.rglob("*")])
        pymc_fastlogp.compile_pymc_model(build(pymc_fastlogp.table(relation)))
    assert n_files
    assert len([*tmp_path.rglob("*")]) == n_files
    assert "not kept on disk" not in caplog.text


def test_doors_take_factors_of_continuous_rows(relation):
    table = pymc_fastlogp.table(relation)
    with pm.Model() as model:
        a, b, sigma = pm.Normal("a", shape=N_ZONES), pm.Normal("b"), pm.HalfNormal("sigma")
        mu = a[table["zone"]] + b * table["income"]
        pm.Normal("y", mu, sigma, observed=table["noise"])
    [first, *_] = pymc_fastlogp.explain(model).sentences()
    assert first == (
        f"y: {N} rows of a table are to be read as about 23 triangular factors of 1, noise, income by zone (DuckDB: zone, income, noise in batches);"
        " estimated from 100000 rows."
    )
    assert pymc_fastlogp.verify(model, n_random=1)
    idata = pymc_fastlogp.sample(
        100, tune=200, chains=2, random_seed=1, progressbar=False, quiet=True, model=model
    )
    np.testing.assert_allclose(idata.posterior["sigma"].mean(), np.sqrt(1 / 12), rtol=0.01)
    assert float(idata.constant_data["y_n_rows"].sum()) == pytest.approx(N, rel=1e-12)
    assert idata.observed_data["y"].shape == idata.constant_data["y_n_rows"].shape
