"""Kernels and their data live as long as their callers, and no longer."""

import gc
from weakref import ref

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_fastlogp import compile_pymc_model, disabled
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.kernel.graph.held_constants import HeldConstants
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.native import kernels as native

N = 5000
WEIGHTS = np.random.default_rng(0).normal(size=N)
GROUP = np.random.default_rng(1).integers(0, 7, N)
POINT = np.linspace(-1, 1, 7)


def compiled(scale):
    """Return a function with a kernel that reads large constants, another one for each scale."""
    x = pt.dvector("x")
    y = (pt.exp(x)[GROUP] * WEIGHTS).sum() * scale
    return pytensor.function([x], [y, pytensor.grad(y, x)], mode="NUMBA")


def value(scale, point=POINT):
    return (np.exp(point)[GROUP] * WEIGHTS).sum() * scale


def parts(function):
    """Return weak references to the parts of a function: arrays, inner graphs, programs, and machine code."""
    nodes = function.maker.fgraph.toposort()
    held = [each for node in nodes if isinstance(node.op, HeldConstants) for each in node.op.held]
    ops = [node.op for node in nodes if isinstance(node.op, FusedKernel)]
    graphs, programs = [op.fgraph for op in ops], [op.build_program() for op in ops]
    kernels = [kernel for kernel in native._kernels.values() if kernel.program in programs]
    codes = [code for kernel in kernels for code in kernel._codes.values()]
    assert held
    assert codes
    assert len(programs) == len(kernels)
    arrays = [each.array for each in held]
    return [ref(x) for x in (*held, *arrays, *graphs, *programs, *kernels, *codes)]


def are_alive(references):
    gc.collect()
    return {reference() is not None for reference in references}


def overwrite_what_is_free():
    """Compile and allocate, so that memory which was freed too early has something else in it."""
    function = compiled(np.random.default_rng().normal())
    return function(POINT), [np.full(N, np.nan) for _ in range(100)]


@pytest.mark.parametrize("point", [POINT, np.repeat(POINT, 2)[::2]], ids=["C", "strided"])
def test_everything_is_freed_with_the_function(point):
    function = compiled(2.0)
    np.testing.assert_allclose(function(point)[0], value(2.0), rtol=1e-12)
    references = parts(function)
    assert are_alive(references) == {True}
    del function
    assert are_alive(references) == {False}


def test_the_function_of_numba_keeps_everything():
    function = compiled(3.0)
    references, jitted = parts(function), function.vm.jit_fn
    del function
    assert are_alive(references) == {True}
    overwrite_what_is_free()
    np.testing.assert_allclose(jitted(POINT)[0], value(3.0), rtol=1e-12)


def test_numba_code_finds_freed_kernels_again():
    """Numba frees no code, and code of its cache has the same names each time it is loaded."""
    points = [POINT, np.repeat(POINT, 2)[::2]]
    for _ in range(4):
        function = compiled(4.0)
        for point in points:
            np.testing.assert_allclose(function(point)[0], value(4.0), rtol=1e-12)
        references = parts(function)
        del function
        assert are_alive(references) == {False}
        overwrite_what_is_free()


def test_equal_functions_share_a_kernel():
    first, second = compiled(5.0), compiled(5.0)
    references = parts(first)
    del first
    assert are_alive(references) != {False}
    overwrite_what_is_free()
    np.testing.assert_allclose(second(POINT)[0], value(5.0), rtol=1e-12)


def test_a_graph_that_is_compiled_twice_keeps_its_inner_graphs():
    graph = compiled(6.0).maker.fgraph
    pytensor.function(graph.inputs, graph.outputs, mode="NUMBA")
    gc.collect()
    inner = [node.op.fgraph for node in graph.apply_nodes if isinstance(node.op, FusedKernel)]
    assert inner
    assert None not in inner


def test_inner_graphs_are_freed_with_their_models():
    def alive():
        gc.collect()
        ops = (x for x in gc.get_objects() if type(x) is FusedKernel)
        return sum(op.fgraph is not None for op in ops)

    before = alive()
    for scale in (0.5, 0.25):
        compile_pymc_model(make_model(scale))
    assert alive() == before


# nutpie


def make_model(scale=1.0):
    """Return a model with a kernel and data that it holds, others for each scale."""
    rng = np.random.default_rng(3)
    x, group = scale * rng.normal(size=N), rng.integers(0, 7, N)
    y = rng.poisson(np.exp(0.3 * x))
    with pm.Model() as model:
        effect, slope = pm.Normal("effect", shape=7), pm.Normal("slope")
        pm.Poisson("y", pm.math.exp(effect[group] + slope * x), observed=y)
    return model


def compiled_model():
    """Return what nutpie makes of the model."""
    return nutpie.compile_pymc_model(make_model(), freeze_model=True)


@pytest.fixture(scope="module")
def expected():
    """The log density and gradient of the model at some point, by upstream."""
    with disabled():
        callback = LogpCallback.from_compiled(compiled_model())
    return callback.evaluate(np.linspace(-0.2, 0.2, 8))


def test_the_callback_of_nutpie_lives_as_long_as_its_model(expected):
    compiled = compiled_model()
    references = parts(compiled.logp_func)
    kept = compiled._make_model(None)
    callback = LogpCallback.from_compiled(compiled)
    callback = LogpCallback(callback.address, callback.user_data, callback.n_dim, kept)
    del compiled
    assert are_alive(references) == {True}
    overwrite_what_is_free()
    for found, value in zip(callback.evaluate(np.linspace(-0.2, 0.2, 8)), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-11)
    del callback, kept
    assert are_alive(references) == {False}


def test_the_callback_alone_keeps_everything(expected):
    compiled = compiled_model()
    references, kept = parts(compiled.logp_func), compiled.compiled_logp_func
    del compiled
    assert are_alive(references) == {True}
    overwrite_what_is_free()
    callback = LogpCallback(kept.address, 0, 8, kept)
    assert np.isclose(callback.evaluate(np.linspace(-0.2, 0.2, 8))[0], expected[0], rtol=1e-11)


def test_a_sampler_in_the_background_keeps_everything():
    compiled = compiled_model()
    references = parts(compiled.logp_func)
    sampler = nutpie.sample(
        compiled, draws=300, tune=300, chains=2, seed=1, blocking=False, progress_bar=False
    )
    del compiled
    assert are_alive(references) == {True}
    for _ in range(3):
        overwrite_what_is_free()
    posterior = sampler.wait().posterior
    assert abs(float(posterior["slope"].mean()) - 0.3) < 0.1
    del sampler
    assert are_alive(references) == {False}


def test_call_after_release_is_an_error():
    """Numba's code stays, so the address of a callback is one for ever; its kernel is gone."""
    compiled = compiled_model()
    callback = LogpCallback(compiled.compiled_logp_func.address, 0, 8, None)
    assert np.isfinite(callback.evaluate(np.zeros(8))[0])
    del compiled
    gc.collect()
    with pytest.raises(FloatingPointError, match="status 1"):
        callback.evaluate(np.zeros(8))
