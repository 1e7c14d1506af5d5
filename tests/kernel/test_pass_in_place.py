"""Copies are written to their destination, unless an order or a check forbids it."""

from collections import Counter

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.kernel.ir.expressions import Index
from pymc_fastlogp.kernel.ir.loops import Check, Store
from pymc_fastlogp.kernel.passes import in_place
from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native
from tests.kernel.test_passes import ROWS


def test_parts_of_a_join_are_written_in_place():
    x = pt.vector("x", shape=(ROWS,))
    program = program_of([x], [pt.join(0, pt.exp(x), pt.sum(x)[None], -x)])
    assert program.scratch == () or all(buffer.shape == () for buffer in program.scratch)
    [native] = compile_native(program)(np.arange(ROWS) / ROWS)
    values = np.arange(ROWS) / ROWS
    np.testing.assert_allclose(native, np.concatenate([np.exp(values), [values.sum()], -values]))


def test_a_buffer_with_two_readers_is_not_written_in_place():
    x = pt.vector("x", shape=(ROWS,))
    total = pt.cumsum(x[:4])
    program = program_of([x], [pt.join(0, total, x[:2]), pt.sum(total)])
    values = np.arange(ROWS, dtype=float)
    joined, summed = compile_native(program)(values)
    np.testing.assert_array_equal(joined, [0, 1, 3, 6, 0, 1])
    assert summed == 10


def test_computed_positions_are_not_written_early():
    x, y = pt.matrix("x", shape=(3, ROWS)), pt.vector("y", shape=(ROWS,))
    position = pt.exp(y).sum().astype("int64")
    program = program_of([x, y], [pt.exp(x)[position].set(pt.tanh(y))])
    values = np.log(np.full(ROWS, 1.5 / ROWS))
    [found] = compile_native(program)(np.zeros((3, ROWS)), values)
    np.testing.assert_allclose(found, np.stack([np.ones(ROWS), np.tanh(values), np.ones(ROWS)]))


OPEN, TABLE, PLACE = pt.matrix("open", shape=(None, 2)), pt.lvector("table"), pt.lscalar("place")
PAIR, THREE = pt.vector("pair", shape=(2,)), pt.matrix("three", shape=(3, 2))
POSITIONS = {
    "a row that may not be there": ([OPEN, PAIR], pt.exp(OPEN)[0].set(pt.tanh(PAIR))),
    "constants": ([OPEN, THREE], pt.exp(OPEN)[np.array([4, 0, 2])].set(pt.tanh(THREE))),
    "an element of an input": (
        [THREE, TABLE, PLACE, PAIR],
        pt.exp(THREE)[TABLE[PLACE]].set(pt.tanh(PAIR)),
    ),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_checked_before_anything_is_written_there(name):
    inputs, output = POSITIONS[name]
    program = program_of(inputs, [output])
    statements = [statement for loop in program.steps for statement in loop.body]
    checks = [k for k, s in enumerate(statements) if isinstance(s, Check)]
    there = [
        k
        for k, s in enumerate(statements)
        if isinstance(s, Store) and s.buffer.shape == program.outputs[0].shape
        if not all(isinstance(i, Index) for i in s.index)
    ]
    assert checks
    assert there
    assert max(checks) < min(there)


@pytest.mark.parametrize("largest", [0.0, 5.0])
def test_an_output_is_written_in_place_only_in_order(largest):
    """Fallback results are ready before the results of the fast path."""
    x, z = pt.vector("x", shape=(ROWS,)), pt.vector("z", shape=(20,))
    holds = pt.all(pt.le(pt.sigmoid(x), 0.9))
    scale = pt.sum(pt.exp(z))
    outputs = [
        pt.switch(holds, pt.log(scale), -np.inf),
        pt.sum(pt.switch(holds, z * scale, z)),
    ]
    values, numbers = np.linspace(-3, 0, ROWS), np.linspace(0, 1, 20)
    values[7] = largest
    logp, total = compile_native(program_of([x, z], outputs))(values, numbers)
    exact = np.exp(numbers).sum()
    expected = [np.log(exact), (numbers * exact).sum()] if largest == 0 else [-np.inf, 10.0]
    np.testing.assert_allclose([logp, total], expected, rtol=1e-14)


def test_readers_of_copies_are_counted_once(monkeypatch):
    n_looks = Counter()

    def looking(statement, look=in_place.roots):
        n_looks[n] += 1
        return look(statement)

    monkeypatch.setattr(in_place, "roots", looking)
    for n in (10, 20):
        inputs = [pt.vector(f"x{k}", shape=(ROWS + k,)) for k in range(n)]
        values = [pt.exp(x) for x in inputs]
        program_of(inputs, [*values, *(pt.sum(value) for value in values)])
    assert n_looks[20] < 2.5 * n_looks[10]
