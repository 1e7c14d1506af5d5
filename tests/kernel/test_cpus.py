"""Kernels for CPUs with narrower vectors agree with those of this CPU."""

import platform

import numpy as np
import pymc as pm
import pytest
from llvmlite import binding as llvm
from llvmlite.binding.targets import FeatureMap

from pymc_fastlogp import compile_pymc_model
from pymc_fastlogp.kernel.native.loaded_code import compiler
from pymc_fastlogp.kernel.native.target import default_width
from tests.zoo import MODELS

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the names are of x86-64"
)

# Name of the CPU, its features that we ask for, and the lanes of two of its vectors.
CPUS = {
    "plain": ("x86-64", {}, 4),
    "AVX": ("sandybridge", {"avx": True}, 8),
    "AVX2": ("haswell", {"avx": True, "avx2": True, "fma": True}, 8),
}
CHOSEN = (
    "horseshoe",
    "lkj_slopes",
    "zero_inflated_negative_binomial",
    "scaled_correlations",
    "nested_groups_with_negative_index",
)


@pytest.fixture(params=CPUS)
def width(request, monkeypatch):
    """Compile for another CPU; return the lanes of its kernels."""
    name, features, lanes = CPUS[request.param]
    host = llvm.get_host_cpu_features()
    if not all(host.get(feature) for feature in features):
        pytest.skip("this CPU cannot run it")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: FeatureMap(features))
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", "0")
    compiler.cache_clear()
    yield lanes
    compiler.cache_clear()


def evaluated(name, points=4):
    """Return logp and gradient of a model of the zoo at random points."""
    with pm.Model() as model:
        MODELS[name]()
    compiled = compile_pymc_model(model)
    rng = np.random.default_rng(0)
    found = (compiled.logp_dlogp(rng.normal(size=compiled.n_dim)) for _ in range(points))
    return np.array([[logp, *dlogp] for logp, dlogp in found])


@pytest.fixture(scope="module", params=CHOSEN)
def of_this_cpu(request):
    return request.param, evaluated(request.param)


def test_instruction_sets_agree(of_this_cpu, width):
    assert default_width() == width
    name, expected = of_this_cpu
    # Sums in another order: round-off of the largest term where terms cancel.
    scale = abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(evaluated(name) / scale, expected / scale, rtol=0, atol=1e-13)
