"""Machine code for 64-bit ARM, run by qemu: the error bounds of the vector functions, and kernels."""

import shutil

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite.binding.targets import FeatureMap

from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.accuracy import arguments, errors
from tests.kernel.standalone import KERNELS, build, kernel_program, loop_program, written
from tests.kernel.test_valgrind import POINTS
from tests.kernel.vecmath_intrinsic import apply
from tests.kernel.vecmath_loop import n_arguments, n_results

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
TRIPLE = "aarch64-linux-gnu"
# LLVM's name of a CPU and its features: NEON alone, and with SVE.
CPUS = {"neoverse-n1": {"neon": True}, "neoverse-v1": {"neon": True, "sve": True}}
N_POINTS = 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR)),
        reason=f"needs {COMPILER} and {EMULATOR}",
    ),
]


@pytest.fixture(scope="module")
def of_the_host():
    """Return the arguments and results of all vector functions on this CPU, at special values."""
    found = {}
    for name in [*FUNCTIONS, *SHARED]:
        values = np.array([np.roll(POINTS, 5 * k) for k in range(n_arguments(name))])
        found[name] = values, np.empty((n_results(name), POINTS.size))
        apply(name)(*found[name])
    return found


@pytest.fixture(params=CPUS)
def cpu(request, monkeypatch):
    """Compile for an ARM CPU."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: request.param)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: FeatureMap(CPUS[request.param]))
    monkeypatch.setattr(llvm.Target, "from_default_triple", lambda: target)
    return request.param


def run(module, globals_, body, folder):
    """Return the numbers that a program for ARM writes."""
    build(module, globals_, body, folder, COMPILER)
    return written([EMULATOR, "-cpu", "max", "-L", "/usr/aarch64-linux-gnu", "./main"], folder)


@pytest.mark.parametrize("row", FUNCTIONS.values(), ids=lambda row: row.name)
def test_errors_are_within_the_bounds_of_the_table(row, cpu, tmp_path):
    x = arguments(row, N_POINTS)
    found = run(*loop_program(row.name, x), tmp_path)
    assert np.nan_to_num(errors(row, x, found), nan=np.inf).max() <= row.ulp


@pytest.mark.parametrize("name", [*FUNCTIONS, *SHARED])
def test_special_values_are_those_of_the_host(name, of_the_host, cpu, tmp_path):
    values, expected = of_the_host[name]
    found = run(*loop_program(name, values), tmp_path).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_agree_with_pytensor(name, cpu, tmp_path):
    assert default_width() == 4
    *program, expected = kernel_program(name)
    found = run(*program, tmp_path)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-12)
