"""Machine code of functions and kernels as a program of its own, under valgrind's memcheck.

It sees a byte that is read or written beside an array of the heap, and a byte of a result that nobody wrote; with checks of bounds, in
tests of kernels, the compiler would not see its own mistakes. Valgrind knows AVX2, not AVX-512.
"""

import shutil
import subprocess

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from llvmlite.binding.targets import FeatureMap
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.target import default_width, optimized, target_machine
from pymc_fastlogp.kernel.passes import optimize
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.test_bounds import GRAPHS, ROWS, N, rows, v, x
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
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static double *copied(const double *from, long n) {
  double *to = malloc(n * sizeof(double));
  return memcpy(to, from, n * sizeof(double));
}
static void shown(const double *x, long n) { fwrite(x, sizeof(double), n, stdout); fflush(stdout); }
%s
int main(void) {
%s
  return 0;
}
"""


@pytest.fixture(autouse=True)
def avx2(monkeypatch):
    """Compile for a CPU that valgrind knows."""
    name, features, _ = CPUS["AVX2"]
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: FeatureMap(features))


def run(module, folder, globals_, body):
    """Return the numbers that a program writes, which valgrind has nothing to say about."""
    machine = target_machine()
    (folder / "code.o").write_bytes(machine.emit_object(optimized(module, machine)))
    (folder / "main.c").write_text(MAIN % (globals_, body))
    build = ["gcc", "-w", "-std=gnu89", "-no-pie", "-O1", "main.c", "code.o", "-lm", "-o", "main"]
    subprocess.run(build, cwd=folder, check=True)
    command = ["valgrind", "--error-exitcode=9", "--leak-check=full", "--quiet", "./main"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return np.frombuffer(done.stdout)


def literals(name, array):
    """Return the definition of an array in C."""
    numbers = (str(a).replace("inf", "(1.0/0)").replace("nan", "(0.0/0)") for a in np.ravel(array))
    return f"static double {name}[] = {{{', '.join(numbers)}}};\n"


@pytest.mark.parametrize("name", [*FUNCTIONS, *SHARED])
def test_vector_functions_access_only_their_memory(name, tmp_path):
    module = ir.Module(name)
    emit_loop(module, name, default_width(), "loop")
    count, results = n_arguments(name), n_results(name)
    second = np.roll(POINTS, 5)
    values = np.array([POINTS, second, np.roll(second, 5)][:count])
    globals_ = literals("x", values) + "void loop();\n"
    body = f"""
      double *given = copied(x, {values.size}), *out = malloc({results * POINTS.size} * sizeof(double));
      loop(given, out, {POINTS.size}L);
      shown(out, {results * POINTS.size});
      free(given);
      free(out);
    """
    assert run(module, tmp_path, globals_, body).size == results * POINTS.size


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - {"triangle"}))
def test_kernels_access_only_their_memory(name, tmp_path):
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape) for shape in ((N, ROWS), N, ROWS)]
    out = pt.atleast_1d(GRAPHS[name])
    program = optimize(lower(FunctionGraph([x, v, rows], [out], clone=True), [None] * 3))
    module = ir.Module(name)
    emit(module, program, "kernel", [True] * 3)
    options = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}
    expected = pytensor.function([x, v, rows], out, **options)(*arrays)
    numbers = [
        number
        for k, a in enumerate(arrays)
        for number in (f"given{k}", *(f"{n}L" for n in (*a.shape, *a.strides)))
    ]
    copies = "".join(f"double *given{k} = copied(x{k}, {a.size});\n" for k, a in enumerate(arrays))
    body = f"""
      {copies}
      double *out = malloc({expected.size} * sizeof(double));
      if (kernel({", ".join(numbers)}, out)) return 1;
      shown(out, {expected.size});
      free(given0); free(given1); free(given2); free(out);
    """
    globals_ = "".join(literals(f"x{k}", a) for k, a in enumerate(arrays)) + "long kernel();\n"
    found = run(module, tmp_path, globals_, body)
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
        run(module, tmp_path, globals_, body)
