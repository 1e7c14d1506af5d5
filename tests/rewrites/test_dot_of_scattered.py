"""A product with a mostly zero matrix becomes a sum of the rows at its nonzero entries, if that is faster."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.decisions import collected
from tests.fuzz.evaluation import by_numpy, compiled
from tests.slices import examples

DATABASES = ["canonicalize", "stabilize", "specialize", "uncanonicalize", "numba"]
N, M, K, ENTRIES = 40, 50, 10, 200

rng = np.random.default_rng(0)
FLAT = np.sort(rng.choice(N * M, ENTRIES, replace=False))
ROWS, COLUMNS = FLAT // M, FLAT % M
# Entries again and again, others never, and the first row and column not at all.
TWICE_ROWS, TWICE_COLUMNS = rng.integers(1, 9, ENTRIES), rng.integers(1, 9, ENTRIES)

u, v = pt.matrix("u", shape=(N, K)), pt.matrix("v", shape=(M, K))
r = pt.vector("r", shape=(ENTRIES,))
U, V, R = rng.normal(size=(N, K)), rng.normal(size=(M, K)), rng.normal(size=ENTRIES)
INPUTS, POINT = [u, v, r], [U, V, R]


def scattered(i, j, *, n=N, m=M, values=r):
    return pt.zeros((n, m), dtype=values.type.dtype)[i, j].inc(values)


def products(outs, *, on):
    """Count the products of matrices after the rules for Numba, before fusion."""
    with switched(on):
        found = rewrite_graph(
            outs, include=DATABASES, exclude=["fastlogp_fused_kernel"], clone=True
        )
    found = found if isinstance(found, list) else [found]
    return sum(isinstance(x.owner_op, Dot) for x in ancestors(found))


G = scattered(ROWS, COLUMNS)
FIRES = {
    "times a matrix": [G @ v],
    "its transpose times a matrix": [G.T @ u],
    "a transpose times it": [u.T @ G],
    "a transpose times its transpose": [v.T @ G.T],
    "both products of a gradient": [G @ v, G.T @ u],
    "entries again and again": [scattered(TWICE_ROWS, TWICE_COLUMNS) @ v],
    "one entry alone": [scattered(0 * ROWS, 0 * COLUMNS + M - 1) @ v],
}
single_r, single_v = pt.fvector("single_r", shape=(ENTRIES,)), pt.fmatrix("sv", shape=(M, K))
i, unknown = pt.lvector("i", shape=(ENTRIES,)), pt.matrix("unknown", shape=(None, K))
wide = pt.matrix("wide", shape=(M, None))
in_rows, length = pt.matrix("in_rows", shape=(ENTRIES, M)), pt.lscalar("length")
in_matrix = ROWS.reshape(2, -1), COLUMNS.reshape(2, -1)
few, narrow = pt.vector("few", shape=(9,)), pt.matrix("narrow", shape=(M, 2))
DENSE = np.arange(N * M)[: ENTRIES * 5]
long = pt.vector("long", shape=(DENSE.size,))

REFUSES = {
    "most of the entries": [scattered(DENSE // M, DENSE % M, values=long) @ v],
    "few entries": [scattered(ROWS[:9], COLUMNS[:9], values=few) @ v],
    "a short row": [scattered(ROWS, COLUMNS) @ narrow],
    "rows that are not constant": [scattered(i, COLUMNS) @ v],
    "negative positions": [scattered(ROWS - N, COLUMNS) @ v],
    "a matrix that is not zero elsewhere": [pt.ones((N, M))[ROWS, COLUMNS].inc(r) @ v],
    "entries that are set": [pt.zeros((N, M))[TWICE_ROWS, TWICE_COLUMNS].set(r) @ v],
    "one value for all entries": [pt.zeros((N, M))[ROWS, COLUMNS].inc(r[0]) @ v],
    "rows that are scattered": [pt.zeros((N, M))[ROWS].inc(in_rows) @ v],
    "positions along two axes": [scattered(*in_matrix, values=r.reshape((2, -1))) @ v],
    "a matrix whose length is not known": [scattered(ROWS, COLUMNS, n=length) @ v],
    "two precisions": [scattered(ROWS, COLUMNS, values=single_r) @ v],
    "rows whose number is not known": [G @ unknown],
    "rows whose length is not known": [G @ wide],
    "a matrix that is read elsewhere": [G @ v, pt.cumsum(G, axis=0)],
    "a matrix that is an output": [G @ v, G],
    "a product that is refused": [G @ v, G @ narrow],
    "the left factor as it is": [pt.matrix("l", shape=(K, N)) @ G],
    "two scattered matrices": [scattered(ROWS, COLUMNS) @ scattered(ROWS, COLUMNS).T],
}


@pytest.mark.parametrize("name", FIRES)
def test_fires(name):
    assert products(FIRES[name], on=False) == len(FIRES[name])
    assert products(FIRES[name], on=True) == 0


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert products(REFUSES[name], on=True) == products(REFUSES[name], on=False) > 0


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    off, on = (_compiled(INPUTS, FIRES[name], on=on)(*POINT) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_single_precision_rounds_once_per_term():
    outs = [scattered(ROWS, COLUMNS, values=single_r) @ single_v]
    assert products(outs, on=True) == 0
    point = [V.astype("float32"), R.astype("float32")]
    [found] = _compiled([single_v, single_r], outs, on=True)(*point)
    assert found.dtype == "float32"
    matrix = np.zeros((N, M))
    matrix[ROWS, COLUMNS] = point[1]
    exact = matrix @ point[0]
    # Each of up to ENTRIES terms is rounded, and so is each sum.
    size = np.abs(matrix) @ np.abs(point[0])
    assert (np.abs(found - exact) <= 8 * np.finfo("float32").eps * size).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", FIRES)
@pytest.mark.parametrize("of", [0, 1, 2])
def test_finite_entries_stay_finite(name, of, bad):
    point = [x.copy() for x in POINT]
    point[of].flat[3] = bad
    off, on = (_compiled(INPUTS, FIRES[name], on=on)(*point) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(found), finite)
        np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-12, atol=1e-12)


@given(st.integers(8, 60), st.integers(8, 60), st.integers(7, 20), st.integers(0, 99))
@settings(max_examples=examples(8, 15))
def test_factors_of_any_size_agree(n, m, k, seed):
    """Value and gradient of a factorization whose pairs are drawn, and may repeat."""
    random = np.random.default_rng(seed)
    entries = max(1, n * m // 6)
    rows, columns = random.integers(0, n, entries), random.integers(0, m, entries)
    a, b = pt.matrix("a", shape=(n, k)), pt.matrix("b", shape=(m, k))
    y, point = random.normal(size=entries), [random.normal(size=(x, k)) for x in (n, m)]
    off, on = (_with_gradient(a, b, rows, columns, y, on=on)(*point) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_gradient_of_ratings_has_no_matrix_product():
    """The products of the gradient go; the predictions never were one."""
    y = rng.normal(size=ENTRIES)
    assert _products_of_gradient(y, on=False) == 2
    assert _products_of_gradient(y, on=True) == 0
    off, on = (_with_gradient(u, v, ROWS, COLUMNS, y, on=on)(U, V) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def _outputs(a, b, rows, columns, y):
    """Return value and gradient as written; before it, PyTensor would gather rows for vectors of positions, but not for a mask."""
    value = ((y - (a @ b.T)[rows, columns]) ** 2).sum()
    return [value, *pytensor.grad(value, [a, b])]


def _products_of_gradient(y, *, on):
    return products(_outputs(u, v, ROWS, COLUMNS, y)[1:], on=on)


def _with_gradient(a, b, rows, columns, y, *, on):
    return _compiled([a, b], _outputs(a, b, rows, columns, y), on=on)


def _compiled(inputs, outs, *, on):
    """Compile a graph with the rewrites of mode NUMBA, to run in NumPy."""
    return compiled(inputs, outs, by_numpy("fastlogp_fused_kernel"), on=on)


def test_rule_fires_on_a_model_of_ratings():
    """A mask of what was seen, as in PyMC's notebook: from the model to the callback."""
    seen = np.zeros((N, M), dtype=bool)
    seen[ROWS, COLUMNS] = True
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=(N, K)), pm.Normal("b", shape=(M, K))
        pm.Normal("rating", (a @ b.T)[seen], 1, observed=R)
    with collected() as decisions:
        assert pymc_fastlogp.verify(model).passed
    assert "fastlogp_dot_of_scattered" in [x.rule for x in decisions if x.fired]
