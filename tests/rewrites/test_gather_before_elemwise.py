"""Only the picked entries of an elementwise table are computed."""

from math import prod

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.config import switched
from tests.rewrites.conftest import with_gradients

PYTHON = Mode("py", "fast_run").excluding("fusion")
N, M, K = 12, 4, 3
RNG = np.random.default_rng(0)
ROWS, COLUMNS = np.arange(N), np.arange(M)
Y, GRID = RNG.integers(0, K, N), RNG.integers(0, K, (N, M))

u = pt.vector("u", shape=(N,))
w = pt.matrix("w", shape=(N, M))
p = pt.vector("p", shape=(K,))
table = pt.matrix("table", shape=(N, K))
SHAPES = {x: x.type.shape for x in (u, w, p, table)}

sides = pt.sigmoid(u)[:, None]
mix = (1 - pt.sigmoid(w))[..., None] * p + pt.sigmoid(w)[..., None] * p**2
dense = sides * p + table

# The gather, and the shape of what is computed instead of the table.
FIRES = {
    "a category per row": (pt.log(sides * p + 1)[ROWS, Y], (N,)),
    "a category per cell": (pt.log(mix)[ROWS[:, None], COLUMNS, GRID], (N, M)),
    "indices of two and three axes": (
        pt.log(mix)[ROWS[:, None], COLUMNS[None], GRID[None]],
        (1, N, M),
    ),
    "some cells": (pt.log(mix)[ROWS, ROWS % M, Y], (N,)),
    "from the end": (pt.log(mix)[ROWS - N, ROWS % M - M, Y - K], (N,)),
    "a change point": (pt.switch(u[:, None] < 0, pt.exp(p), p**2)[ROWS, Y], (N,)),
    "one axis of several": (pt.log(mix)[:, COLUMNS, GRID[0]], (N, M)),
    "a table that is read twice": (pt.log(dense + dense**2)[ROWS, Y], (N,)),
    "few categories": (pt.log(sides * p[:2] + 1)[ROWS, Y % 2], (N,)),
    "ranges that are swapped": (
        pt.exp(w[:, :, None] + p)[ROWS[None], COLUMNS[:, None], 1 + 0 * GRID.T],
        (M, N),
    ),
}

i = pt.lvector("i")
mask = pt.vector("mask", shape=(N,), dtype="bool")
some = pt.vector("some")
REFUSES = {
    "effects of groups": pt.exp(p)[Y],
    "most of the entries": pt.exp(sides * p + 1)[ROWS[:, None], [[0, 1]]],
    "an index of unknown length": pt.log(mix)[:, i, i],
    "a table of unknown length": pt.log(some[:, None] * p)[ROWS, Y],
    "a mask": pt.log(sides * p + 1)[mask],
    "axes that are apart": pt.log(mix)[ROWS[:4], :, Y[:4]],
    "part of an axis as well": pt.log(mix)[ROWS[:4], COLUMNS, 1:],
    "an axis of one": (sides + pt.exp(w[:, :1]))[ROWS[:4], ROWS[:4] * 0],
}


def computed(out, *, on, exclude=()):
    """Return the shapes of all elementwise results before the gradient."""
    with switched(on):
        found = rewrite_graph(out, include=["canonicalize"], exclude=exclude, clone=True)
    outs = ancestors([found])
    return [x.type.shape for x in outs if isinstance(x.owner_op, Elemwise)]


def largest(out, *, on):
    return max((prod(shape) for shape in computed(out, on=on) if None not in shape), default=0)


def value_and_gradients(out, *, on, **values):
    """Return the sum of what is picked, each entry with a weight of its own, and its gradients."""
    weights = np.arange(1, 1 + prod(out.type.shape)).reshape(out.type.shape)
    function = with_gradients((out * weights).sum(), [*SHAPES], on=on, mode=PYTHON)
    point = {x.name: np.random.default_rng(1).uniform(0.2, 0.8, size=n) for x, n in SHAPES.items()}
    return function(**{**point, **values})


@pytest.mark.parametrize("name", FIRES)
def test_only_gathered_entries_are_computed(name):
    out, shape = FIRES[name]
    assert shape in computed(out, on=True)
    assert largest(out, on=True) <= max(prod(shape), N * M)
    assert largest(out, on=True) < largest(out, on=False)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    on, off = (value_and_gradients(FIRES[name][0], on=on) for on in (True, False))
    for found, expected in zip(on, off, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    out = REFUSES[name]
    assert computed(out, on=True) == computed(out, on=False)


def test_refuses_where_the_table_has_another_client():
    logp = pt.log(sides * p + 1)
    out = logp[ROWS, Y].sum() + logp.sum()
    assert computed(out, on=True) == computed(out, on=False)


def test_arange_indices_leave_no_gather():
    out = pt.log(mix)[ROWS[:, None], COLUMNS, GRID]
    with switched(True):
        found = rewrite_graph(out, include=["canonicalize"], clone=True)
    gathered = {
        x.owner.inputs[0].type.shape for x in ancestors([found]) if "Advanced" in str(x.owner_op)
    }
    assert gathered == {(K,)}


@pytest.mark.parametrize("wrong", [K, -K - 1])
@pytest.mark.parametrize("on", [True, False])
def test_an_index_out_of_range_is_an_error(wrong, on):
    y = np.where(ROWS == 3, wrong, Y)
    with pytest.raises(IndexError):
        value_and_gradients(pt.log(sides * p + 1)[ROWS, y], on=on)


def test_entries_that_are_not_gathered_leave_no_nan_in_the_gradient():
    """The derivative of a probability of zero that was not observed is left out, not multiplied by zero."""
    chances = np.where(np.arange(K) == 0, 0.0, 0.5)
    never = 1 + Y % (K - 1)
    for found in value_and_gradients(pt.log(sides * p)[ROWS, never], on=True, p=chances):
        assert np.isfinite(found).all()


def models():
    """Return models whose log probabilities are picked from a table of all categories."""
    with pm.Model() as change_point:
        before, after = pm.Dirichlet("before", np.ones(K)), pm.Dirichlet("after", np.ones(K))
        chances = pt.switch((ROWS < 0.5 * N)[:, None], before, after)
        pm.Potential("y", pt.log(chances)[ROWS, Y].sum())
    with pm.Model() as mixture:
        share, parts = pm.Beta("share", 1, 1), pm.Dirichlet("parts", np.ones(K), shape=(2, K))
        each = pm.math.sigmoid(pm.Normal("x", shape=N))[:, None] * share
        pm.Potential("y", pt.log(each * parts[0] + (1 - each) * parts[1])[ROWS, Y].sum())
    with pm.Model() as hidden:
        classes = pm.Normal("classes", shape=(2, K))
        logits = pm.Normal("x", shape=(N, 1, 1)) + classes[None]
        both = pt.log(pm.math.sigmoid(logits))[ROWS[:, None], np.arange(2), Y[:, None]]
        pm.Potential("y", pm.math.logsumexp(both, axis=1).sum())
    with pm.Model() as multinomial:
        eta = pm.Normal("a", shape=K) + pm.Normal("x", shape=N)[:, None]
        logp = eta - pm.math.logsumexp(eta, axis=1)[:, None]
        pm.Potential("y", logp[ROWS, Y].sum())
    return {
        "change point": change_point,
        "mixture": mixture,
        "hidden classes": hidden,
        "multinomial": multinomial,
    }


@pytest.mark.parametrize("name", ["change point", "mixture", "hidden classes", "multinomial"])
def test_models(name):
    model = models()[name]
    inputs = model.continuous_value_vars
    rng = np.random.default_rng(2)
    start = model.initial_point()
    point = {v.name: start[v.name] + 0.3 * rng.normal(size=start[v.name].shape) for v in inputs}
    found = {}
    for on in (True, False):
        with switched(on):
            found[on] = model.compile_fn([model.logp(), model.dlogp()], mode=PYTHON)(point)
    for on, off in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(on, off, rtol=1e-11, atol=1e-12)
