"""Graphs without linking, initial points without compilation, and the garbage collector during a compilation."""

import gc
import sys

import numpy as np
import nutpie
import pymc as pm
import pytest
from numba.core.errors import TypingError
from pytensor.scan.op import Scan

import pymc_fastlogp
from benchmarks.gallery import MODELS
from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.graphs import (
    RewrittenFunction,
    functions_of,
    initial_value_graph,
)
from pymc_fastlogp.compilation.model_source import InitialPoint, ModelSource
from pymc_fastlogp.models.compile_lock import existing_objects_frozen
from tests.callbacks import models

OPTIONS = {
    "initial_points": None,
    "jitter_rvs": None,
    "default_initialization_strategy": "support_point",
    "var_names": None,
}


def source_of(model, **options):
    return ModelSource(model, OPTIONS | options, freeze=True)


def expected_points(model, seeds, **options):
    """Return PyMC's initial points by the function that it compiles."""
    function = source_of(model, **options).function
    return [np.concatenate([np.ravel(x) for x in function(seed).values()]) for seed in seeds]


@pytest.mark.parametrize("make", models.DIRECT, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"jitter_rvs": []}, {"default_initialization_strategy": "prior"}],
    ids=["jitter", "none", "prior"],
)
def test_initial_points_are_those_that_pymc_compiles(make, options):
    model = make()
    source = source_of(model, **options)
    shapes = functions_of(source, None).shape_info[2][: len(model.free_RVs)]
    graph = initial_value_graph(source)
    content = interpreter.dump(graph, None)
    if content is None:  # left to PyMC, as are draws of an LKJ prior
        assert any(isinstance(node.op, Scan) for node in graph.apply_nodes)
        return
    found = InitialPoint(content, shapes)
    for seed, expected in enumerate(expected_points(model, range(3), **options)):
        np.testing.assert_array_equal(found(seed), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_initial_points_of_the_gallery_equal_pymcs(name):
    model = MODELS[name].make()
    content = interpreter.dump(initial_value_graph(source_of(model)), None)
    if content is None:  # left to PyMC, as with a Scan
        return
    n_values = len(model.free_RVs)
    shapes = [np.shape(x) for x in source_of(model).function(0).values()]
    found = InitialPoint(content, shapes[:n_values])
    for seed, expected in enumerate(expected_points(model, range(2))):
        np.testing.assert_array_equal(found(seed), expected)


def test_graphs_are_linked_when_they_are_called():
    functions = functions_of(source_of(models.hierarchy()), None)
    assert type(functions.logp) is RewrittenFunction
    assert "linked" not in vars(functions.logp)
    x = np.linspace(0.1, 0.8, functions.n_dim)
    logp, gradient = functions.logp(x)
    expected = nutpie.compile_pymc_model(models.hierarchy(), freeze_model=True).logp_func(x)
    assert logp == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])
    assert callable(functions.logp.vm)


def test_shapes_that_types_do_not_know_are_evaluated():
    with pm.Model() as model:
        slope, start = pm.Normal("slope"), pm.Normal.dist()
        path = pm.EulerMaruyama(
            "path", 0.5, lambda x, slope: (slope * x, 2.0), (slope,), shape=6, init_dist=start
        )
    assert None in model.rvs_to_values[path].type.shape
    assert pymc_fastlogp.compile_pymc_model(model).n_dim == 7


def test_random_variables_in_what_is_stored_are_nutpies_error():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Deterministic("noisy", x + pm.Normal.dist())
    for compile_model in (nutpie.compile_pymc_model, pymc_fastlogp.compile_pymc_model):
        with pytest.raises((TypingError, AttributeError, TypeError)):
            compile_model(model)


def test_unused_libraries_are_not_imported_and_pymc_is_not_collected(run_script):
    """SciPy's matrices, PyTensor's virtual machine, which is compiled as C, and the objects of PyMC, which stay."""
    source = """
        import gc, sys
        from tests.callbacks import models
        model = models.hierarchy()
        import pymc_fastlogp
        from pymc_fastlogp.sampling.compile_model import compiled_record
        from pymc_fastlogp.sampling.request import request_of
        collections = []
        gc.callbacks.append(lambda phase, about: collections.append(about["generation"]) if gc.get_freeze_count() == 0 else None)
        compiled_record(request_of(model))
        print(2 in collections, "scipy.linalg" in sys.modules)
        compiled = pymc_fastlogp.compile_pymc_model(models.hierarchy())
        compiled.initial_point_func(0)
        print("pytensor.link.c.cvm" in sys.modules, type(compiled.compiled_logp_func).__name__)
        """
    said = run_script(source, PYMC_FASTLOGP_CACHE="0").stdout.split()
    assert said == ["False", "False", "False", "DirectCallback"]


class TestCollector:
    """Objects that were there before are not looked at."""

    @pytest.mark.skipif(gc.get_freeze_count() > 0, reason="this Python freezes objects itself")
    def test_outermost_block_unfreezes(self):
        with existing_objects_frozen():
            assert gc.get_freeze_count() > 0
            with existing_objects_frozen():
                pass
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() == 0

    def test_new_objects_are_collected(self):
        with existing_objects_frozen():
            circle = []
            circle.append(circle)
            del circle
            assert gc.collect() > 0

    def test_objects_frozen_before_stay_frozen(self):
        gc.freeze()
        try:
            with existing_objects_frozen():
                pass
            assert gc.get_freeze_count() > 0
        finally:
            gc.unfreeze()

    def test_unfreezes_after_an_error(self):
        with pytest.raises(ZeroDivisionError), existing_objects_frozen():
            sys.exit(1 // 0)
        assert gc.get_freeze_count() == 0
