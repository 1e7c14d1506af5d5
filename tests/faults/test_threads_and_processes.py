"""Eight threads that compile for samplers, and processes that are forked or spawned.

A process that is forked while another thread compiles may wait for ever, with the plugin and without: the locks of Numba and llvmlite stay locked in the child.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytensor
import pytest

import pymc_fastlogp
from tests.faults.compare import directly, logp_and_gradient
from tests.faults.models import OBSERVED, X, grouped

SECONDS = 120
POINT = np.linspace(-0.5, 0.5, 7)


@pytest.mark.parametrize(
    "is_same",
    [pytest.param(True, marks=pytest.mark.slow), False],
    ids=["one model", "eight models"],
)
def test_eight_threads_compile_for_samplers(is_same, tmp_path, monkeypatch):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path / "cache"))
    kinds = ["poisson"] * 8 if is_same else [*OBSERVED]
    models = [grouped(kind, 1.5 * X) for kind in kinds]
    barrier = Barrier(8)

    def run(model):
        barrier.wait()
        return directly(model)

    mode = pytensor.config.mode
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, models))
    assert pytensor.config.mode is mode
    for kind, (logp, gradient) in zip(kinds, found, strict=True):
        expected, expected_gradient = directly(grouped(kind, 1.5 * X))
        assert logp == expected
        np.testing.assert_array_equal(gradient, expected_gradient)


def call(function):
    """Call what was pickled, in another process."""
    return [np.asarray(each) for each in function(POINT)]


def compile_both(kind):
    """Compile in another process."""
    return directly(grouped(kind)), logp_and_gradient(grouped(kind))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_compiled_function_runs_in_another_process(method):
    function = grouped().logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    function.set_extra_values({})
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found = pool.submit(call, function).result(SECONDS)
    for one, other in zip(found, call(function), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_worker_process_compiles(method):
    context = multiprocessing.get_context(method)
    expected = compile_both("poisson")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found = pool.submit(compile_both, "poisson").result(SECONDS)
    for (logp, gradient), (value, value_gradient) in zip(found, expected, strict=True):
        assert logp == value
        np.testing.assert_array_equal(gradient, value_gradient)


def test_a_forked_process_calls_what_was_compiled_before():
    compiled = pymc_fastlogp.compile_pymc_model(grouped())
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(compiled.logp_dlogp(POINT)))
    process.start()
    process.join(SECONDS)
    assert process.exitcode == 0
    logp, gradient = queue.get()
    expected, expected_gradient = compiled.logp_dlogp(POINT)
    assert logp == expected
    np.testing.assert_array_equal(gradient, expected_gradient)
