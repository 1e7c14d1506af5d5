"""Squares of linear predictors are summed over cells: the graphs, value and gradient, and refusals."""

import re

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_fastlogp.config import switched
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.gaussian.gaussian_rows import NAME
from pymc_fastlogp.rewrites.rows.compact.compact_rows import NAME as COMPACT
from tests.rewrites.conftest import (
    PYTHON,
    SIDES,
    pregrad,
    sketch,
    sum_and_gradient,
)

N = 300
RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 5, N)
SCHOOL = GROUP // 2  # nested
SITE = RNG.integers(0, 3, N)  # crossed
SOME = RNG.choice([0, 1, 4], N)  # without 2 and 3
X = RNG.normal(size=N)
Z = RNG.normal(size=N)
KNOWN = RNG.uniform(0.5, 2, N)
DESIGN = np.column_stack([np.ones(N), X, Z])
Y = RNG.normal(size=N)
WIDE = RNG.normal(size=(N, 12))
PAIRS = RNG.normal(size=(N, 2))

a = pt.vector("a", shape=(5,))
b = pt.vector("b", shape=(5,))
c = pt.scalar("c")
d = pt.scalar("d")
s = pt.scalar("s")
t = pt.vector("t", shape=(5,))
beta = pt.matrix("beta", shape=(5, 3))
gamma = pt.vector("gamma", shape=(3,))
pair = pt.vector("pair", shape=(2,))
wide = pt.vector("wide", shape=(12,))
long = pt.vector("long", shape=(N,))
each = pt.vector("each", shape=(N,))
shared = pytensor.shared(X, name="covariate", shape=(N,))
unknown = pytensor.shared(X, name="covariate")

VALUES = {
    a: np.array([0.3, -0.7, 0.1, 1.2, -0.4]),
    b: np.array([0.5, 0.2, -0.9, 0.8, 0.1]),
    c: np.array(0.7),
    d: np.array(-0.3),
    s: np.array(1.9),
    t: np.array([0.6, 1.1, 0.9, 2.0, 1.4]),
    beta: np.linspace(-1, 1, 15).reshape(5, 3),
    gamma: np.array([0.2, -0.5, 1.1]),
    wide: np.linspace(-1, 1, 12),
    pair: np.array([0.4, -0.2]),
}


def reduced(decisions):
    """Return how many rows there were, and how many squares are left, of each square that fired."""
    return [(x.rows_before, x.rows_after) for x in decisions if x.fired and x.rule == NAME]


def rewritten(out):
    """Return a graph rewritten, without row compaction, and what was decided."""
    with collected() as decisions:
        return pregrad(out, on=True, exclude=(COMPACT,)), decisions


# Squares, each with the number that is left.
SQUARES = {
    "mean": (pt.sqr(Y - c), 2),
    "intercept": (pt.sqr(Y - a[GROUP]), 6),
    "power": ((Y - a[GROUP]) ** 2, 6),
    "intercept and slope": (pt.sqr(Y - (a[GROUP] + b[GROUP] * X)), 11),
    "slope alone": (pt.sqr(b[GROUP] * X - Y), 6),
    "signs": (pt.sqr(-Y + a[GROUP] - b[GROUP] * X), 11),
    "shared slope": (pt.sqr(Y - a[GROUP] - c * X), 7),
    "one parameter in two places": (pt.sqr(Y - a[GROUP] - c - a[GROUP] * X), 11),
    "missing groups": (pt.sqr(Y - a[SOME] - b[SOME] * X), 7),
    "nested groups": (pt.sqr(Y - a[GROUP] - b[SCHOOL] * X), 11),
    "crossed groups": (pt.sqr(Y - a[GROUP] - b[SITE]), 16),
    "two covariates": (pt.sqr(Y - a[GROUP] - b[GROUP] * X - c * X * Z), 12),
    "scaled slope": (pt.sqr(Y - c * (a[GROUP] + b[GROUP] * X)), 11),
    "divided slope": (pt.sqr(Y - (a[GROUP] + b[GROUP] * X) / s), 11),
    "covariate divided": (pt.sqr(Y - a[GROUP] / KNOWN), 6),
    "scale": (pt.sqr((Y - a[GROUP]) / s), 6),
    "scale of a group": (pt.sqr((Y - c) / t[GROUP]), 10),
    "scale of another group": (pt.sqr((Y - a[GROUP] - c * X) / t[SCHOOL]), 15),
    "known scale": (pt.sqr((Y - a[GROUP]) / KNOWN), 6),
    "scale of both kinds": (pt.sqr((Y - a[GROUP]) / (KNOWN * s)), 6),
    "precision": (s * pt.sqr(Y - a[GROUP]), 6),
    "precision of a group": (t[GROUP] * pt.sqr(Y - a[GROUP]), 10),
    "divided by a variance": (-pt.sqr(Y - a[GROUP]) / t[GROUP], 10),
    "known weights": (KNOWN * pt.sqr(Y - a[GROUP]), 6),
    "negative weights": (-KNOWN * pt.sqr(Y - a[GROUP]), 6),
    "known rows": (pt.switch(X > 0, pt.sqr(Y - a[GROUP]), 0.0), 6),
    "rows of a matrix": (pt.sqr(Y - (beta[GROUP] * DESIGN).sum(-1)), 16),
    "matrix times vector": (pt.sqr(Y - pt.dot(DESIGN, gamma)), 4),
    "matrix times vector, and groups": (pt.sqr(Y - a[GROUP] - pt.dot(DESIGN[:, 1:], pair)), 8),
    "many columns": (pt.sqr(Y - pt.dot(WIDE, wide)), 13),
    "many columns, and groups": (pt.sqr(Y - a[GROUP] - pt.dot(WIDE, wide)), 18),
    "many columns, and an intercept": (pt.sqr(Y - c - pt.dot(WIDE, wide)), 14),
    "no parameter in the mean": (pt.sqr(Y / s), 1),
    "two columns": (pt.sqr(PAIRS - a[GROUP][:, None] * pair), 11),
    "inner columns": (pt.sqr(PAIRS - pair), 3),
}


@pytest.mark.parametrize("name", SQUARES)
def test_sum_is_over_cells(name):
    squares, n_left = SQUARES[name]
    on, decisions = rewritten(squares.sum())
    [(_, after)] = reduced(decisions)
    assert after == n_left
    lengths = {
        x.type.shape[0] or N
        for x in ancestors([on])
        if isinstance(x.owner_op, Elemwise | Dot | Sum | AdvancedSubtensor) and x.type.ndim
    }
    assert max(lengths, default=1) <= n_left


@pytest.mark.parametrize("name", SQUARES)
def test_value_and_gradient(name):
    squares, _ = SQUARES[name]
    on, off = rewritten(squares.sum())[0], pregrad(squares.sum(), on=False)
    for expected, found in zip(*(sum_and_gradient(x, VALUES) for x in (off, on)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)


K = pt.constant(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
K1 = pt.constant(1.5)
K12 = pt.constant(np.linspace(0, 1, 12))
K12_BY_12 = pt.constant(np.linspace(0, 1, 144).reshape(12, 12))
K3 = pt.constant(np.array([0.1, 0.2, 0.3]))

GRAPHS = {
    "intercept": (pt.sqr(Y - a[GROUP]), pt.sqr(K * (a - K) + K).sum() + 1.5),
    "intercept and slope": (
        pt.sqr(Y - a[GROUP] - b[GROUP] * X),
        (pt.sqr(K * ((a - K) + K * (b - K)) + K) + pt.sqr(K * (b - K) + K)).sum() + 1.5,
    ),
    "intercept and shared slope": (
        pt.sqr(Y - a[GROUP] - c * X),
        pt.sqr(K * ((a - K) + K * (c - K)) + K).sum() + pt.sqr(K1 * (c - K1) + K1) + 1.5,
        # What is left of the target at its own least squares is round-off, which may be zero.
        pt.sqr(K * ((a - K) + K * (c - K)) + K).sum() + pt.sqr(K1 * (c - K1)) + 1.5,
    ),
    "many columns": (
        pt.sqr(Y - pt.dot(WIDE, wide)),
        pt.sqr(pt.dot(K12_BY_12, wide - K12) + K12).sum() + 1.5,
    ),
    "missing groups": (
        pt.sqr(Y - a[SOME]),
        pt.sqr(K3 * (a[np.array([0, 1, 4])] - K3) + K3).sum() + 1.5,
    ),
    "scale": (
        pt.sqr((Y - a[GROUP]) / s),
        (pt.sqr(K * (a - K) + K).sum() + 1.5) / s / s,
    ),
    "scale of a group": (
        pt.sqr((Y - c) / t[GROUP]),
        ((pt.sqr(K * (c - K) + K) + K) / t / t).sum(),
    ),
    "known weights": (
        -KNOWN * pt.sqr(Y - a[GROUP]),
        -(pt.sqr(K * (a - K) + K).sum() + 1.5),
    ),
    "other terms": (
        -0.5 * pt.sqr((Y - a[GROUP]) / s) - pt.log(t[GROUP]),
        -0.5 * ((pt.sqr(K * (a - K) + K).sum() + 1.5) / s / s) + (-pt.log(t[GROUP])).sum(),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph(name):
    before, *after = GRAPHS[name]
    found = pregrad(rewritten(before.sum())[0], on=False)
    expected = [without_constants(pregrad(x, on=False)) for x in after]
    assert without_constants(found) in expected


def without_constants(x):
    return re.sub(r"\[[^][]*\]|\d+\.\d*(e-?\d+)?", "k", sketch(x))


FAMILIES = {
    "normal": lambda mu: pm.Normal("y", mu, pm.HalfNormal("s"), observed=pm.Data("o", Y)),
    "sigma of a group": lambda mu: pm.Normal(
        "y", mu, pm.HalfNormal("s", shape=5)[GROUP], observed=pm.Data("o", Y)
    ),
    "precision": lambda mu: pm.Normal("y", mu, tau=pm.HalfNormal("s"), observed=pm.Data("o", Y)),
    "known sigma": lambda mu: pm.Normal("y", mu, KNOWN, observed=pm.Data("o", Y)),
    "log-normal": lambda mu: pm.LogNormal(
        "y", mu, pm.HalfNormal("s"), observed=pm.Data("o", np.exp(Y))
    ),
    "half-normal": lambda mu: pm.HalfNormal(
        "y", pt.exp(pm.Normal("s", shape=5))[GROUP], observed=pm.Data("o", abs(Y))
    ),
    "weighted": lambda mu: pm.Potential(
        "y", (KNOWN * pm.logp(pm.Normal.dist(mu, pm.HalfNormal("s")), Y)).sum()
    ),
}


def model_of(family):
    with pm.Model() as model:
        a = pm.Normal("a", shape=5)
        b = pm.Normal("b", shape=5)
        group = pm.Data("g", GROUP)
        FAMILIES[family](a[group] + b[group] * pm.Data("x", X))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_families_agree(family):
    model = freeze_dims_and_data(model_of(family))
    with collected() as decisions:
        on = pregrad(model.logp(), on=True)
    assert len(reduced(decisions)) == 1
    # What is left are squares of cells, and the terms of row compaction.
    assert not any(
        x.type.shape[:1] in ((N,), (None,))
        for x in ancestors([on])
        if isinstance(x.owner_op, Elemwise)
    )
    inputs = model.continuous_value_vars
    functions = [
        pytensor.function(
            inputs, [x, *pytensor.grad(x, inputs, disconnected_inputs="ignore")], mode=PYTHON
        )
        for x in (pregrad(model.logp(), on=False), on)
    ]
    at = [RNG.normal(0, 0.5, size=x.type.shape) for x in inputs]
    for expected, found in zip(*(f(*at) for f in functions), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_failed_check_still_raises():
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu"), pm.Normal("sigma")
        pm.Normal("y", mu, sigma, observed=Y)
    on, decisions = rewritten(model.logp())
    assert reduced(decisions)
    f = pytensor.function(model.continuous_value_vars, on, mode=PYTHON)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="sigma > 0"):
        f(0.0, -1.0)


REFUSES = {
    "not linear": (pt.sqr(Y - pt.exp(c * X)), "not linear"),
    "an entry for each row": (pt.sqr(Y - each), "each has one value per row"),
    "shared, length known": (pt.sqr(Y - a[GROUP] - c * shared), "freeze_model=True"),
    "shared, length unknown": (pt.sqr(pt.log(c) - unknown), "freeze_model=True"),
    "a scale for each row": (pt.sqr((Y - c) / pt.exp(d * X)), "not linear"),
    "two rows in a cell of two parameters": (
        pt.sqr(Y - long[np.arange(N) // 2] - long[np.arange(N) // 2] * X),
        "300 rows in 150 groups with 2 parameters each",
    ),
    "few rows for an entry": (pt.sqr(Y - long[np.arange(N) * 4 // 5]), "too few rows"),
    "many parameters in each cell": (
        pt.sqr(Y - (pt.matrix("wider", shape=(5, 12))[GROUP] * WIDE).sum(-1)),
        "rows share too many parameters: 12",
    ),
    "too few rows of crossed groups": (
        pt.sqr(
            Y
            - pt.vector("u", shape=(30,))[RNG.integers(0, 30, N)]
            - pt.vector("v", shape=(40,))[RNG.integers(0, 40, N)]
        ),
        "too few rows",
    ),
    "weights of both signs": (X * pt.sqr(Y - a[GROUP]), "weights have both signs"),
    "a weight of zero": (
        np.where(X > 0, KNOWN, 0.0) * pt.sqr(Y - a[GROUP]),
        "0 * inf would be NaN",
    ),
    "a factor of zero": (
        pt.sqr((Y - a[GROUP]) * np.where(X > 0, KNOWN, 0.0)),
        "0 * inf would be NaN",
    ),
    "infinite data": (pt.sqr(np.where(X > 2, np.inf, Y) - a[GROUP]), "not finite"),
    "rows that repeat": (pt.sqr(np.sign(Y) - c), "merging repeated rows"),
    "random numbers": (
        pt.sqr(Y - a[GROUP] - c * pt.random.normal(size=(N,), name="draw")),
        "random numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    squares, reason = REFUSES[name]
    with collected() as decisions:
        pregrad(squares.sum(), on=True)
    assert not reduced(decisions)
    assert any(x.rule == NAME and reason in str(x.refusal) for x in decisions)


def test_a_weight_of_zero_times_an_infinite_square_is_nan():
    """Upstream gives NaN; a triangle without the row would not."""
    out = (np.where(GROUP == 1, 0.0, KNOWN) * pt.sqr(Y - a[GROUP])).sum()
    with np.errstate(all="ignore"):
        for on in (False, True):
            at = np.where(np.arange(a.type.shape[0]) == 1, 1e200, 0.5)
            assert np.isnan(pregrad(out, on=on).eval({a: at}, mode=PYTHON))


def test_empty_rows_agree():
    """Two masks exclude each other, so no row remains for a cell."""
    even, odd = np.arange(N) % 2 == 0, np.arange(N) % 4 == 1
    out = pt.switch(even, pt.switch(odd, (Y - a[GROUP]) ** 2, pt.exp(a[GROUP])), (Y - c) ** 2).sum()
    with pytensor.config.change_flags(on_opt_error="raise"):
        on, decisions = rewritten(out)
    assert reduced(decisions)
    at = {x: VALUES[x] for x in (a, c)}
    np.testing.assert_allclose(
        on.eval(at, mode=PYTHON), pregrad(out, on=False).eval(at, mode=PYTHON), rtol=1e-12
    )


def test_refuses_if_rows_are_an_output():
    squares = pt.sqr(Y - a[GROUP])
    _, decisions = rewritten(pt.concatenate([squares.sum()[None], squares]))
    assert not reduced(decisions)
    assert any("row by row" in str(x.refusal) for x in decisions)


def test_unfrozen_model_refuses_and_says_how_to_freeze():
    _, decisions = rewritten(model_of("normal").logp())
    assert not reduced(decisions)
    assert any(x.rule == NAME and "freeze_model=True" in str(x.refusal) for x in decisions)


IGNORES = {
    "a sum over one axis": pt.sqr(PAIRS - a[GROUP][:, None]).sum(axis=0),
    "few rows": pt.sqr(Y[:20] - c).sum(),
    "integers": pt.sqr(pt.vector("i", shape=(N,), dtype="int64")).sum(),
    "no square": pt.exp(Y - c * X).sum(),
    "a third power": ((Y - c * X) ** 3).sum(),
}


@pytest.mark.parametrize("name", IGNORES)
def test_leaves_alone(name):
    with collected() as decisions:
        pregrad(IGNORES[name], on=True)
    assert not reduced(decisions)


def test_can_be_excluded_by_name():
    with collected() as decisions:
        pregrad(pt.sqr(Y - a[GROUP]).sum(), on=True, exclude=(NAME,))
    assert not any(x.rule == NAME for x in decisions)


@pytest.mark.parametrize("name", SQUARES)
def test_rewrite_is_idempotent(name):
    once, _ = rewritten(SQUARES[name][0].sum())
    for x in ancestors([once]):
        x.tag.__dict__.pop(NAME, None)
    again, decisions = rewritten(once)
    assert not reduced(decisions)
    assert sketch(again) == sketch(pregrad(once, on=False))


def test_terms_left_at_the_rows_stay_with_row_compaction():
    terms = -0.5 * pt.sqr((Y - a[GROUP] - b[GROUP] * X) / s) - pt.log(t[GROUP])
    with collected() as decisions:
        pregrad(terms.sum(), on=True)
    assert {x.rule: (x.rows_before, x.rows_after) for x in decisions if x.rows_after} == {
        NAME: (N, 11),
        COMPACT: (N, 5),
    }


def test_float32_stays_float32():
    x = pt.vector("x", shape=(5,), dtype="float32")
    on, decisions = rewritten(pt.sqr(Y.astype("float32") - x[GROUP]).sum())
    assert reduced(decisions)
    assert on.type.dtype == "float32"


def in_single_precision(*, scale=1.0, with_slope=False):
    """Return a sum of squares of float32, its parameters, and values near those that fit."""
    group = np.arange(10_000) % 5
    y = (1e6 * scale + scale * RNG.normal(size=10_000)).astype("float32")
    x = RNG.normal(size=10_000).astype("float32")
    mean, slope = pt.vector("mean", shape=(5,), dtype="float32"), pt.fscalar("slope")
    at = [(y.reshape(-1, 5).mean(axis=0, dtype="float64") + 0.3 * scale).astype("float32")]
    at.append(np.float32(0.7 * scale if with_slope else 0))
    residual = y.astype("float64") - at[0].astype("float64")[group] - at[1] * x.astype("float64")
    return pt.sqr(y - mean[group] - slope * x).sum(), [mean, slope], at, residual, group


@pytest.mark.parametrize("with_slope", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_offsets_in_single_precision_cost_no_digits(scale, with_slope):
    """The center is rounded before offsets are computed: half of its last digit would shift all rows of a group."""
    out, inputs, at, residual, group = in_single_precision(scale=scale, with_slope=with_slope)
    on, decisions = rewritten(out)
    assert reduced(decisions) == [(10_000, 7)]
    f = pytensor.function(inputs, [on, pytensor.grad(on, inputs[0])], mode=PYTHON)
    value, gradient = f(*at)
    assert value.dtype == "float32"
    np.testing.assert_allclose(value, (residual**2).sum(), rtol=1e-5)
    expected = [-2 * residual[group == k].sum() for k in range(5)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float32", 1e25), ("float32", 1e-25), ("float64", 1e200), ("float64", 1e-200)],
)
def test_non_finite_data_are_left_alone(dtype, scale):
    y = (scale * RNG.normal(size=200)).astype(dtype)
    mean, size = pt.scalar("mean", dtype=dtype), pt.scalar("size", dtype=dtype)
    on, decisions = rewritten(pt.sqr((y - mean) / size).sum())
    assert not reduced(decisions)
    f = pytensor.function([mean, size], on, mode=PYTHON)
    exact = (((y.astype("longdouble") - y[0]) / scale) ** 2).sum()
    np.testing.assert_allclose(f(y[0], np.array(scale, dtype)), float(exact), rtol=1e-5)


@pytest.mark.parametrize(("offset", "scale"), [(1e6, 1.0), (0.0, 1e-6), (0.0, 1e6)])
def test_offsets_and_scales_against_extended_precision(offset, scale):
    group = RNG.choice([0, 1, 1, 1, 4], size=20_000)
    group[7] = 3  # a group of one row, and 2 has none
    y = offset + scale * RNG.normal(size=20_000)
    x = RNG.normal(size=20_000)
    at = [offset + scale * VALUES[a], scale * VALUES[b], np.array(1.3 * scale)]
    on, decisions = rewritten(-0.5 * pt.sqr((y - a[group] - b[group] * x) / s).sum())
    assert reduced(decisions)
    f = pytensor.function([a, b, s], [on, *pytensor.grad(on, [a, b, s])], mode=PYTHON)
    value, *gradient = f(*at)

    in_a, in_b, in_s = (np.asarray(v).astype(np.longdouble) for v in at)
    residual = (y - in_a[group] - in_b[group] * x) / in_s
    terms = [residual / in_s, residual * x / in_s, residual**2 / in_s]
    exact = -0.5 * (residual**2).sum()
    np.testing.assert_allclose(value, float(exact), rtol=1e-12)
    for found, of_rows, by in zip(gradient, terms, [group, group, 0 * group], strict=True):
        length = found.size
        expected = [of_rows[by == k].sum() for k in range(length)]
        size = np.array([abs(of_rows[by == k]).sum() for k in range(length)])
        assert (abs(found.ravel() - expected) <= 1e-10 * size).all()


@pytest.mark.parametrize("slope", [0.3 + 1e-3, 0.0])
def test_a_covariate_with_an_offset_costs_a_kernel_no_digits(slope):
    x = 1e6 + RNG.normal(size=20_000)
    y = 0.3 * (x - 1e6) + RNG.normal(size=20_000)
    group = RNG.integers(0, 5, 20_000)
    at = [0.1 * VALUES[a] - 1e6 * slope, np.array(slope)]
    with switched(True):
        on = rewritten(pt.sqr(y - a[group] - c * x).sum())[0]
        f = pytensor.function([a, c], [on, *pytensor.grad(on, [a, c])], mode=SIDES[True])
    value, *gradient = f(*at)

    in_a, in_c = (np.asarray(v).astype(np.longdouble) for v in at)
    residual = y - in_a[group] - in_c * x
    np.testing.assert_allclose(value, float((residual**2).sum()), rtol=1e-14)
    per_group = [-2 * residual[group == k].sum() for k in range(5)]
    size = 2 * np.abs(residual).sum()
    assert (abs(gradient[0] - per_group) <= 1e-13 * size).all()
    assert abs(gradient[1] + 2 * (residual * x).sum()) <= 1e-13 * size * 1e6


def test_infinite_parameters_stay_infinite_for_balanced_covariates():
    x = np.tile([-1.0, 1.0], N // 2)
    on, decisions = rewritten(pt.sqr(Y - c - d * x).sum())
    assert reduced(decisions)
    for at in ({c: np.inf, d: 1.0}, {c: 1.0, d: np.inf}):
        assert on.eval({k: np.asarray(v) for k, v in at.items()}, mode=PYTHON) == np.inf
