"""Large models: upstream's answer, in memory that stays flat."""

import gc

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_fastlogp
from benchmarks.machine import process_memory
from tests.faults.compare import PYTHON, assert_as_upstream
from tests.faults.models import X, grouped

RNG = np.random.default_rng(1)


def a_scan_of_1000_steps() -> pm.Model:
    x = np.linspace(-1, 1, 1000)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.1)
        states = pytensor.scan(
            lambda x, before, rho: rho * pt.tanh(before) + x,
            sequences=[pt.as_tensor(x)],
            outputs_info=[pt.zeros(())],
            non_sequences=[rho],
            return_updates=False,
        )
        pm.Normal("y", states, 1, observed=x)
    return model


def ten_thousand_parameters() -> pm.Model:
    group, y = np.arange(20_000) * 7 % 10_000, np.arange(20_000) % 4
    with pm.Model() as model:
        a = pm.Normal("a", 0, pm.HalfNormal("sigma"), shape=10_000)
        pm.Poisson("y", pt.exp(a[group]), observed=y)
    return model


def a_mixture_of_100() -> pm.Model:
    with pm.Model() as model:
        w, mu = pm.Dirichlet("w", np.ones(100)), pm.Normal("mu", shape=100)
        pm.NormalMixture("y", w, mu, 1.0, observed=np.linspace(-2, 2, 50))
    return model


def a_chain_300_deep() -> pm.Model:
    with pm.Model() as model:
        v = pm.Normal("v0")
        for k in range(1, 300):
            v = pm.Normal(f"v{k}", v, 1)
        pm.Normal("y", v, 1, observed=1.0)
    return model


def likelihoods_300() -> pm.Model:
    group, y = np.arange(10) % 5, np.linspace(-1, 1, 10)
    with pm.Model() as model:
        a, sigma = pm.Normal("a", shape=5), pm.HalfNormal("sigma")
        for k in range(300):
            pm.Normal(f"y{k}", a[group] + k / 100, sigma, observed=y + k / 200)
    return model


@pytest.mark.parametrize("make", [a_scan_of_1000_steps, ten_thousand_parameters])
def test_large_models_agree(make):
    assert_as_upstream(make, PYTHON)


@pytest.mark.slow
@pytest.mark.parametrize("make", [a_mixture_of_100, a_chain_300_deep, likelihoods_300])
def test_larger_models_agree(make):
    # Operations of more than 32 inputs need compiled code.
    assert_as_upstream(make, "NUMBA")


@pytest.mark.slow
def test_ten_million_rows_agree():
    n = 10_000_000
    group, x, y = RNG.integers(50, size=n), RNG.normal(size=n), RNG.integers(2, size=n)

    def make():
        with pm.Model() as model:
            a, b = pm.Normal("a", shape=50), pm.Normal("b")
            pm.Bernoulli("y", logit_p=a[group] + b * x, observed=y)
        return model

    assert_as_upstream(make, PYTHON)


@pytest.mark.slow
@pytest.mark.usefixtures("default_collector")
def test_memory_stays_flat_over_200_models(monkeypatch):
    """Python and LLVM keep less than 1 MB of a model; with PyMC alone 10 MB are kept (`python -m benchmarks.compile_time models`)."""
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", "0")

    def compile_some(first, last):
        for k in range(first, last):
            pymc_fastlogp.compile_pymc_model(grouped("poisson", X + k))
        gc.collect()
        return process_memory("VmRSS")

    before = compile_some(0, 50)
    assert compile_some(50, 200) - before < 150 * 1_000_000
