"""Convergence checks of ``sample``: the statistics against ArviZ, and each line of the log."""

import logging

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_stats import ess, rhat

import pymc_fastlogp
from pymc_fastlogp.sampling import convergence
from tests.callbacks import models

LOGGER = "pymc.stats.convergence"


def mixing_badly(n_chains: int, n_draws: int) -> np.ndarray:
    """Return draws of six parameters, shape ``(n_chains, n_draws, 6)``."""
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(n_chains, n_draws, 6))
    draws = noise.copy()
    for t in range(1, n_draws):
        draws[:, t, 1] = 0.95 * draws[:, t - 1, 1] + noise[:, t, 1]
        draws[:, t, 2] = -0.7 * draws[:, t - 1, 2] + noise[:, t, 2]
    draws[..., 3] += np.arange(n_chains)[:, None]
    draws[..., 4] *= 1 + np.arange(n_chains)[:, None]
    draws[..., 5] = np.round(draws[..., 5], 1)  # ties
    return draws


def as_tree(draws, n_diverging=0, deep=()):
    """Return a result with one variable, ``x``."""
    n_chains, n_draws = draws.shape[:2]
    dims = ("chain", "draw", *(f"x_dim_{k}" for k in range(draws.ndim - 2)))
    diverging = np.zeros((n_chains, n_draws), bool)
    diverging[0, :n_diverging] = True
    maxdepth = np.zeros((n_chains, n_draws), bool)
    maxdepth[list(deep)] = True
    stats = {"diverging": diverging, "maxdepth_reached": maxdepth}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"x": (dims, draws)}),
            "sample_stats": xr.Dataset({x: (("chain", "draw"), y) for x, y in stats.items()}),
        }
    )


def logged(caplog, draws, *, is_reparametrized=False, **stats):
    with pm.Model() as model:
        pm.Normal("x", shape=draws.shape[2:])
    with caplog.at_level(logging.INFO, LOGGER):
        convergence.log_problems(
            as_tree(draws, **stats), model, is_reparametrized=is_reparametrized
        )
    return caplog.messages


@pytest.mark.parametrize("n_draws", [100, 333])
@pytest.mark.parametrize("n_chains", [2, 5])
def test_statistics_are_those_of_arviz(n_chains, n_draws):
    draws = mixing_badly(n_chains, n_draws)
    names, halves = convergence._least_mixed({"x": draws})
    order = [int(name.removeprefix("x[").removesuffix("]")) for name in names]
    scores = convergence._normal_scores(halves)
    distances = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
    folded = convergence._rhat(convergence._normal_scores(distances))
    found = [np.fmax(convergence._rhat(scores), folded), convergence._effective_sample_size(scores)]
    for function, values in zip((rhat, ess), found, strict=True):
        expected = function(xr.Dataset({"x": (("chain", "draw", "k"), draws)}))["x"]
        np.testing.assert_allclose(values, np.asarray(expected)[order], rtol=1e-9)


def test_converged_chains_log_nothing(caplog):
    draws = np.random.default_rng(2).normal(size=(4, 1000, 3))
    assert logged(caplog, draws) == []


def test_large_rhat_and_small_effective_sample_sizes_are_logged(caplog):
    draws = np.random.default_rng(2).normal(size=(4, 1000, 3, 2))
    draws[1, ..., 2, 1] += 1
    rhat_line, ess_line = logged(caplog, draws)
    assert "rhat statistic is larger than 1.01" in rhat_line
    assert "for x[2, 1]" in rhat_line
    assert "effective sample size per chain is smaller than 100" in ess_line
    assert "for x[2, 1]" in ess_line


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0], ids=str)
def test_parameters_that_are_constant_or_not_finite_are_left_out(caplog, bad):
    draws = np.random.default_rng(2).normal(size=(4, 200, 2))
    draws[..., 0] = bad
    assert logged(caplog, draws) == []
    draws[0, :, 1] = 3
    assert any("for x[1]" in line for line in logged(caplog, draws))


def test_chains_that_are_stuck_are_logged(caplog):
    draws = np.array([1.0, -1.0])[:, None] * np.ones((2, 200))
    assert any("rhat" in line for line in logged(caplog, draws))


@pytest.mark.parametrize(("shift", "is_hint"), [(0.5, False), (2.0, True)])
@pytest.mark.parametrize("is_reparametrized", [False, True])
def test_chains_in_different_places_get_the_hint_to_reparametrize(
    caplog, shift, is_hint, is_reparametrized
):
    draws = np.random.default_rng(2).normal(size=(4, 1000))
    draws[1] += shift
    found = logged(caplog, draws, is_reparametrized=is_reparametrized)
    assert any("rhat" in line for line in found)
    hinted = any("reparametrize=True" in line for line in found)
    assert hinted == (is_hint and not is_reparametrized)


def test_least_mixed_of_many_parameters_is_ranked_first(caplog, monkeypatch):
    monkeypatch.setattr(convergence, "MOST_DRAWS", 2000)
    draws = np.random.default_rng(2).normal(size=(4, 200, 50))
    draws[1, :, 37] += 2
    names, halves = convergence._least_mixed({"x": draws})
    assert names[0] == "x[37]"
    assert halves.shape == (2, 8, 100)
    assert any("for x[37]" in line for line in logged(caplog, draws))


@pytest.mark.parametrize(
    ("shape", "line"),
    [((4, 50), "too small"), ((1, 200), "Only one chain"), ((2, 200), "At least 4 chains")],
)
def test_too_few_draws_or_chains_are_logged(caplog, shape, line):
    (found,) = logged(caplog, np.random.default_rng(2).normal(size=shape))
    assert line in found


@pytest.mark.parametrize(
    ("stats", "line"),
    [
        ({"n_diverging": 1}, "There was 1 divergence after tuning"),
        ({"n_diverging": 7}, "There were 7 divergences after tuning"),
        ({"deep": [2]}, "Chain 2 reached the maximum tree depth"),
    ],
)
@pytest.mark.parametrize("is_reparametrized", [False, True])
def test_divergences_and_deep_trees_are_logged(caplog, stats, line, is_reparametrized):
    draws = np.random.default_rng(2).normal(size=(4, 1000))
    found = logged(caplog, draws, is_reparametrized=is_reparametrized, **stats)
    assert line in found[0]
    hints = [x for x in found[1:] if "reparametrize=True" in x]
    assert len(hints) == len(found) - 1 == (not is_reparametrized)


def test_pymc_logs_in_the_same_cases(caplog):
    draws = mixing_badly(4, 1000)
    with pm.Model() as model:
        pm.Normal("x", shape=6)
    tree = as_tree(draws, n_diverging=3)
    expected = [x.message for x in pm.stats.convergence.run_convergence_checks(tree, model)]
    found = [x for x in logged(caplog, draws, n_diverging=3) if "reparametrize" not in x]
    assert [x.split(" for some")[0] for x in found] == [x.split(" for some")[0] for x in expected]


@pytest.mark.parametrize(
    ("options", "is_checked"),
    [({}, True), ({"quiet": True}, False), ({"compute_convergence_checks": False}, False)],
    ids=["default", "quiet", "off"],
)
def test_sample_checks_unless_told_otherwise(caplog, options, is_checked):
    with pm.Model() as funnel:
        log_scale = pm.Normal("log_scale", 0, 3)
        pm.Normal("x", 0, pm.math.exp(2 * log_scale), shape=3)
    settings = {"tune": 100, "chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}
    with caplog.at_level(logging.INFO, LOGGER):
        pymc_fastlogp.sample(300, model=funnel, **settings, **options)
    lines = [x.getMessage() for x in caplog.records if x.name == LOGGER]
    assert bool(lines) == is_checked
    if is_checked:
        for part in ("after tuning", "reparametrize=True", "rhat statistic", "sample size"):
            assert any(part in line for line in lines), part


def test_variables_that_are_not_stored_are_not_checked():
    options = {"tune": 50, "chains": 2, "cores": 1, "progressbar": False, "var_names": []}
    pymc_fastlogp.sample(200, model=models.one_number(), **options)


def test_statistics_of_samplers_without_trees_are_enough(caplog):
    tree = as_tree(np.random.default_rng(2).normal(size=(4, 1000)), n_diverging=2)
    tree["sample_stats"] = tree["sample_stats"].to_dataset().drop_vars("maxdepth_reached")
    with pm.Model() as model:
        pm.Normal("x")
    with caplog.at_level(logging.INFO, LOGGER):
        convergence.log_problems(tree, model, is_reparametrized=True)
    assert len(caplog.messages) == 1
