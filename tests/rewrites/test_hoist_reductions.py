"""A long row is reduced once per distinct row: the graphs, values, refusals, and the interaction with compaction."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot, Max, Sum
from pytensor.tensor.special import LogSumExp

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.compact.hoist_reductions import LONG, NAME
from tests.rewrites.conftest import assert_left_alone, assert_same_value_and_gradient, pregrad

N, N_DISTINCT = 240, 40
RNG = np.random.default_rng(0)
OF_ROW = RNG.permutation(np.arange(N) % N_DISTINCT)
Z = RNG.normal(size=(N_DISTINCT, LONG))[OF_ROW]
CONTINUOUS = RNG.normal(size=(N, LONG))
Y = RNG.normal(size=N)
ROUNDED = Y.round()
# Too few entries for a design matrix, which would become a table of its distinct rows.
SMALL = np.tile(RNG.normal(size=(N_DISTINCT, LONG)), (3, 1))

b = pt.vector("b", shape=(LONG,))
data, s = pt.matrix("data", shape=(N, LONG)), pt.scalar("s")
longest = pt.logsumexp(Z * b, axis=1)


def log_density(mu, y):
    """Return what is summed over rows of a Student likelihood."""
    return -2 * pt.log1p(pt.sqr((y - mu) / s) / 3)


# What is hoisted, and what reduces rows in it.
FIRES = {
    "a product": (pt.log1p(pt.sqr(Y[: len(SMALL)] - pt.dot(SMALL, b))), Dot),
    "a sum": (pt.exp(Z * b).sum(1) * Y, Sum),
    "the largest": (pt.max(Z * b, axis=1) * Y, Max),
    "the logarithm of a sum": (longest * Y, LogSumExp),
    "a sum over rows": (log_density(longest, Y).sum(), LogSumExp),
    "a sum over rows that are compacted": (log_density(longest, ROUNDED).sum(), LogSumExp),
}
REFUSES = {
    "short rows": pt.logsumexp(Z[:, : LONG - 1] * b[: LONG - 1], axis=1),
    "rows that do not repeat": pt.logsumexp(CONTINUOUS * b, axis=1),
    "data that are not known": pt.logsumexp(data * b, axis=1),
    "few rows": pt.logsumexp(Z[:20] * b, axis=1),
    "one product": pt.dot(b, b),
    "integers": pt.dot((Z > 0).astype("int64"), (b > 0).astype("int64")),
}


def n_reduced(out, op):
    """Return how many rows are reduced by such an Op, in all."""
    found = {x for x in ancestors([out]) if isinstance(x.owner_op, op) and x.type.ndim}
    return sum(int(np.prod(x.type.shape)) for x in found)


def values():
    return {
        b: np.linspace(-1.0, 2.0, LONG),
        data: CONTINUOUS,
        s: np.array(1.3),
    }


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    out, op = FIRES[name]
    with collected() as decisions:
        found = pregrad(out, on=True)
    assert n_reduced(found, op) == N_DISTINCT < n_reduced(pregrad(out, on=False), op)
    assert NAME in {d.rule for d in decisions if d.fired}
    with collected() as again:
        assert n_reduced(pregrad(found, on=True), op) == N_DISTINCT
    assert NAME not in {d.rule for d in again}


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], values(), rtol=1e-12)


@pytest.mark.parametrize("number", [0.0, np.inf, -np.inf, np.nan])
def test_infinite_and_nan_entries_agree(number):
    for out in (longest * Y, pt.max(Z * b, axis=1) * Y):
        at = values() | {b: np.r_[number, np.linspace(-1.0, 2.0, LONG - 1)]}
        assert_same_value_and_gradient(out, at, rtol=1e-12)


def test_likelihoods_share_the_reduction():
    """Each is compacted by what it reads besides, and reads the same rows."""
    counts = RNG.poisson(1.0, size=(3, N))
    out = sum(log_density(longest, y).sum() for y in counts)
    found, apart = pregrad(out, on=True), pregrad(out, on=True, exclude=[NAME])
    assert n_reduced(found, LogSumExp) == N_DISTINCT < n_reduced(apart, LogSumExp)
    assert_same_value_and_gradient(out, values(), rtol=1e-12)
    for y in counts:
        n_cells = len({*zip(OF_ROW, y)})
        assert n_cells in {x.type.shape[0] for x in ancestors([found]) if x.type.ndim == 1}


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], NAME)
