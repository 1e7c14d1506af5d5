"""Entries of a product are gathered from it, not computed from rows of its factors, where that is faster."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot

from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.after_gradient.gather_after_dot import local_gather_after_dot
from tests.rewrites.conftest import pregrad

DATABASES = ["canonicalize", "stabilize", "specialize", "uncanonicalize", "numba"]
N, K = 16, 400
ROWS, COLUMNS = np.tril_indices(N)

a = pt.matrix("a", shape=(N, K))
b = pt.matrix("b", shape=(K, N))
rng = np.random.default_rng(0)
A, B = rng.normal(size=(N, K)), rng.normal(size=(K, N))


def products(out, *, on):
    """Count the products of matrices after the rules for Numba, before fusion; another rule has fewer rows of what repeats."""
    others = ["fastlogp_fused_kernel", "fastlogp_hoist_reductions"]
    with switched(on):
        found = rewrite_graph(out, include=DATABASES, exclude=others, clone=True)
    return sum(isinstance(x.owner_op, Dot) for x in ancestors([found]))


FIRES = {
    "entries of a product": (a @ b)[ROWS, COLUMNS],
    "rows of factors": (a[ROWS] * b.T[COLUMNS]).sum(axis=1),
    "rows from the end": (a[ROWS - N] * b.T[COLUMNS]).sum(axis=1),
    "a row again and again": (a[ROWS * 0] * b.T[COLUMNS]).sum(axis=1),
}
i = pt.lvector("i")
weights = pt.vector("weights", shape=(K,))
long = pt.matrix("long", shape=(10 * N, K))
few, FEW = pt.matrix("few", shape=(9, 2000)), np.tril_indices(9)
short = pt.matrix("short", shape=(N, 20))
unknown = pt.matrix("unknown", shape=(N, None))
square = pt.matrix("square", shape=(15, 150))
SOME, OTHERS = np.divmod(rng.choice(225, 150, replace=False), 15)
cube = pt.tensor3("cube", shape=(N, N, K))
single = pt.fmatrix("single", shape=(N, K))

REFUSES = {
    "few of the entries": (long[ROWS] * b.T[COLUMNS]).sum(axis=1),
    "few pairs of rows": (few[FEW[0]] * few[FEW[1]]).sum(axis=1),
    "short rows": (short[ROWS] * short[COLUMNS]).sum(axis=1),
    "rows whose length is not known": (unknown[ROWS] * unknown[COLUMNS]).sum(axis=1),
    "rows that are not constant": (a[i] * b.T[i]).sum(axis=1),
    "a sum down the columns": (a[ROWS] * b.T[COLUMNS]).sum(axis=0),
    "a sum down as many rows as there are columns": (square[SOME] * square[OTHERS]).sum(axis=0),
    "rows of matrices": (cube[ROWS, COLUMNS] * cube[COLUMNS, ROWS]).sum(axis=1),
    "matrices": (cube[ROWS] * cube[COLUMNS]).sum(axis=1),
    "rows along two axes": (a[ROWS.reshape(2, -1)] * a[COLUMNS.reshape(2, -1)]).sum(axis=1),
    "a third factor": (a[ROWS] * b.T[COLUMNS] * a[COLUMNS]).sum(axis=1),
    "a third factor that is not gathered": (a[ROWS] * b.T[COLUMNS] * weights).sum(axis=1),
    "one gather": (a[ROWS] * pt.exp(b.T[COLUMNS])).sum(axis=1),
    "single precision, added up in double": (single[ROWS] * single[COLUMNS]).sum(axis=1),
    "two precisions": (single[ROWS] * b.T[COLUMNS]).sum(axis=1),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires(name):
    assert products(FIRES[name], on=False) == 0
    assert products(FIRES[name], on=True) == 1


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    off, on = (_compiled([a, b], FIRES[name], on=on)(A, B) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-12, atol=1e-13 * K)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_entries(bad):
    A_bad = A.copy()
    A_bad[3, 7] = bad
    off, on = (_compiled([a, b], FIRES["rows of factors"], on=on)(A_bad, B) for on in (False, True))
    assert not np.isfinite(off).all()
    np.testing.assert_allclose(on, off, rtol=1e-12, atol=1e-13 * K)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert products(REFUSES[name], on=True) == products(REFUSES[name], on=False) == 0


def test_gradient_of_many_correlated_effects():
    """No rows are gathered for the gradient of a packed factor."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=N, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        z = pm.Normal("z", shape=(K, N))
        pm.Poisson("y", pm.math.exp(z @ chol.T), observed=np.ones((K, N)))
    inputs = model.continuous_value_vars
    start = model.initial_point()
    point = [np.asarray(start[v.name]) + 0.1 * rng.normal(size=v.type.shape) for v in inputs]
    with switched(True):
        gradient = pytensor.grad(pregrad(model.logp(), on=True), inputs)
    by_rows, by_product = (products(gradient[0], on=on) for on in (False, True))
    assert (by_rows, by_product) == (1, 2)
    off, on = (_compiled(inputs, gradient, on=on)(*point) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-10)


def _compiled(inputs, out, *, on):
    mode = get_mode("NUMBA").excluding("fastlogp_fused_kernel")
    with switched(on):
        return pytensor.function(inputs, out, mode=mode)


def test_a_factor_of_one_column_is_left_alone():
    # Other rules take it out of the sum most often, but not where they are excluded.
    narrow = pt.matrix("narrow", shape=(N, 1))
    out = (narrow[ROWS] * b.T[COLUMNS]).sum(axis=1)
    assert not local_gather_after_dot.transform(None, out.owner)
