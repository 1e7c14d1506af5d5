"""Costly rows stay loops on a CPU with few registers; other short rows are unrolled."""

from collections import Counter

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FrozenFunctionGraph

from pymc_fastlogp.kernel.ir.traversal import all_loops
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.passes import short_axes
from tests.conftest import PYTHON
from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

ROWS = 100


@pytest.fixture
def avx(monkeypatch):
    """Let the passes see a CPU with vectors of 4 lanes, of which a loop works on two at a time."""
    monkeypatch.setattr(short_axes, "native_lanes", lambda: 4)
    monkeypatch.setattr(short_axes, "default_width", lambda: 8)


def dear(x, y):
    return pt.exp(x[:, None] + y) + pt.log(y)


def counts(x, y):
    """Count likelihood: a logarithm and a quotient of its mean."""
    mean = pt.exp(x)[:, None] + y
    return y * pt.log(mean) - x[:, None] / mean


def exponential(x, y):
    """One function, a little less."""
    return pt.exp(x[:, None] + y)


def cheap(x, y):
    return x[:, None] * y + y**2


def joined(x, y):
    return pt.join(1, dear(x, y[:, 1:]), x[:, None])


def partly(x, y):
    return dear(x, y)[:, 1:]


def apart(x, y):
    """Rows of pairs: a third axis."""
    return pt.log(pt.stack([dear(x, y), dear(-x, y)], axis=-1)).sum(axis=-1)


def with_a_column(x, y):
    """Rows of which something else reads one column."""
    table = dear(x, y)
    return table * pt.tanh(table[:, 3]).sum()


def by_pairs(x, y):
    """Rows that a loop over two long axes reads."""
    table = dear(x, y)
    return table + pt.exp(table[:, None, :] - x[None, :, None]).sum(axis=1)


def program_with_sums(entries, length):
    """Return the program of sums along rows, along columns, and of both sums' product."""
    x, y = pt.vector("x", shape=(ROWS,)), pt.matrix("y", shape=(ROWS, length))
    table = entries(x, y)
    by_row = table.sum(axis=1)
    outputs = [by_row, table.sum(axis=0), pt.sum(table / by_row[:, None])]
    return program_of([x, y], outputs)


def keeps_rows(program):
    """Return whether a loop over all rows goes along them."""
    domains = [loop.domain for loop in all_loops(program)]
    return any(len(sizes) == 2 and ROWS in sizes and {*sizes} != {ROWS} for sizes in domains)


@pytest.mark.usefixtures("avx")
@pytest.mark.parametrize("length", [8, 12, 16])
@pytest.mark.parametrize("entries", [dear, counts])
def test_costly_rows_that_fill_vectors_stay_loops(entries, length):
    assert keeps_rows(program_with_sums(entries, length))


@pytest.mark.usefixtures("avx")
@pytest.mark.parametrize("length", [2, 4, 9, 13])
def test_rows_that_fill_no_vectors_or_leave_some_over_are_unrolled(length):
    assert not keeps_rows(program_with_sums(dear, length))


@pytest.mark.usefixtures("avx")
@pytest.mark.parametrize(
    "entries", [exponential, cheap, joined, partly, apart, with_a_column, by_pairs]
)
def test_cheap_or_partly_read_rows_are_unrolled(entries):
    assert not keeps_rows(program_with_sums(entries, 12))


def test_costly_rows_are_unrolled_if_registers_suffice(monkeypatch):
    monkeypatch.setattr(short_axes, "native_lanes", lambda: 8)
    assert not keeps_rows(program_with_sums(dear, 16))


@pytest.mark.usefixtures("avx")
@pytest.mark.parametrize("length", [8, 12, 13])
@pytest.mark.parametrize("entries", [dear, cheap, joined, partly, apart, with_a_column, by_pairs])
def test_values_are_those_of_numpy(entries, length):
    rng = np.random.default_rng(length)
    x, y = rng.normal(size=ROWS), rng.uniform(0.5, 2, (ROWS, length))
    by_row, by_column, total = compile_native(program_with_sums(entries, length))(x, y)
    table = entries(pt.as_tensor(x), pt.as_tensor(y)).eval(mode=PYTHON)
    np.testing.assert_allclose(by_row, table.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(by_column, table.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(total, (table / table.sum(axis=1, keepdims=True)).sum(), rtol=1e-12)


def test_a_chain_of_short_rows_is_looked_at_once(monkeypatch):
    n_looks = Counter()

    def looking(loop, axis, long, look=short_axes.arrays_along):
        n_looks[n] += 1
        return look(loop, axis, long)

    monkeypatch.setattr(short_axes, "arrays_along", looking)
    for n in (10, 20):
        x = pt.dmatrix("x", shape=(200, 5))
        rows, sums = x, []
        for _ in range(n):
            rows = pt.exp(rows) * rows.sum(axis=1)[:, None]
            sums.append(rows.sum())
        graph = FrozenFunctionGraph.from_io([x], [*sums, rows])
        short_axes.rows_to_keep(lower(graph, [None]))
    assert n_looks[20] < 2.5 * n_looks[10]
