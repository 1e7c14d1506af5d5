"""Rewriting a model of many rows needs little more memory than upstream does by itself."""

import gc
import tracemalloc

import numpy as np
import pymc as pm
import pytest
from llvmlite import ir
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph import rewrite_graph

import pymc_fastlogp
from benchmarks.compile_time.rows import GROUPS, MODELS, counts, data_bytes, logit
from benchmarks.machine import process_memory
from pymc_fastlogp.benchmarking.run import compile_model
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.native.target import optimized, target_machine
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.rewrites.rows.view import chunks, keys

pytestmark = pytest.mark.usefixtures("default_collector")
ROWS = 2_000_000
I64 = ir.IntType(64)


def peak_share(name: str, side: str) -> float:
    """Return the peak of memory while the log density is made and rewritten, over the data's bytes."""
    model = MODELS[name](ROWS)
    size, model = data_bytes(model), freeze_dims_and_data(model)
    gc.collect()
    tracemalloc.start()
    with switched(side == "on"):
        rewrite_graph(model.logp(), include=["canonicalize", "stabilize"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / size


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS])
def test_peak_memory_is_bounded(name, monkeypatch):
    # The same shares of the rows as of 10 million.
    monkeypatch.setattr(chunks, "CHUNK", chunks.CHUNK * ROWS // 10_000_000)
    monkeypatch.setattr(keys, "SAMPLE", keys.SAMPLE * ROWS // 10_000_000)
    on, off = peak_share(name, "on"), peak_share(name, "off")
    assert on <= max(3, off + 1)


def with_coordinates(rows):
    """Return a model of counts whose data and likelihood have a dimension of rows."""
    rng = np.random.default_rng(0)
    coords = {"group": range(GROUPS), "row": np.arange(rows)}
    with pm.Model(coords=coords) as model:
        group = pm.Data("group_index", rng.integers(GROUPS, size=rows), dims="row")
        y = pm.Data("observed", rng.poisson(2, size=rows), dims="row")
        eta = pm.Normal("a", dims="group")[group]
        pm.Poisson("y", pm.math.exp(eta), observed=y, dims="row")
    return model


def traced_peak(function):
    """Return the result of a function and the peak of its memory."""
    gc.collect()
    tracemalloc.start()
    result = function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


@pytest.mark.slow
@pytest.mark.parametrize("make", [*MODELS.values(), with_coordinates], ids=lambda x: x.__name__)
def test_distinct_rows_take_little_memory_beside_the_data(make):
    pymc_fastlogp.compile_pymc_model(make(1000))  # what is kept once for all models
    model = make(ROWS)
    _, peak = traced_peak(lambda: pymc_fastlogp.compile_pymc_model(model))
    # One batch of rows takes 30 MB or less.
    assert peak < 1.5 * data_bytes(model) + 30e6


@pytest.mark.slow
def test_rows_that_do_not_repeat_take_less_memory_than_without_the_plugin(monkeypatch):
    # As for more rows, whose records are too large for the cache.
    monkeypatch.setattr(store, "LARGEST", 0)
    pymc_fastlogp.compile_pymc_model(logit(1000))
    model = logit(ROWS)
    compiled, peak = traced_peak(lambda: pymc_fastlogp.compile_pymc_model(model))
    del compiled
    _, off = traced_peak(lambda: compile_model(model, "off"))
    assert peak < off


@pytest.mark.slow
@pytest.mark.parametrize("make", [counts, with_coordinates])
def test_sampling_takes_little_memory_beside_the_data_of_its_result(make):
    def sample(model):
        options = {"draws": 10, "tune": 10, "chains": 1, "progressbar": False, "quiet": True}
        return pymc_fastlogp.sample(model=model, **options)

    sample(make(1000))
    model = make(ROWS)
    idata, peak = traced_peak(lambda: sample(model))
    variables = [*idata.constant_data.data_vars.values(), *idata.observed_data.data_vars.values()]
    rows = idata.observed_data["y"].indexes.values()
    in_result = sum(x.nbytes for x in variables) + sum(x.memory_usage() for x in rows)
    assert peak < in_result + 1.5 * data_bytes(model) + 30e6


def test_row_analysis_takes_less_memory_than_the_rows():
    x = np.random.default_rng(1).normal(size=4_000_000)
    row_keys = keys.RowKeys(x.shape)
    columns = row_keys.add(x)
    tracemalloc.start()
    assert row_keys.codes(columns) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes


@pytest.mark.slow
def test_data_are_freed_with_the_model():
    compile_model(MODELS["mrp"](1000), "on")  # what is kept once for all models
    gc.collect()
    tracemalloc.start()
    model = MODELS["mrp"](400_000)
    size = data_bytes(model)
    compile_model(model, "on")
    del model
    gc.collect()
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < size / 8


def loops_as_ir(n):
    """Return a module with a function of many loops, of which no two are the same."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), "loops")
    builder = ir.IRBuilder(function.append_basic_block())
    for k in range(n):
        before, loop = builder.block, function.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(I64)
        element = builder.gep(function.args[0], [i], source_etype=I64)
        builder.store(builder.add(builder.load(element, typ=I64), builder.mul(i, I64(k))), element)
        following = builder.add(i, I64(1))
        i.add_incoming(I64(0), before)
        i.add_incoming(following, loop)
        after = function.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, I64(k + 100)), loop, after)
        builder.position_at_end(after)
    builder.ret_void()
    return module


def test_llvm_forgets_a_module_that_it_has_optimized():
    module, machine = loops_as_ir(30), target_machine()

    def optimize(times):
        for _ in range(times):
            optimized(module, machine)
        gc.collect()
        return process_memory("VmRSS")

    before = optimize(3)
    assert optimize(20) - before < 20 * 50_000
