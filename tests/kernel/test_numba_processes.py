"""Kernels in mode NUMBA in processes of their own: the cache on disk, Python instead of Numba, and linking later."""

import json
import subprocess
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.native.machine_code import object_files

SCRIPT = """
import json

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba.core.compiler import CompilerBase

import pymc_fastlogp
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.graph.held_constants import HeldConstants

compiled, emitted = [], []
compile_bytecode, compile_program = CompilerBase.compile_extra, machine_code.compile_program


def counted_compile(self, function):
    compiled.append(function.__name__)
    return compile_bytecode(self, function)


def counted_program(program, name, contiguous):
    emitted.append(name)
    return compile_program(program, name, contiguous)


CompilerBase.compile_extra, machine_code.compile_program = counted_compile, counted_program
n = {n}
index = np.arange(n) % 3
x = pt.dvector("x")
value = (pt.exp(x)[index] * np.linspace(0, 1, n)).sum()
position = pt.searchsorted(np.linspace(0, 1, 2 * n), x)
function = pytensor.function([x], [value, pytensor.grad(value, x), position], mode="NUMBA")
# The second argument is not in C order.
result = [out.tolist() for x in (np.arange(3.0), np.arange(6.0)[::2]) for out in function(x)]
print(json.dumps([result, compiled, len(emitted)]))
"""


@pytest.mark.parametrize("n", [100, 100_000], ids=["embedded", "large"])
def test_a_second_process_compiles_nothing(run_script, tmp_path, n):
    """Numba would make the smaller large constants part of the code, and not keep that of the larger."""
    flags = f"base_compiledir={tmp_path}"
    first, second = (
        json.loads(run_script(SCRIPT.replace("{n}", str(n)), PYTENSOR_FLAGS=flags).stdout)
        for _ in range(2)
    )
    assert "fused_kernel" in first[1]
    assert first[2] == 2
    assert second[1:] == [[], 0]
    assert first[0] == second[0]
    n_bytes = sum(file.stat().st_size for file in tmp_path.rglob("*.nbc"))
    assert n_bytes + sum(file.stat().st_size for file in tmp_path.rglob("*.o")) < 300_000


def test_disabled_cache_writes_nothing(monkeypatch):
    compiled_names, written = [], []
    compile_program = machine_code.compile_program
    monkeypatch.setattr(object_files, "write", lambda name, code: written.append(name))
    monkeypatch.setattr(
        machine_code,
        "compile_program",
        lambda program, name, _: compiled_names.append(name) or compile_program(program, name),
    )
    x = pt.dvector("x")
    with pytensor.config.change_flags(numba__cache=False):
        function = pytensor.function([x], pt.exp(x).sum() * 1.25, mode="NUMBA")
        np.testing.assert_allclose(function(np.zeros(2)), 2.5)
    assert len(compiled_names) == 1
    assert not written


def test_runs_in_python_where_njit_is_replaced(run_script):
    """PyTensor's own tests replace ``njit`` to run Numba's functions in Python; here before any other compilation."""
    process = run_script(
        """
        from unittest import mock

        import numpy as np
        import pytensor
        import pytensor.tensor as pt
        import pymc_fastlogp
        from pymc_fastlogp.kernel.graph.op import FusedKernel
        from pymc_fastlogp.kernel.graph.held_constants import HeldConstants

        def uncompiled(*functions, **kwargs):
            if not functions:
                return uncompiled
            [function] = functions
            function.py_func = function
            return function

        basic = "pytensor.link.numba.dispatch.basic"
        mocks = {
            "numba.njit": uncompiled,
            f"{basic}.numba_njit": uncompiled,
            f"{basic}.numba.np.numpy_support.from_dtype": lambda dtype: dtype,
        }
        index, weights = np.arange(3000) % 7, np.linspace(0, 1, 3000)
        x, s = pt.dvector("x"), pt.dscalar("s")
        outputs = [pt.exp(x)[index] * weights + s, x * s]
        point = np.linspace(-1, 1, 7)
        expected = [np.exp(point)[index] * weights + 0.5, point * 0.5]

        def check():
            function = pytensor.function([x, s], outputs, mode="NUMBA")
            ops = {type(node.op) for node in function.maker.fgraph.apply_nodes}
            assert ops == {FusedKernel, HeldConstants}, ops
            for found, wanted in zip(function(point, 0.5), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-14)

        patches = [mock.patch(name, replaced) for name, replaced in mocks.items()]
        for patch in patches:
            patch.start()
        check()
        for patch in patches:
            patch.stop()
        check()
        """
    )
    assert process.returncode == 0, process.stderr


LATE = """
import sys

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_fastlogp

with pm.Model() as model:
    x = pm.Normal("x", shape=7)
    pm.Potential("p", -(pt.exp(x)[np.arange(5000) % 7] * np.linspace(0, 1, 5000)).sum())
compiled = pymc_fastlogp.compile_pymc_model(model)
assert "numba.core" not in sys.modules or "nutpie" in sys.modules
graph = compiled.logp_func.maker.fgraph
names = [type(node.op).__name__ for node in graph.toposort()]
# The same graph, linked after all: for Numba, which is told now.
logp, gradient = compiled.logp_func(np.zeros(7))
print(names.count("FusedKernel"), "HeldConstants" in names, float(logp) == compiled.logp_dlogp(np.zeros(7))[0])
"""


def test_numba_is_told_of_kernels_that_are_linked_later():
    program = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:pymc_fastlogp", "-c", LATE],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert program.stdout.split() == ["1", "False", "True"]
