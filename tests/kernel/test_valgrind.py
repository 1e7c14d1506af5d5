"""Machine code of functions and kernels as a program of its own, under valgrind's memcheck.

It sees a byte that is read or written beside an array of the heap, and a byte of a result that nobody wrote; with checks of bounds, in
tests of kernels, the compiler would not see its own mistakes. Valgrind knows AVX2, not AVX-512.
"""

import shutil

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from llvmlite.binding.targets import FeatureMap

from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.standalone import KERNELS, build, kernel_program, literals, loop_program, written
from tests.kernel.test_cpus import CPUS
from tests.kernel.vecmath_loop import emit_loop, n_arguments, n_results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("valgrind") and shutil.which("gcc")), reason="needs valgrind and gcc"
    ),
]

POINTS = np.array([0.0, -0.0, 1e-310, 1e-8, 0.3, 1.0, -1.0, 2.5, -7.25, 30.0, 171.7, -1e5, 1e16])
POINTS = np.concatenate([POINTS, -POINTS, [1e300, -1e300, np.inf, -np.inf, np.nan]])


@pytest.fixture(autouse=True)
def avx2(monkeypatch):
    """Compile for a CPU that valgrind knows."""
    name, features, _ = CPUS["AVX2"]
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: FeatureMap(features))


def run(module, globals_, body, folder):
    """Return the numbers that a program writes, which valgrind has nothing to say about."""
    build(module, globals_, body, folder, "gcc")
    command = ["valgrind", "--error-exitcode=9", "--leak-check=full", "--quiet", "./main"]
    return written(command, folder)


@pytest.mark.parametrize("name", [*FUNCTIONS, *SHARED])
def test_vector_functions_access_only_their_memory(name, tmp_path):
    second = np.roll(POINTS, 5)
    values = np.array([POINTS, second, np.roll(second, 5)][: n_arguments(name)])
    assert run(*loop_program(name, values), tmp_path).size == n_results(name) * POINTS.size


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_access_only_their_memory(name, tmp_path):
    *program, expected = kernel_program(name)
    found = run(*program, tmp_path)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-12)


def test_out_of_bounds_byte_is_reported(tmp_path):
    module = ir.Module("loop")
    emit_loop(module, "exp", default_width(), "loop")
    globals_ = literals("x", POINTS) + "void loop();\n"
    body = f"""
      double *given = copied(x, {POINTS.size - 1}), *out = malloc({POINTS.size} * sizeof(double));
      loop(given, out, {POINTS.size}L);
      shown(out, {POINTS.size});
    """
    with pytest.raises(AssertionError, match="Invalid read"):
        run(module, globals_, body, tmp_path)
