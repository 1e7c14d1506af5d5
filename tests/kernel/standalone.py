"""Machine code of functions and kernels as a program of its own, which a tool or an emulator runs."""

import subprocess

import numpy as np
import pytensor
import pytensor.tensor as pt
from llvmlite import ir
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.target import default_width, optimized, target_machine
from pymc_fastlogp.kernel.passes import optimize
from tests.kernel.test_bounds import GRAPHS, ROWS, N, rows, v, x
from tests.kernel.vecmath_loop import emit_loop, n_arguments, n_results

KERNELS = sorted(set(GRAPHS) - {"triangle"})
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


def build(module, globals_, body, folder, compiler):
    """Compile and link ``main`` in a folder from a module and the C code of globals and body."""
    machine = target_machine()
    (folder / "code.o").write_bytes(machine.emit_object(optimized(module, machine)))
    (folder / "main.c").write_text(MAIN % (globals_, body))
    flags = ["-w", "-std=gnu89", "-no-pie", "-O1", "main.c", "code.o", "-lm", "-o", "main"]
    subprocess.run([compiler, *flags], cwd=folder, check=True)


def written(command, folder):
    """Return the numbers that a program writes, which writes no error."""
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return np.frombuffer(done.stdout)


def literals(name, array):
    """Return the definition of an array in C."""
    numbers = (
        str(a).replace("inf", "(1.0/0)").replace("nan", "(0.0/0)") for a in np.ravel(array).tolist()
    )
    return f"static double {name}[] = {{{', '.join(numbers)}}};\n"


def loop_program(name, values):
    """Return module, globals and body of a program that writes a vector function of the rows of an array."""
    module = ir.Module(name)
    emit_loop(module, name, default_width(), "loop")
    count, n = values.shape
    assert count == n_arguments(name)
    body = f"""
      double *given = copied(x, {values.size}), *out = malloc({n_results(name) * n} * sizeof(double));
      loop(given, out, {n}L);
      shown(out, {n_results(name) * n});
      free(given);
      free(out);
    """
    return module, literals("x", values) + "void loop();\n", body


def kernel_program(name):
    """Return module, globals and body of a program that writes the result of a kernel, and the result of PyTensor."""
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
    return module, globals_, body, expected
