"""Log likelihoods of partitions of the rows, and their sum, equal those of all rows in one process."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.models.row_likelihood import split_tables
from pymc_fastlogp.sampling.cluster.sharded_likelihood import ShardedLikelihood
from pymc_fastlogp.sampling.cluster.shards import Shards
from tests.cluster.conftest import logit, rows

pytestmark = pytest.mark.usefixtures("few_partitions")


def student(table):
    """Covariates in several places, and an effect by rows of a matrix of parameters."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=(4, 2))
        sigma = pm.Gamma("sigma", 2, 2)
        mu = a[table["shop"], 0] + a[table["shop"], 1] * table["x"]
        scale = sigma * pm.math.exp(0.1 * table["x"])
        pm.StudentT("y", 4, mu=mu, sigma=scale, observed=table["y"])
    return model


def two_likelihoods(table):
    """One likelihood that does not reduce, one that does, and a potential over rows."""
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=4), pm.Normal("b")
        pm.Bernoulli("y", logit_p=a[table["shop"]] * table["x"], observed=table["y"])
        pm.Poisson("z", pm.math.exp(b), observed=table["z"])
        pm.Potential("p", -pm.math.log1p((b - table["x"]) ** 2))
    return model


def free_data(table):
    """Data and coordinates that PyMC may exchange."""
    with pm.Model() as model:
        scale = pm.Data("scale", 2.0)
        b = pm.Normal("b", 0, scale)
        pm.Bernoulli("y", logit_p=b * scale * table["x"], observed=table["y"])
    return model


@pytest.mark.parametrize("build", [logit, student, two_likelihoods, free_data])
def test_prior_and_shards_add_up_to_the_log_density(build, here, table):
    model = build(table)
    split = split_tables(model)
    prior = pymc_fastlogp.compile_pymc_model(split.model)
    names, places, of_names = prior.shape_info
    n_values = len(split.model.free_RVs)
    shapes = dict(zip(names[:n_values], of_names))
    point = np.random.default_rng(1).normal(0, 0.5, prior.n_dim)
    with ShardedLikelihood(here, split.likelihoods, shapes, 1) as sharded:
        likelihood = sharded.evaluate(point)
    logp, gradient = prior.logp_dlogp(point)
    logp, gradient = logp + likelihood[0], gradient + likelihood[1:]

    whole = pymc_fastlogp.compile_pymc_model(model)
    of_whole = dict(zip(*whole.shape_info[:2]))
    moved = np.empty(whole.n_dim)
    for name, place in zip(names[:n_values], places):
        moved[of_whole[name]] = point[place]
    expected, expected_gradient = whole.logp_dlogp(moved)
    # Terms of a sum are smaller than 10 for these rows, in absolute value.
    tolerance = 1e-12 * 10 * table.n_rows
    assert abs(logp - expected) < tolerance
    for name, place in zip(names[:n_values], places):
        assert np.abs(gradient[place] - expected_gradient[of_whole[name]]).max() < tolerance


def test_likelihoods_that_reduce_stay_in_this_process(table):
    split = split_tables(two_likelihoods(table))
    assert {x.name for x in split.likelihoods} == {"y", "p"}
    assert {"z", "z_n_rows"} <= {*split.model.named_vars}
    assert not {"y", "p"} & {*split.model.named_vars}


def test_a_model_without_likelihoods_to_evaluate_elsewhere_is_returned_as_it_is(table):
    with pm.Model() as model:
        pm.Poisson("z", pm.Exponential("rate"), observed=table["z"])
    split = split_tables(model)
    assert split.model is model
    assert split.likelihoods == ()


def test_draws_of_the_shard_models_do_not_depend_on_the_grouping_of_shards(table):
    [likelihood] = split_tables(logit(table)).likelihoods
    content = cloudpickle.dumps([likelihood])
    shapes = {"tau_log__": (), "a": (4,), "b": ()}
    loaded = [(0, x.load()) for x in likelihood.partitions]
    point = np.linspace(-1, 1, 6)
    together = Shards(content, shapes, loaded, 1).evaluate(point)
    alone = [Shards(content, shapes, [x], 1).evaluate(point) for x in loaded]
    assert together.tobytes() == np.concatenate(alone).tobytes()


def test_a_failed_check_makes_a_log_likelihood_nan(here, table):
    with pm.Model() as model:
        sigma = pm.Normal("sigma")
        pm.StudentT("y", 4, mu=0, sigma=sigma, observed=table["x"])
    split = split_tables(model)
    with ShardedLikelihood(here, split.likelihoods, {"sigma": ()}, 1) as likelihood:
        assert not np.isfinite(likelihood.evaluate(np.array([-1.0]))[0])
        assert np.isfinite(likelihood.evaluate(np.array([1.0]))).all()


def test_files_are_read_by_the_workers(here, tmp_path):
    pytest.importorskip("duckdb")
    frame = rows(3000)
    for k in range(3):
        frame[1000 * k : 1000 * (k + 1)].to_parquet(tmp_path / f"{k}.parquet")
    point = np.linspace(-1, 1, 6)
    shapes = {"tau_log__": (), "a": (4,), "b": ()}
    found = []
    for source in (frame, str(tmp_path / "*.parquet")):
        split = split_tables(logit(pymc_fastlogp.table(source)))
        with ShardedLikelihood(here, split.likelihoods, shapes, 1) as likelihood:
            found.append(likelihood.evaluate(point))
    assert found[0].tobytes() == found[1].tobytes()
