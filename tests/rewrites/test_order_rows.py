"""Rows are sorted by the index that pays most: the graphs, value and gradient, and refusals."""

from collections import Counter

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import All
from pytensor.tensor.subtensor import AdvancedSubtensor

import pymc_fastlogp
from pymc_fastlogp.analysis.index_facts import FAR, Neighbors
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.order import scatter_order
from pymc_fastlogp.rewrites.rows.order.order_rows import NAME
from pymc_fastlogp.rewrites.rows.order.scatter_order import (
    CACHED,
    IN_REGISTERS,
    LANE_BY_LANE,
    LEAST_SAVING,
    RUNS,
    ScatterIndex,
    best_order,
    cost,
    cost_of_one,
)
from pymc_fastlogp.rewrites.rows.refusals import NEEDED_ROW_BY_ROW, ONE_VALUE_PER_ROW, READS_OTHERS
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sum_and_gradient,
)
from tests.rewrites.test_compact_rows_property import Rows

N = 240
RNG = np.random.default_rng(0)
GROUP, OTHER = RNG.integers(0, 4, N), RNG.integers(0, 60, N)
X, Y = RNG.normal(size=(2, N))
MATRIX = RNG.normal(size=(N, 3))
SORTED = np.argsort(GROUP, kind="stable")
PERMUTATION = RNG.permutation(N)
BY_ENTRY = np.argsort(PERMUTATION)

theta, phi, few = pt.tensor("theta", shape=(4,)), pt.tensor("phi", shape=(60,)), pt.scalar("few")
table, entries = pt.tensor("table", shape=(4, 3)), pt.tensor("entries", shape=(N,))
square = pt.tensor("square", shape=(N, N))
VALUES = {v: np.random.default_rng(1).normal(size=v.type.shape) for v in (theta, phi, few, table)}
VALUES |= {entries: Y, square: np.outer(X, Y)}


def rows(group=GROUP, x=X):
    return pt.exp(theta[group] * x)


FIRES = {
    "sum": lambda g, o, x, m: rows(g, x).sum(),
    "below a check of its rows": lambda g, o, x, m: pt.switch(
        pt.all(rows(g, x) < 1e3), rows(g, x).sum(), -np.inf
    ),
    "switch within rows": lambda g, o, x, m: pt.switch(
        pt.all(rows(g, x) < 1e3), rows(g, x), -np.inf
    ).sum(),
    "two sums": lambda g, o, x, m: rows(g, x).sum() * pt.log1p(rows(g, x)).sum(),
    "two sums with an index in common": lambda g, o, x, m: (
        rows(g, x).sum() + (few * theta[g] * pt.sin(few * x)).sum()
    ),
    "another index": lambda g, o, x, m: (rows(g, x) * pt.sin(phi[o] + x)).sum(),
    "matrix": lambda g, o, x, m: pt.exp(table[g] * m).sum(),
    "rows of a matrix": lambda g, o, x, m: pt.exp(table[g] * m).sum(axis=0).prod(),
    "sums of columns": lambda g, o, x, m: pt.exp((table[g] * m).sum(axis=1)).sum(),
    "covariates": lambda g, o, x, m: pt.exp(theta[g] * pt.dot(m, table[0])).sum(),
    "of a normalized row": lambda g, o, x, m: (x * rows(g, x) / rows(g, x).sum()).sum(),
}


def indices_of(out):
    """Return the indices of all gathers."""
    nodes = [x.owner for x in ancestors([out]) if isinstance(x.owner_op, AdvancedSubtensor)]
    return [index.data for node in nodes for index in node.inputs[1:] if index.type.ndim == 1]


@pytest.mark.parametrize("case", FIRES)
def test_rows_are_sorted(case):
    make = FIRES[case]
    before = make(GROUP, OTHER, X, MATRIX)
    after = make(*(column[SORTED] for column in (GROUP, OTHER, X, MATRIX)))
    assert_rewritten(before, after)
    assert_same_value_and_gradient(before, VALUES, rtol=1e-11)


def test_a_permutation_of_entries_is_read_in_their_order():
    before = pt.exp(entries[PERMUTATION] * X + theta[GROUP]).sum()
    after = pt.exp(entries * X[BY_ENTRY] + theta[GROUP[BY_ENTRY]]).sum()
    assert_rewritten(before, after)
    assert_same_value_and_gradient(before, VALUES, rtol=1e-11)


def test_a_permutation_of_joined_entries_is_read_in_their_order():
    joined = pt.concatenate([Y[60:], phi])
    out = pt.exp(joined[PERMUTATION] * X * theta[GROUP]).sum()
    assert all(
        len(index) < N or (index == GROUP[BY_ENTRY]).all()
        for index in indices_of(pregrad(out, on=True))
    )
    assert_same_value_and_gradient(out, VALUES, rtol=1e-11)


def test_a_permutation_of_what_is_also_an_output_may_be_ordered():
    joined = pt.concatenate([Y[60:], phi])
    out = pt.exp(joined[PERMUTATION] * X).sum() * joined
    assert not indices_of(pregrad(out, on=True))
    assert_same_value_and_gradient(out.sum(), VALUES, rtol=1e-11)


def test_entries_read_in_two_orders():
    """One of two permutations becomes the order of the rows."""
    out = pt.exp(entries[PERMUTATION] * entries[PERMUTATION[::-1]] * X).sum()
    [index] = indices_of(pregrad(out, on=True))
    assert sorted(index) == [*range(N)]
    assert_same_value_and_gradient(out, VALUES, rtol=1e-11)


UNNAMED = ONE_VALUE_PER_ROW.about(name="")

REFUSES = {
    "sorted": (lambda: rows(GROUP[SORTED]).sum(), None),
    "small groups": (lambda: pt.exp(phi[OTHER] * X).sum(), None),
    "few rows": (lambda: rows(GROUP[:30], X[:30]).sum(), None),
    "integers": (lambda: pt.round(rows()).astype("int64").sum(), None),
    "negative index": (lambda: rows(GROUP - 4).sum(), None),
    "no index": (lambda: pt.exp(few * X).sum(), None),
    "all alone": (lambda: pt.all(rows() > 0), None),
    "also an output": (lambda: rows() + rows().sum(), NEEDED_ROW_BY_ROW),
    "another reduction": (lambda: rows().sum() + rows().max(), NEEDED_ROW_BY_ROW),
    "also summed by group": (
        lambda: rows().sum() * pt.zeros(4)[GROUP].inc(rows()),
        NEEDED_ROW_BY_ROW,
    ),
    "its gather is an output": (lambda: theta[GROUP] * rows().sum(), NEEDED_ROW_BY_ROW),
    "by way of another sum": (
        lambda: rows().sum() + (theta[GROUP] * phi[OTHER]).sum() + phi[OTHER],
        NEEDED_ROW_BY_ROW,
    ),
    "cumulative sum": (lambda: (pt.cumsum(rows()) * theta[GROUP]).sum(), UNNAMED),
    "a variable for each row": (
        lambda: (rows() * entries).sum(),
        ONE_VALUE_PER_ROW.about(name="entries"),
    ),
    "differences": (lambda: pt.sqr(rows()[1:] - rows()[:-1]).sum(), READS_OTHERS),
    "differences beside another index": (
        lambda: (pt.sqr(rows()[1:] - rows()[:-1]) * pt.exp(phi[OTHER[1:]] * X[1:])).sum(),
        READS_OTHERS,
    ),
    "rows in reverse": (lambda: (rows() * rows()[::-1]).sum(), READS_OTHERS),
    "products of pairs": (lambda: pt.exp(rows()[:, None] * rows()[None]).sum(), NEEDED_ROW_BY_ROW),
    "both axes": (lambda: (pt.exp(square) * rows()).sum(), ONE_VALUE_PER_ROW.about(name="square")),
}


@pytest.mark.parametrize("case", REFUSES)
def test_refuses(case):
    make, refusal = REFUSES[case]
    out = make()
    with collected() as decisions:
        found = pregrad(out, on=True, exclude=["fastlogp_compact_rows"])
    said = {d.refusal for d in decisions if d.rule == NAME}
    assert all(refusal and refusal.text in each.text for each in said), said
    assert said or not refusal
    expected = pregrad(out, on=False)
    for index, as_before in zip(indices_of(found), indices_of(expected), strict=True):
        np.testing.assert_array_equal(index, as_before)


def test_shared_data_and_random_rows_stay():
    shared = pytensor.shared(X, shape=(N,), name="data")
    for x in (shared, pt.random.normal(size=(N,))):
        with collected() as decisions:
            found = pregrad(pt.exp(theta[GROUP] * x).sum(), on=True)
        assert not any(d.fired for d in decisions if d.rule == NAME)
        [index] = indices_of(found)
        np.testing.assert_array_equal(index, GROUP)


def test_cells_are_sorted():
    kind = RNG.integers(0, 80, N * 10).astype(float)
    group = RNG.integers(0, 4, N * 10)
    out = pt.exp(theta[group] * kind).sum()
    found = pregrad(out, on=True)
    [index] = indices_of(found)
    assert len(index) < N * 10
    assert (np.diff(index) >= 0).all()
    assert_same_value_and_gradient(out, VALUES, rtol=1e-11)


def test_rows_along_the_last_axis_are_sorted():
    out = pt.exp(table.T[:, GROUP] * MATRIX.T).sum()
    [index] = indices_of(pregrad(out, on=True))
    np.testing.assert_array_equal(index, GROUP[SORTED])
    assert_same_value_and_gradient(out, VALUES, rtol=1e-11)


def test_a_check_is_permuted_with_the_sum():
    out = pregrad(FIRES["below a check of its rows"](GROUP, OTHER, X, MATRIX), on=True)
    [check] = {x for x in ancestors([out]) if isinstance(x.owner_op, All)}
    [index] = {index.tobytes() for index in indices_of(check)}
    assert index == GROUP[SORTED].tobytes()
    assert {index.tobytes() for index in indices_of(out)} == {index}


def test_excluded_by_name():
    [index] = indices_of(pregrad(rows().sum(), on=True, exclude=[NAME]))
    np.testing.assert_array_equal(index, GROUP)


def test_explain_says_so():
    with pm.Model() as model:
        a = pm.Normal("a", shape=4)
        pm.Poisson("y", pt.exp(a[GROUP] * X), observed=RNG.poisson(1, N))
    assert NAME in {row.rewrite for row in pymc_fastlogp.explain(model)["y"] if row.fired}


@pytest.mark.parametrize(
    ("indices", "by"),
    [
        ([(GROUP, 1)], [0]),
        ([(OTHER, 1), (GROUP, 1)], [1]),
        ([(np.repeat(np.arange(10), 24), 1), (np.tile(np.arange(24) % 4, 10), 2)], [1]),
        ([(np.repeat(np.arange(10), 24), 2), (np.tile(np.arange(24), 10), 1)], None),
        ([(np.arange(N), 1)], None),
        ([(np.arange(N) % 256, 1)], None),
        ([(PERMUTATION, 1)], [0]),
        ([(PERMUTATION, 1), (GROUP, 1)], [0]),
        ([(GROUP, 1), (PERMUTATION + 3, 1)], [1]),
        ([(PERMUTATION, 1), (GROUP, 4)], [1]),
        ([(OTHER * 100, 1)], [0]),
        ([], None),
    ],
)
def test_best_order_is_sorted_and_saves_enough(indices, by):
    scattered = [ScatterIndex(*each) for each in indices]
    order = best_order(scattered)
    assert (order is None) == (by is None)
    if order is not None:
        assert sorted(order) == list(range(N))
        assert all((np.diff(scattered[k].of_row[order]) >= 0).all() for k in by)
        assert cost(scattered) - cost(scattered, order) >= LEAST_SAVING


def test_a_table_longer_than_the_cache_is_read_in_rounds():
    in_rounds = np.tile(np.arange(CACHED + 1), 4)
    shuffled = np.random.default_rng(0).permutation(in_rounds)
    order = best_order([ScatterIndex(shuffled, 1)])
    np.testing.assert_array_equal(np.sort(order), np.arange(order.size))
    np.testing.assert_array_equal(shuffled[order], in_rounds)
    assert best_order([ScatterIndex(in_rounds, 1)]) is None
    assert best_order([ScatterIndex(shuffled[shuffled < 1000], 1)]) is None


@pytest.mark.parametrize(
    ("known", "nanoseconds"),
    [
        (Neighbors(run=1, gap=FAR), 0.67),
        (Neighbors(run=1, gap=1), LANE_BY_LANE[0]),
        (Neighbors(run=8, gap=1), LANE_BY_LANE[3]),
        (Neighbors(run=FAR, gap=1), IN_REGISTERS[4]),
        (Neighbors(run=10**6, gap=1), IN_REGISTERS[-1]),
    ],
)
def test_cost_is_the_measured_one(known, nanoseconds):
    assert len(RUNS) == len(LANE_BY_LANE) == len(IN_REGISTERS)
    assert cost_of_one(known) == pytest.approx(nanoseconds)


@pytest.mark.parametrize("width", [4, 8])
def test_short_vectors_have_no_runs_to_sort_for(monkeypatch, width):
    """Rows are not sorted into runs, but still into the order of a table that each row reads once."""
    monkeypatch.setattr(scatter_order, "n_lanes", lambda: width)
    assert best_order([ScatterIndex(GROUP, 1)]) is None
    np.testing.assert_array_equal(best_order([ScatterIndex(PERMUTATION, 1)]), BY_ENTRY)


@st.composite
def readers_of_rows(draw):
    """Draw two sums and a check that may read the same rows."""
    drawn = Rows(draw)
    u, v = (pt.broadcast_to(drawn.expression(depth), (drawn.n,)) for depth in (3, 2))
    u, v = u.astype("float64"), v.astype("float64")
    out = u.sum() + pt.switch(pt.all(u < 1e9), (u * v).sum(), v.sum())
    return out, abs(u).sum() + abs(u * v).sum() + abs(v).sum(), drawn.inputs


def check_any_readers(n):
    counts = Counter()

    # A few are the same as long as no module that is loaded changes: Hypothesis takes numbers from those.
    @settings(max_examples=n, derandomize=n < 100)
    @given(readers_of_rows())
    def check(case):
        out, size, inputs = case
        with collected() as decisions:
            on = pregrad(out, on=True, exclude=["fastlogp_compact_rows", "fastlogp_gaussian_rows"])
        counts[any(d.fired for d in decisions if d.rule == NAME)] += 1
        scale = float(size.eval(inputs, mode=PYTHON, on_unused_input="ignore"))
        off = sum_and_gradient(pregrad(out, on=False), inputs)
        for expected, found in zip(off, sum_and_gradient(on, inputs), strict=True):
            tolerance = 1e-12 * max(scale, float(np.max(np.abs(expected), initial=1.0)))
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=tolerance)

    check()
    return counts


def test_any_readers_agree():
    counts = check_any_readers(20)
    assert min(counts[True], counts[False]) >= 2


@pytest.mark.slow
def test_very_many_readers_agree():
    assert check_any_readers(1000)[True] >= 100


def test_refuses_selected_rows_of_a_computed_vector_beside_an_index():
    """The index of the vector is longer than that of the rows, and the two are not sorted together."""
    rng = np.random.default_rng(3)
    table, other = pt.vector("table", shape=(200,)), pt.vector("other", shape=(30,))
    computed = pt.exp(table[rng.integers(0, 200, 5000)] + rng.normal(size=5000))
    selected = computed[np.arange(0, 5000, 11)]
    n = selected.type.shape[0]
    out = pt.softplus(selected + other[rng.integers(0, 30, n)] * rng.normal(size=n)).sum()
    with pytensor.config.change_flags(on_opt_error="raise"):
        assert_left_alone(out, "fastlogp_order_rows")
