"""Complete rows of imputed data are summed apart: the graphs, value and gradient, and refusals."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from pymc_fastlogp import explain, verify
from pymc_fastlogp.decisions import collected
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
    value_and_gradient,
)
from tests.slices import examples

RULE = "fastlogp_split_imputed"
N, GROUPS = 70, 4
RNG = np.random.default_rng(11)
DATA = RNG.normal(size=N)
MISSING = np.array([0, 1, 7, 20, 33, 34, 69])
COMPLETE = np.setdiff1d(np.arange(N), MISSING)
OTHERS = np.array([1, 5, 20, 40])
MATRIX_MASK = RNG.random((N, 3)) < 0.1

u, v = pt.vector("u", shape=(len(MISSING),)), pt.vector("v", shape=(len(OTHERS),))
one = pt.scalar("one")
cells = pt.vector("cells", shape=(int(MATRIX_MASK.sum()),))
b, s, beta = pt.scalar("b"), pt.scalar("s"), pt.vector("beta", shape=(3,))
a, each = pt.vector("a", shape=(GROUPS,)), pt.vector("each", shape=(N,))
index = pt.lvector("index")
VALUES = {
    x: np.asarray(RNG.normal(size=x.type.shape)) for x in (u, v, one, cells, b, beta, a, each)
} | {s: np.array(0.7), index: MISSING}
g, y = pt.constant(RNG.integers(0, GROUPS, N)), pt.constant(RNG.normal(size=N))
Y = pt.constant(RNG.normal(size=(N, 3)))


def order_of(missing):
    """Return the positions of rows in the join of the known and the unknown entries."""
    return np.argsort(np.concatenate([np.setdiff1d(np.arange(N), missing), missing]))


def gathered(missing, unknown, data=DATA):
    return pt.join(0, pt.constant(np.delete(data, missing)), unknown)[order_of(missing)]


def masked(x):
    """Return an array that is written as PyMC writes imputed data."""
    empty = pt.empty(N)
    return pt.set_subtensor(
        pt.set_subtensor(empty[MISSING], x)[COMPLETE], pt.constant(DATA[COMPLETE])
    )


SET = pt.constant(DATA)[MISSING].set(u)
SPELLINGS = {
    "set": SET,
    "set by a mask": pt.constant(DATA)[np.isin(np.arange(N), MISSING)].set(u),
    "set after set": masked(u),
    "gather of a join": gathered(MISSING, u),
    "join in order": pt.join(0, u, pt.constant(DATA[len(MISSING) :])),
    "one unknown": pt.constant(DATA)[3].set(one),
    "two parameters": pt.constant(DATA)[MISSING].set(u)[[2, 3, 4, 6]].set(v),
    "a set of others": pt.constant(DATA)[MISSING].set(u)[OTHERS].set(v),
    "unknown in reverse": pt.constant(DATA)[MISSING].set(u[::-1]),
    "standardized": (SET - 0.3) / 1.7,
    "zeros": pt.zeros(N)[MISSING].set(u),
}


def gaussian(x):
    return (-0.5 * ((y - a[g] - b * x) / s) ** 2).sum()


IMPUTED_MATRIX = pt.constant(RNG.normal(size=(N, 3)))[np.nonzero(MATRIX_MASK)].set(cells)
SECOND = pt.constant(DATA[::-1].copy())[OTHERS].set(v)
FIRES = (
    {name: gaussian(x) for name, x in SPELLINGS.items()}
    | {f"logistic, {name}": pt.softplus(a[g] + b * x).sum() for name, x in SPELLINGS.items()}
    | {
        "outcome": (-0.5 * ((SET - a[g]) / s) ** 2).sum(),
        "two covariates": gaussian(SET + pt.tanh(s) * SECOND),
        "covariate and outcome": ((SET - b * SECOND - a[g]) ** 2).sum(),
        "matrix times coefficients": gaussian(IMPUTED_MATRIX @ beta),
        "matrix, row sums": gaussian((IMPUTED_MATRIX * beta).sum(axis=1)),
        "columns stacked": gaussian(pt.stack([SET, y, SECOND], axis=1) @ beta),
        "transposed": gaussian(beta @ IMPUTED_MATRIX.T),
        "matrix of outcomes": ((IMPUTED_MATRIX - beta) ** 2 / s).sum(),
        "column": ((SET[:, None] * beta - Y) ** 2).sum(),
        "column, by column": ((SET[:, None] * beta - Y) ** 2).sum(axis=0),
        "all": pt.all(pt.lt(b * SET, 4.0)),
        "checked": pt.all(pt.gt(pt.exp(SET) * s, 0.0001)),
    }
)
REFUSES = {
    "index at run time": pt.constant(DATA)[index].set(u),
    "duplicates": pt.constant(DATA)[[0, 1, 1, 7, 9, 12, 30]].set(u),
    "data that can change": pytensor.shared(DATA, "data", shape=(N,))[MISSING].set(u),
    "index that can change": pt.constant(DATA)[pytensor.shared(MISSING, "missing", shape=(7,))].set(
        u
    ),
    "added to data": pt.constant(DATA)[MISSING].inc(u),
    "all missing": pt.zeros(N)[np.arange(N)].set(each),
    "none missing": pt.constant(DATA)[COMPLETE].set(pt.constant(DATA[COMPLETE])),
    "few complete": each[np.arange(31)].set(pt.constant(DATA[:31])),
    "few entries": pt.join(0, pt.constant(DATA[:3]), u)[
        np.r_[np.resize(np.arange(3), N - 7), 3:10]
    ],
    "looked up": (pt.zeros(GROUPS)[1:].set(u[:3]))[g],
    "rows that are computed": pt.switch(pt.constant(DATA) > 0, a[g], 0.0),
    "set to a computed row": pt.constant(DATA)[MISSING].set(a[g][MISSING]),
    "of unknown length": pt.constant(DATA)[MISSING].set(u) * pt.vector("open"),
    "another parameter by row": SET * each,
    "not by row": pt.cumsum(SET),
}


def assigns(out):
    kinds = IncSubtensor | AdvancedIncSubtensor | Join
    return [x for x in ancestors([out]) if isinstance(x.owner_op, kinds)]


def fires(out):
    with collected() as said:
        pregrad(out, on=True)
    return RULE in {decision.rule for decision in said}


def long_sums(out):
    """Return the lengths of the vectors that are summed."""
    kinds = Sum | All
    sums = {x.owner.inputs[0] for x in ancestors([out]) if isinstance(x.owner_op, kinds)}
    return sorted(x.type.shape[0] for x in sums)


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    out = FIRES[name]
    found = pregrad(out, on=True)
    assert fires(out)
    assert found.type == out.type
    assert N not in long_sums(found)
    assert not fires(found)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name], VALUES, rtol=2e-12)


@pytest.mark.parametrize("name", SPELLINGS)
def test_complete_gaussian_rows_become_cells(name):
    """Each group has three rows of a triangle: of the outcome, the intercept and the covariate."""
    found = pregrad(gaussian(SPELLINGS[name]), on=True)
    assert max(long_sums(found)) < N // 2


def test_unknown_entries_are_read_in_their_order():
    """Neither is an array of all rows written, nor the parameter read by an index."""
    unordered = pt.constant(DATA)[MISSING[::-1]].set(u)
    for x in (SET, masked(u), gathered(MISSING, u), unordered):
        found = pregrad(gaussian(x), on=True)
        assert not assigns(found)
        assert not any(
            z.owner.inputs[0] is u for z in ancestors([found]) if "Subtensor" in str(z.owner_op)
        )


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(gaussian(REFUSES[name]), RULE)


def test_refuses_rows_that_something_else_reads():
    rows = pt.exp(b * SET)
    assert_left_alone(pt.sum(rows) + pt.join(0, rows, rows)[0], RULE)


def test_float32_is_summed_in_double_precision():
    u32 = pt.vector("u32", shape=(len(MISSING),), dtype="float32")
    x = pt.constant(DATA.astype("float32"))[MISSING].set(u32)
    out = pt.exp(x).sum()
    assert fires(out)
    assert pregrad(out, on=True).type == out.type
    assert_same_value_and_gradient(out, {u32: VALUES[u].astype("float32")}, rtol=1e-6)


def test_the_name_of_the_sum_is_kept_for_explain():
    total = gaussian(SET)
    total.name = "y_logp"
    with collected() as said:
        pregrad(total, on=True)
    rows = {d.variable.name for d in said if d.rule in (RULE, "fastlogp_gaussian_rows")}
    assert rows == {"y_logp"}


def test_infinite_entries_stay_infinite():
    """An infinite unknown entry has no part in the complete rows."""
    values = VALUES | {u: np.array([0.1, np.inf, 2.0, -np.inf, 0.3, np.nan, 1.0])}
    inputs = inputs_of(FIRES["set"], values)
    off, on = (value_and_gradient(FIRES["set"], inputs, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@settings(max_examples=examples(6, 100))
@given(
    missing=st.lists(st.integers(0, N - 1), unique=True, max_size=N),
    other=st.lists(st.integers(0, N - 1), unique=True, max_size=5),
    is_gather=st.booleans(),
    is_gaussian=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_missing_rows_agree(missing, other, is_gather, is_gaussian, seed):
    """None, all, the first or the last row, in any order, of one covariate or two."""
    rng = np.random.default_rng(seed)
    unknown = pt.vector("unknown", shape=(len(missing),))
    second = pt.vector("second", shape=(len(other),))
    rows = np.array(missing, dtype=int)
    x = gathered(rows, unknown) if is_gather else pt.constant(DATA)[rows].set(unknown)
    z = pt.constant(rng.normal(size=N))[np.array(other, dtype=int)].set(second)
    eta = a[g] + b * x + pt.tanh(b) * z
    out = ((y - eta) ** 2 / s).sum() if is_gaussian else (pt.softplus(eta) - y * eta).sum()
    values = VALUES | {w: rng.normal(size=w.type.shape) for w in (unknown, second)}
    n_missing = len({*missing, *other})
    assert fires(out) == (0 < n_missing <= N - 32)
    inputs = inputs_of(out, values)
    off, on = (value_and_gradient(out, inputs, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_large_arrays_are_split():
    n = 120_000
    missing = np.arange(0, n, 7)
    unknown = pt.vector("unknown", shape=(len(missing),))
    x = pt.constant(np.arange(n) % 5 * 1.0)[missing].set(unknown)
    assert n not in long_sums(pregrad(pt.exp(b * x).sum(), on=True))


def imputed_regression(group, x, y):
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=5)
        covariate = pm.Normal("covariate", pm.Normal("m"), 1.0, observed=x)
        mu = effect[group] + pm.Normal("b") * covariate
        pm.Normal("y", mu, pm.HalfNormal("s"), observed=y)
    return model


def test_pymc_imputes_a_covariate_and_explain_says_so():
    rng = np.random.default_rng(1)
    n = 400
    x = rng.normal(size=n)
    x[rng.random(n) < 0.15] = np.nan
    with pytest.warns(pm.exceptions.ImputationWarning):
        model = imputed_regression(rng.integers(0, 5, n), x, rng.normal(size=n))
    assert verify(model)
    said = explain(model)["y"]
    assert RULE in {outcome.rewrite for outcome in said}
    n_complete = int((~np.isnan(x)).sum())
    assert {outcome.rows_before for outcome in said if outcome.rows_before} == {
        n_complete,
        n - n_complete,
    }
