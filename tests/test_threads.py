"""Compiling in several threads at once.

Upstream is not safe at its first compilation, when it imports the modules of its Numba backend: a thread may see half of the
dispatch. After that, Numba compiles under a lock of its own, and PyTensor rewrites without one.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.native import kernels, machine_code
from tests.kernel.test_lifetime import are_alive, parts
from tests.slices import examples

N_THREADS = examples(2, 8)
LIKELIHOODS = {
    "normal": lambda eta, rng: pm.Normal("y", eta, 2, observed=rng.normal(size=300)),
    "poisson": lambda eta, rng: pm.Poisson("y", pt.exp(eta), observed=rng.poisson(2, size=300)),
    "bernoulli": lambda eta, rng: pm.Bernoulli(
        "y", logit_p=eta, observed=rng.integers(2, size=300)
    ),
    "student_t": lambda eta, rng: pm.StudentT(
        "y", nu=4, mu=eta, sigma=1, observed=rng.normal(size=300)
    ),
}


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    """Let threads be interrupted as often as Python allows, after upstream has imported its backend."""
    x = pt.dscalar("x")
    pytensor.function([x], pt.exp(x) + 1, mode="NUMBA")(0.0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(function, arguments):
    """Return what threads that start at the same time make of the arguments, a thread each."""
    barrier = Barrier(len(arguments))

    def run(argument):
        barrier.wait()
        return function(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))


def make_model(k):
    """Return another model for each number."""
    rng = np.random.default_rng(k)
    n_groups = 3 + k
    with pm.Model() as model:
        effect, slope = pm.Normal("effect", shape=n_groups), pm.Normal("slope")
        eta = effect[rng.integers(n_groups, size=300)] + slope * rng.normal(size=300)
        [*LIKELIHOODS.values()][k % len(LIKELIHOODS)](eta, rng)
    return model


def logp_and_gradient(model, mode="NUMBA"):
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    function.set_extra_values({})
    n = sum(value.size for value in model.initial_point().values())
    return function(np.linspace(-0.5, 0.5, n))


def test_threads_compile_models_at_once():
    models = [make_model(k) for k in range(N_THREADS)]
    found = at_once(logp_and_gradient, models)
    with disabled():
        expected = [logp_and_gradient(model, Mode("py", "fast_compile")) for model in models]
    for (logp, gradient), (logp_expected, gradient_expected) in zip(found, expected, strict=True):
        np.testing.assert_allclose(logp, logp_expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, gradient_expected, rtol=1e-11, atol=1e-11)


def functions_of_one_graph(numbers):
    x = pt.dvector("x")
    weights = np.linspace(0, 1, 2000)
    y = (pt.exp(x)[np.arange(2000) % 7] * weights).sum() * 1.125
    return pytensor.function([x], [y, pytensor.grad(y, x)], mode="NUMBA")


def test_threads_that_compile_the_same_share_a_kernel(monkeypatch):
    loaded = []
    load = machine_code.load
    monkeypatch.setattr(machine_code, "load", lambda *args: loaded.append(1) or load(*args))
    functions = at_once(functions_of_one_graph, range(N_THREADS))
    assert len(loaded) == 1
    ops = [
        [node.op for node in function.maker.fgraph.toposort() if isinstance(node.op, FusedKernel)]
        for function in functions
    ]
    assert len({kernels.load(op.build_program()) for [op] in ops}) == 1
    values = [function(np.zeros(7))[0] for function in functions]
    np.testing.assert_allclose(values, 1.125 * 1000, rtol=1e-13)
    references = [reference for function in functions for reference in parts(function)]
    del functions, ops
    assert are_alive(references) == {False}


def test_threads_compile_and_drop_the_same(monkeypatch):
    """A thread loads a kernel that another thread has freed, while a third calls the remaining kernels."""

    def run(seed):
        for _ in range(5):
            function = functions_of_one_graph(seed)
            assert np.isclose(function(np.zeros(7))[0], 1.125 * 1000)
            del function
        return True

    assert all(at_once(run, range(N_THREADS)))
