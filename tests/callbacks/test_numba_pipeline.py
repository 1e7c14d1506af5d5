"""``compile_kwargs()``: nutpie's own callbacks without Numba, and the cases that Numba compiles."""

import gc

import numba
import numpy as np
import nutpie
import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp._upstream.numba_pipeline import NotTracedError, Traced, traced
from pymc_fastlogp.callbacks.numba_pipeline import CallbackLibrary, library_of, pipeline_class
from tests.callbacks import models
from tests.callbacks.calls import expand, logp, points

PIPELINE = pymc_fastlogp.compile_kwargs()


def is_direct(callback) -> bool:
    return isinstance(callback._library, CallbackLibrary)


def test_freezes_the_model_and_names_the_pipeline():
    assert {"freeze_model": True, "pipeline_class": pipeline_class()} == PIPELINE


def test_numba_compiles_nothing(pair):
    assert is_direct(pair.by_pipeline.compiled_logp_func)
    assert is_direct(pair.by_pipeline.compiled_expand_func)
    assert not is_direct(pair.nutpie.compiled_logp_func)
    assert "define" in pair.by_pipeline.compiled_logp_func.inspect_llvm()


def test_results_are_equal_bit_for_bit(pair):
    for x in points(pair.nutpie):
        for found, expected in zip(logp(pair.by_pipeline, x), logp(pair.nutpie, x), strict=True):
            np.testing.assert_array_equal(found, expected)
        for found, expected in zip(
            expand(pair.by_pipeline, x), expand(pair.nutpie, x), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_status_is_that_of_nutpie(pair):
    x = points(pair.nutpie, 1)[0]
    for each in (np.full(len(x), 1e200), np.full(len(x), np.nan)):
        assert logp(pair.by_pipeline, each)[0] == logp(pair.nutpie, each)[0]
    assert logp(pair.by_pipeline, x, len(x) + 1)[0] == -1
    assert expand(pair.by_pipeline, x, pair.by_pipeline.n_expanded + 1)[0] == -1


def test_draws_are_equal_bit_for_bit(pair):
    options = {"draws": 20, "tune": 40, "chains": 2, "cores": 2, "seed": 4, "progress_bar": False}
    found, expected = (nutpie.sample(each, **options) for each in (pair.by_pipeline, pair.nutpie))
    for name in expected.posterior.data_vars:
        np.testing.assert_array_equal(found.posterior[name], expected.posterior[name])


def test_pm_sample_accepts_the_pipeline():
    options = {"draws": 20, "tune": 40, "chains": 1, "random_seed": 2, "progressbar": False}
    options |= {"nuts_sampler": "nutpie", "quiet": True, "compute_convergence_checks": False}
    found = pm.sample(model=models.hierarchy(), compile_kwargs=PIPELINE, **options)
    frozen = {"freeze_model": True}
    expected = pm.sample(model=models.hierarchy(), compile_kwargs=frozen, **options)
    np.testing.assert_array_equal(found.posterior["a"], expected.posterior["a"])


def test_compile_and_sample_accept_the_pipeline():
    compiled = pymc_fastlogp.compile_pymc_model(models.hierarchy(), **PIPELINE)
    assert compiled.frozen_data == {"x", "group"}
    idata = pymc_fastlogp.sample(
        10, tune=10, chains=1, model=models.one_number(), compile_kwargs=PIPELINE, progressbar=False
    )
    assert idata.posterior["x"].shape == (1, 10)


def test_code_lives_as_long_as_the_model():
    compiled = nutpie.compile_pymc_model(models.regression(), **PIPELINE)
    x = points(compiled, 1)[0]
    before = logp(compiled, x)
    nutpie.compile_pymc_model(models.one_number(), **PIPELINE)
    gc.collect()
    after = logp(compiled, x)
    assert before[:2] == after[:2]
    np.testing.assert_array_equal(before[2], after[2])


class TestLeftToNumba:
    """Graphs with shared data, or that are not nutpie's, are left to Numba."""

    def test_shared_data_are_left_to_numba(self):
        options = PIPELINE | {"freeze_model": False}
        compiled = nutpie.compile_pymc_model(models.hierarchy(), **options)
        expected = nutpie.compile_pymc_model(models.hierarchy())
        assert not is_direct(compiled.compiled_logp_func)
        x = points(expected, 1)[0]
        np.testing.assert_array_equal(logp(compiled, x)[2], logp(expected, x)[2])

    def test_switched_off_plugin_leaves_all_to_numba(self):
        with pymc_fastlogp.disabled():
            compiled = nutpie.compile_pymc_model(models.regression(), **PIPELINE)
        assert not is_direct(compiled.compiled_logp_func)

    def test_function_of_the_user_is_compiled_by_numba(self):
        @numba.cfunc("float64(float64)", pipeline_class=pipeline_class())
        def twice(x):
            return 2 * x

        assert twice.ctypes(1.5) == 3.0

    def test_function_of_the_same_name_is_not_replaced(self):
        def _make_c_logp_func():
            def logp_numba(n_dim):
                return n_dim

            return logp_numba

        function = _make_c_logp_func()
        function.__qualname__ = "_make_c_logp_func.<locals>.logp_numba"
        assert library_of(function) is None


class TestTraced:
    """Calls of a graph's function are traced."""

    def test_a_function_of_the_user_is_not_run(self):
        ran = []

        def appends(x):
            ran.append(x)

        with pytest.raises(NotTracedError, match="a function that is not PyTensor's"):
            traced(appends)
        assert ran == []

    def test_untraced_function_is_named(self):
        with pytest.raises(NotTracedError, match="opaque"):
            traced(_graph)

    def test_an_input_is_traced(self):
        [x] = traced(_identity)
        assert (type(x), x.number, x.call) == (Traced, 0, None)


def opaque(x):
    raise AssertionError


def _graph(x):
    return (opaque(x),)


def _identity(x):
    return (x,)


def test_other_backends_ignore_the_pipeline():
    pytest.importorskip("jax")
    compiled = nutpie.compile_pymc_model(models.one_number(), backend="jax", **PIPELINE)
    assert compiled.n_dim == 1
