"""Code that checks its loads and stores traps where one leaves its buffer, and computes the same everywhere else."""

import signal

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.target import CHECK_BOUNDS
from pymc_fastlogp.kernel.passes import optimize
from tests.kernel.native_kernel import compile_native

LEAVES = """
    import numpy as np
    from dataclasses import replace
    import pymc_fastlogp
    import pytensor.tensor as pt
    from pytensor.graph.fg import FunctionGraph
    from pymc_fastlogp.kernel.lower import lower
    from pymc_fastlogp.kernel.passes import optimize
    from tests.kernel.native_kernel import compile_native
    x, i = pt.vector("x"), pt.lvector("i")
    graph = FunctionGraph([x, i], [MADE], clone=True)
    program = optimize(lower(graph, [None, None]))
    # As a compiler would be wrong: nothing looks whether an index is in range.
    steps = [loop for loop in program.steps if not any(type(s).__name__ == "Check" for s in loop.body)]
    kernel = compile_native(replace(program, steps=tuple(steps)), [CONTIGUOUS, True])
    print(*kernel(np.arange(60.0)[::STEP], np.array(INDEX)))
    """
ROWS, N = 37, 6
INDEX = np.random.default_rng(0).integers(0, N, ROWS)
x, v, rows = pt.matrix("x"), pt.vector("v"), pt.vector("rows")
GRAPHS = {
    "gather and scatter": pt.zeros(N)[INDEX].inc(pt.exp(v[INDEX] * rows)),
    "sorted": pt.zeros(N)[np.sort(INDEX)].inc(pt.exp(v[np.sort(INDEX)] * rows)),
    "matrix": pt.exp(x.T - rows[:, None]).sum(axis=1),
    "sum": pt.log1p(rows**2).sum() + x.sum(),
    "triangle": pt.linalg.cholesky(x @ x.T + 40 * pt.eye(N)) @ v,
}


@pytest.mark.parametrize(
    ("made", "index", "step"),
    [
        ("x[i] * 2", [0, 60], 1),
        ("x[i] * 2", [*range(40), -61], -1),
        ("pt.zeros(60)[i].inc(x[i])", [*range(40), 60], 1),
        ("pt.exp(x[i]).sum()", [61] * 3, -1),
    ],
)
def test_traps_outside(made, index, step, run_script):
    given = {"MADE": made, "INDEX": str(index), "STEP": str(step), "CONTIGUOUS": str(step == 1)}
    script = LEAVES
    for name, text in given.items():
        script = script.replace(name, text)
    process = run_script(script, **{CHECK_BOUNDS: "1"})
    assert process.returncode == -signal.SIGILL, process.stderr
    assert "a kernel accesses memory outside its buffer" in process.stderr


@pytest.mark.parametrize("is_contiguous", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_computes_the_same_inside(name, is_contiguous, monkeypatch):
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape) for shape in ((N, ROWS), N, ROWS)]
    if not is_contiguous:
        arrays = [np.flip(np.repeat(a, 2, axis=-1)[..., ::2]) for a in arrays]
    program = optimize(lower(FunctionGraph([x, v, rows], [GRAPHS[name]], clone=True), [None] * 3))
    results = []
    for checks in "01":
        monkeypatch.setenv(CHECK_BOUNDS, checks)
        results.append(compile_native(program, [is_contiguous] * 3)(*arrays))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n", [0, 1])
def test_empty_arrays_are_not_read(n, monkeypatch):
    monkeypatch.setenv(CHECK_BOUNDS, "1")
    out = pt.exp(rows - rows[:1].sum()).sum()
    program = optimize(lower(FunctionGraph([rows], [out], clone=True), [None]))
    [found] = compile_native(program)(np.ones(n))
    assert found == n
