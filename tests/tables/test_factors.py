"""Triangular factors of cells, and the weighted points that stand for their rows."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_fastlogp.tables.factors import Factors

# Key, and two other columns.
NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1, 1, width=32),
    st.floats(-1, 1, width=32).map(lambda x: x + 1e8),
)
ROWS = st.lists(st.tuples(st.integers(-2, 2), NUMBERS, NUMBERS), min_size=1, max_size=12)


def factors(rows):
    key, x, y = (np.array(column) for column in zip(*rows, strict=True))
    return Factors.summarize({"key": key}, {"x": x, "y": y})


def moments(columns, weights):
    """Return the exact sums of weighted products of 1, x and y by key, as matrices."""
    found = {}
    for key, x, y, w in zip(*columns, weights, strict=True):
        row = np.array([Fraction(1), Fraction(float(x)), Fraction(float(y))])
        product = Fraction(float(w)) * np.outer(row, row)
        found[int(key)] = found.get(int(key), 0) + product
    return found


def assert_moments_of_rows(summary, rows):
    points = summary.points("float64")
    assert (points.weights > 0).all()
    found = moments(points.columns.values(), points.weights)
    expected = moments(zip(*rows, strict=True), np.ones(len(rows)))
    assert found.keys() == expected.keys()
    for key, products in expected.items():
        norms = np.sqrt(products.diagonal().astype(float))
        assert (np.abs(found[key] - products).astype(float) <= 1e-14 * np.outer(norms, norms)).all()


@given(ROWS)
def test_points_have_the_moments_of_the_rows(rows):
    summary = factors(rows)
    assert summary.n_rows == len(rows)
    assert summary.n_cells == len({key for key, *_ in rows})
    assert_moments_of_rows(summary, rows)


@given(ROWS, ROWS, ROWS)
def test_parts_merge_in_any_order(first, second, third):
    a, b, c = map(factors, (first, second, third))
    whole = factors(first + second + third)
    for merged in (a.merge(b).merge(c), c.merge(a.merge(b)), b.merge(c).merge(a)):
        np.testing.assert_array_equal(merged.keys["key"], whole.keys["key"])
        np.testing.assert_array_equal(merged.counts, whole.counts)
        assert_moments_of_rows(merged, first + second + third)


@pytest.mark.parametrize("mean", [0.0, 1.0, 1e8, -1e8, [1e8, 0.0, -1e4]])
@pytest.mark.parametrize("n", [4, 500, 3000])
def test_scatter_is_accurate_whatever_the_mean(mean, n):
    """Relative to the spread of the rows, far below the rounding of their mean."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3)) + mean
    x[:, 2] += 0.999 * (x[:, 0] - np.ravel(mean)[0])
    parts = np.split(x, [n // 3, n // 2])
    summaries = [Factors.summarize({}, dict(zip("abc", part.T, strict=True))) for part in parts]
    summary = summaries[2].merge(summaries[0]).merge(summaries[1])
    points, weights = summary.points("float64")
    assert len(weights) <= 10
    points = np.column_stack([*points.values()])

    def scatter(x, weights):
        # Exact differences.
        x = (x - np.asarray(mean)).astype(np.longdouble)
        total = (weights[:, None] * x).sum(axis=0)
        square = np.einsum("i,ij,ik->jk", weights.astype(np.longdouble), x, x)
        return total / n, square - np.outer(total, total) / n

    (found_mean, found), (expected_mean, expected) = (
        scatter(points, weights),
        scatter(x, np.ones(n)),
    )
    np.testing.assert_allclose(found_mean, expected_mean, rtol=0, atol=1e-14)
    sizes = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert (np.abs(found - expected) <= 4e-14 * sizes).all()


def test_nearly_collinear_columns_keep_their_difference():
    """Cross products would lose all digits of it."""
    rng = np.random.default_rng(2)
    x, small = rng.normal(size=(2, 2000))
    summary = Factors.summarize({}, {"x": x, "y": x + 1e-9 * small})
    points, weights = summary.points("float64")
    difference = points["y"] - points["x"]
    exact = (x + 1e-9 * small) - x
    np.testing.assert_allclose((weights * difference**2).sum(), (exact**2).sum(), rtol=1e-6)


def test_a_cell_of_equal_rows_is_one_point():
    points, weights = factors([(3, 1e8 + 0.1, 0.3)] * 5).points("float64")
    assert [x.tolist() for x in points.values()] == [[3], [1e8 + 0.1], [0.3]]
    assert weights.tolist() == [5]


def test_rows_without_keys_are_one_cell():
    x = np.array([1.0, 2.0, 4.0])
    summary = Factors.summarize({}, {"x": x}).merge(Factors.summarize({}, {"x": x[:1]}))
    assert (summary.n_cells, summary.n_rows) == (1, 4)
    points, weights = summary.points("float64")
    np.testing.assert_allclose([weights.sum(), weights @ points["x"]], [4, 8], rtol=1e-15)
    np.testing.assert_allclose(weights @ points["x"] ** 2, 22, rtol=1e-15)


def test_points_of_single_precision_have_the_moments_of_the_rows():
    x = np.random.default_rng(3).normal(size=1000) + 300
    points, weights = Factors.summarize({}, {"x": x}).points("float32")
    assert points["x"].dtype == np.float32
    x_of_points = points["x"].astype(np.float64)
    np.testing.assert_allclose(weights @ x_of_points, x.sum(), rtol=1e-13)
    np.testing.assert_allclose(
        weights @ (x_of_points - 300) ** 2, ((x - 300) ** 2).sum(), rtol=1e-6
    )


def test_a_summary_is_plain_data():
    summary = factors([(1, 2.0, 3.0), (1, 4.0, 5.0), (2, 0.0, 1.0)])
    again = pickle.loads(pickle.dumps(summary))
    np.testing.assert_array_equal(again.triangles, summary.triangles)
    assert again.merge(summary).n_rows == 6
