"""Distinct rows with counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_fastlogp.tables.cells import Cells

ROWS = st.lists(
    st.tuples(st.integers(-2, 2), st.sampled_from([-0.0, 0.0, 0.5, 1e300])), max_size=30
)


def columns(rows):
    a, b = zip(*rows, strict=True) if rows else ((), ())
    return {"a": np.array(a, np.int64), "b": np.array(b, np.float64)}


def as_dict(cells):
    keys = zip(*(x.tolist() for x in cells.columns.values()), strict=True)
    return dict(zip(keys, cells.counts.tolist(), strict=True))


@given(ROWS)
def test_counts_are_those_of_a_dictionary(rows):
    expected = {}
    for row in rows:
        expected[row] = expected.get(row, 0) + 1
    cells = Cells.summarize(columns(rows))
    assert as_dict(cells) == expected
    assert cells.n_rows == len(rows)
    assert cells.n_cells == len(expected)


@given(ROWS, ROWS, ROWS)
def test_parts_merge_in_any_order(first, second, third):
    a, b, c = (Cells.summarize(columns(x)) for x in (first, second, third))
    whole = Cells.summarize(columns(first + second + third))
    for merged in (a.merge(b).merge(c), c.merge(a.merge(b)), b.merge(c).merge(a)):
        assert [*merged.columns] == [*whole.columns]
        for name, x in whole.columns.items():
            np.testing.assert_array_equal(merged.columns[name], x)
        np.testing.assert_array_equal(merged.counts, whole.counts)


def test_negative_zero_is_zero():
    cells = Cells.summarize({"x": np.array([0.0, -0.0, 1.0, -0.0])})
    np.testing.assert_array_equal(np.signbit(cells.columns["x"]), False)
    assert cells.counts.tolist() == [3, 1]


def test_rows_with_counts_are_added():
    cells = Cells.summarize({"x": np.array([2, 1, 2])}, np.array([10, 5, 2**40], np.uint64))
    assert cells.columns["x"].tolist() == [1, 2]
    assert cells.counts.tolist() == [5, 2**40 + 10]


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64])
def test_dtypes_stay(dtype):
    assert Cells.summarize({"x": np.zeros(3, dtype)}).columns["x"].dtype == dtype
