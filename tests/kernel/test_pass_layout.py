"""Arrays are transposed along the vectors that read them, and results do not change."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FrozenFunctionGraph

from pymc_fastlogp.kernel.ir.affine import coefficient
from pymc_fastlogp.kernel.ir.expressions import Index, Role
from pymc_fastlogp.kernel.ir.traversal import loads, loops_in, updates
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.passes import PASSES
from pymc_fastlogp.kernel.passes.layout import axes_of_vectors, transpose_for_vectors
from tests.conftest import PYTHON
from tests.kernel.check import check
from tests.kernel.native_kernel import compile_native

ROWS, SHORT = 80, 3
DATA = np.random.default_rng(0).normal(size=(ROWS, SHORT))

rows, cuts = pt.vector("rows", shape=(ROWS,)), pt.vector("cuts", shape=(SHORT,))
several = pt.vector("several", shape=(None,))
square, other = (pt.matrix(name, shape=(200, 200)) for name in ("square", "other"))


def kept(x):
    """Return a function of a matrix that is stored between two loops."""
    e = pt.exp(x - cuts)
    return pt.tanh(e / pt.sum(e)).sum(axis=1)


def before(inputs, outputs):
    """Return the program as the pass gets it."""
    graph = FrozenFunctionGraph.from_io(inputs, outputs, dedup_nodes=True)
    program = lower(graph, [None] * len(inputs))
    for run in PASSES[: PASSES.index(transpose_for_vectors)]:
        program = run(program)
    return program


def strides(program):
    """Yield by how much each axis but the last of scratch and constants grows from lane to lane."""
    for loop in loops_in(program.steps):
        inner = Index(len(loop.domain) - 1)
        for access in (*loads(loop), *updates(loop)):
            if access.buffer.role in (Role.SCRATCH, Role.CONSTANT):
                yield from (coefficient(i, inner) for i in access.index[:-1])


TURNED = {
    "scratch": ([rows, cuts], kept(rows[:, None])),
    "scratch of a number of rows known when called": ([several, cuts], kept(several[:, None])),
    "a constant": ([rows, cuts], pt.exp(rows[:, None] * DATA).sum(axis=1) * cuts[0]),
    "scratch with two short axes": (
        [rows, cuts],
        kept(rows[:, None, None] * np.ones((1, 2, 1))).sum(axis=1),
    ),
}
AS_THEY_WERE = {
    "vectors": ([rows, cuts], pt.tanh(pt.exp(rows) / pt.exp(rows).sum()) * cuts[0]),
    "vectors along the last axis": ([square], pt.exp(square) / pt.exp(square).sum()),
    "a library reads it": ([square, other], pt.exp(square).T @ pt.exp(other)),
    "one column": ([rows], pt.exp(rows[:, None]) / pt.exp(rows).sum()),
}


@pytest.mark.parametrize("name", TURNED)
def test_strided_programs_are_transposed(name):
    inputs, output = TURNED[name]
    program = before(inputs, [output])
    assert any(strides(program))
    turned = transpose_for_vectors(program)
    check(turned)
    assert not any(strides(turned))
    assert transpose_for_vectors(turned) == turned


@pytest.mark.parametrize("name", AS_THEY_WERE)
def test_contiguous_programs_are_left_alone(name):
    inputs, output = AS_THEY_WERE[name]
    program = before(inputs, [output])
    assert transpose_for_vectors(program) is program


def test_loops_of_an_unswitched_condition_count():
    wide = pt.constant(np.random.default_rng(0).normal(size=(ROWS, 24)))
    columns = pt.switch(cuts[0] > 0, pt.gammaln(rows + wide[:, 0]), pt.erfcx(rows - wide[:, 0]))
    row = pt.exp(wide[0]) * several[:24]
    program = before([rows, cuts, several], [columns.sum(), row])
    assert sum(loop.when is not None for loop in loops_in(program.steps)) == 2
    [axis] = [axis for buffer, axis in axes_of_vectors(program).items() if buffer.ndim == 2]
    assert axis == 0


def test_inputs_and_outputs_stay_but_are_named():
    matrix = pt.matrix("matrix", shape=(ROWS, SHORT))
    program = before([matrix, cuts], [pt.exp(matrix - cuts).sum(axis=1)])
    [(buffer, axis)] = axes_of_vectors(program).items()
    assert (buffer.role, axis) == (Role.INPUT, 0)
    assert transpose_for_vectors(program) is program


@pytest.mark.parametrize("name", TURNED)
def test_values(name):
    inputs, output = TURNED[name]
    values = [np.linspace(-1, 1, x.type.shape[0] or ROWS) for x in inputs]
    [found] = compile_native(transpose_for_vectors(before(inputs, [output])))(*values)
    expected = output.eval(dict(zip(inputs, values, strict=True)), mode=PYTHON)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@settings(max_examples=10)
@given(st.integers(1, 130), st.integers(1, 4), st.integers(1, 2), st.randoms(use_true_random=False))
def test_any_shape(n, k, m, random):
    x, data = pt.vector("x", shape=(n,)), np.arange(n * k * m).reshape(n, k, m) / (n * k * m)
    e = pt.exp(x[:, None, None] * data.transpose(random.sample(range(3), 3)).reshape(n, k, m))
    output = pt.tanh(e / pt.sum(e)).sum(axis=random.choice([0, 1, 2, (0, 2), (1, 2)]))
    value = np.linspace(-1, 1, n)
    program = transpose_for_vectors(before([x], [output]))
    check(program)
    [found] = compile_native(program)(value)
    np.testing.assert_allclose(found, output.eval({x: value}, mode=PYTHON), rtol=1e-12)
