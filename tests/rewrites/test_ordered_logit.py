"""Logarithms of differences of sigmoids keep their digits, and sorted cut points need no table of probabilities."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.scalar.math import Log1mexp, Sigmoid

from pymc_fastlogp.analysis.elemwise import is_made_by
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    value_and_gradient,
    with_gradients,
)

RULE = "fastlogp_log_of_sigmoid_difference"
CHECK = "fastlogp_check_of_ordered"
N, K, GROUPS = 40, 5, 3
rng = np.random.default_rng(0)
y = rng.integers(0, K, N)
y[:K] = range(K)
group = rng.integers(0, GROUPS, N)
a, b, eta = (pt.vector(name, shape=(N,)) for name in ("a", "b", "eta"))
f = pt.vector("f", shape=(N,), dtype="float32")
low, high = pt.scalar("low"), pt.scalar("high")
cuts = pt.vector("cuts", shape=(K - 1,))
narrow = pt.vector("narrow", dtype="float32", shape=(K - 1,))
free = pt.vector("free", shape=(K - 1,))
by_group = pt.matrix("by_group", shape=(GROUPS, K - 1))
index = pt.vector("index", dtype="int64", shape=(N,))
VALUES = {
    a: np.linspace(-3, 1, N),
    b: np.linspace(-2.5, 3, N),
    eta: rng.normal(size=N),
    f: np.linspace(-2, 2, N, dtype="float32"),
    low: np.array(-0.5),
    high: np.array(0.7),
    cuts: np.array([-1.5, -0.5, 0.25, 1.5]),
    narrow: np.array([-1.5, -0.5, 0.25, 1.5], dtype="float32"),
    free: np.array([-1.5, 0.1, -0.3, 0.2]),
    by_group: np.array([-1.5, -0.5, 0.25, 1.5]) + np.array([[0.0], [0.3], [-0.2]]),
    index: y,
}


def table(cut, eta=eta):
    """Return the probabilities of ``pm.OrderedLogistic``."""
    return pm.OrderedLogistic.compute_p(eta, cut)


def picked(cut, y=y, eta=eta):
    return pt.log(table(cut, eta)[np.arange(N), y])


ELEMENTWISE = {
    "two arrays": (
        pt.log(pt.sigmoid(b) - pt.sigmoid(a)),
        pt.log1mexp(-pt.switch(pt.isinf(a) & pt.eq(a, b), 0.0, b - a))
        - pt.softplus(-b)
        - pt.softplus(a),
    ),
    "a term in both arguments": (
        pt.log(pt.sigmoid(high - eta) - pt.sigmoid(low - eta)),
        pt.log1mexp(-pt.switch(pt.isinf(low) & pt.eq(low, high), 0.0, high - low).dimshuffle("x"))
        - pt.softplus(-(high - eta))
        - pt.softplus(low - eta),
    ),
}
TABLES = {
    "cut points of all rows": picked(cuts),
    "cut points of groups": picked(by_group[group]),
    "cut points of groups plus those of all": picked(by_group[group] + cuts),
    "first and last categories": picked(cuts, np.where(y > 1, K - 1, 0)),
    "first category": picked(cuts, np.zeros(N, int)),
    "last category": picked(cuts, np.full(N, K - 1)),
    "categories between": picked(cuts, 1 + y % 3),
    "one cut point": picked(cuts[:1], y % 2),
    "one cut point of groups": picked(by_group[group][:, :1], y % 2),
    "entries as a column": pt.log(pt.take_along_axis(table(cuts), y[:, None], axis=-1)),
    "float32": picked(narrow, y, f),
}
ends = pt.zeros((N, 1)), pt.ones((N, 1))
sigmoids = pt.sigmoid(cuts - eta[:, None])


def differences(*parts):
    joined = pt.concatenate(parts, axis=1)
    return joined[:, 1:] - joined[:, :-1]


REFUSES = {
    "sum of sigmoids": pt.log(pt.sigmoid(b) + pt.sigmoid(a)),
    "another function": pt.log(pt.tanh(b) - pt.sigmoid(a)),
    "categories of the call": picked(cuts, index),
    "unknown length": picked(cuts, eta=pt.vector("open")[:N]),
    "slice of the table": pt.log(table(cuts)[:, 2]),
    "the whole table": pt.log(table(cuts)),
    "ends in another order": pt.log(differences(ends[1], sigmoids, ends[0])[np.arange(N), y]),
    "another end": pt.log(differences(ends[0], sigmoids, 2 * ends[1])[np.arange(N), y]),
    "another function inside": pt.log(
        differences(ends[0], pt.tanh(cuts - eta[:, None]), ends[1])[np.arange(N), y]
    ),
    "two joined arrays": pt.log(differences(ends[0], sigmoids, sigmoids, ends[1])[np.arange(N), y]),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_graph(name):
    assert_rewritten(*ELEMENTWISE[name])


@pytest.mark.parametrize("name", TABLES)
def test_no_sigmoid_is_left(name):
    found = pregrad(TABLES[name], on=True)
    assert not any(is_made_by(x, Sigmoid) for x in ancestors([found]))
    assert found.type == TABLES[name].type


@pytest.mark.parametrize("cut", [cuts, by_group[group]])
def test_cut_points_are_joined_before_their_rows_are_selected(cut):
    found = pregrad(picked(cut), on=True)
    joined = [x for x in ancestors([found]) if x.owner and "Join" in str(x.owner.op)]
    assert joined
    assert all(N not in x.type.shape for x in joined)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *TABLES])
def test_value_and_gradient(name):
    out = {**TABLES, **{key: before for key, (before, _) in ELEMENTWISE.items()}}[name]
    is_narrow = out.type.dtype == "float32"
    assert_same_value_and_gradient(out, VALUES, rtol=1e-4 if is_narrow else 1e-11)


OUT_OF_RANGE = [(group, K), (group, -K - 1), (np.where(group == 1, GROUPS, 0), 1)]


@pytest.mark.parametrize(("groups", "category"), OUT_OF_RANGE)
def test_index_out_of_range_raises(groups, category):
    out = pregrad(picked(by_group[groups], np.full(N, category)), on=True)
    with pytest.raises(IndexError):
        out.eval({x: VALUES[x] for x in explicit_graph_inputs([out])}, mode=PYTHON)


def test_negative_categories_count_from_the_last():
    assert_same_value_and_gradient(picked(by_group[group], y - K), VALUES, rtol=1e-11)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def exact(b, a):
    """Return ``log(sigmoid(b) - sigmoid(a))`` and its derivatives by ``b`` and ``a``."""
    with mpmath.workdps(800):
        b, a = mpmath.mpf(float(b)), mpmath.mpf(float(a))
        of_b, of_a = sigmoid(b), sigmoid(a)
        p = of_b - of_a
        slopes = (of_b * (1 - of_b) / p, -of_a * (1 - of_a) / p)
        return [float(x) for x in (mpmath.log(p), *slopes)]


@pytest.mark.parametrize("far", [-700.0, -40.0, 0.0, 40.0, 700.0])
@pytest.mark.parametrize("gap", [2.0**-20, 1.0, 50.0])
def test_digits_of_an_interval(far, gap):
    out = ELEMENTWISE["two arrays"][0]
    found = with_gradients(out.sum(), [b, a], on=True, mode=PYTHON)(
        np.full(N, far + gap), np.full(N, far)
    )
    expected = exact(far + gap, far)
    np.testing.assert_allclose(found[0], N * expected[0], rtol=1e-14)
    for slope, reference in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(slope, reference, rtol=1e-14)


@pytest.mark.parametrize("far", [-40.0, 40.0])
def test_digits_at_far_predictors(far):
    """Cut points 2**-20 apart. The predictor and the cut points are exact in double precision."""
    cut = np.arange(K - 1) * 2.0**-20
    value = pregrad(picked(cuts), on=True)
    by_eta, by_cut = pytensor.grad(value.sum(), [eta, cuts])
    function = pytensor.function([eta, cuts], [value, by_eta, by_cut], mode=PYTHON)
    found = function(np.full(N, far), cut)
    points = [-np.inf, *(cut - far), np.inf]
    expected = [exact_category(points[k + 1], points[k]) for k in y]
    np.testing.assert_allclose(found[0], [x[0] for x in expected], rtol=1e-14)
    np.testing.assert_allclose(found[1], [x[1] for x in expected], rtol=1e-14)
    sums = np.zeros(K - 1)
    for k, (_, _, of_b, of_a) in zip(y, expected, strict=True):
        if k < K - 1:
            sums[k] += of_b
        if k:
            sums[k - 1] += of_a
    size = N * 2.0**20
    np.testing.assert_allclose(found[2], sums, rtol=1e-13, atol=1e-16 * size)


def exact_category(b, a):
    """Return the log probability between two arguments that may be infinite, and its derivatives by predictor, ``b`` and ``a``."""
    with mpmath.workdps(800):
        of_b, of_a = sigmoid(mpmath.mpf(float(b))), sigmoid(mpmath.mpf(float(a)))
        p = of_b - of_a
        slopes = [s * (1 - s) / p for s in (of_b, of_a)]
        return [float(x) for x in (mpmath.log(p), slopes[1] - slopes[0], slopes[0], -slopes[1])]


def test_sum_of_many_rows_at_a_far_point():
    rows = 9_930
    far, categories = np.random.default_rng(1).normal(-37, 2, rows), np.arange(rows) % K
    x = pt.vector("x", shape=(rows,))
    out = pt.log(table(cuts, x)[np.arange(rows), categories]).sum()
    value = pregrad(out, on=True).eval({x: far, cuts: VALUES[cuts]}, mode=PYTHON)
    points = [-np.inf, *VALUES[cuts], np.inf]
    with mpmath.workdps(60):
        total = mpmath.fsum(
            mpmath.log(
                sigmoid(mpmath.mpf(points[k + 1]) - mpmath.mpf(e))
                - sigmoid(mpmath.mpf(points[k]) - mpmath.mpf(e))
            )
            for e, k in zip(far.tolist(), categories.tolist(), strict=True)
        )
    np.testing.assert_allclose(value, float(total), rtol=1e-14)


FLOATS = st.one_of(
    st.floats(-30, 30, allow_subnormal=False), st.sampled_from([-np.inf, np.inf, 0.0, -700.0])
)


@given(upper=FLOATS, lower=FLOATS)
def test_agrees_at_infinities(upper, lower):
    out = ELEMENTWISE["two arrays"][0]
    off, on = (
        value_and_gradient(out, {b: np.full(N, upper), a: np.full(N, lower)}, on=on)
        for on in (False, True)
    )
    sides = 1 / (1 + np.exp(-np.array([upper, lower])))
    assert not np.isinf(on[0]).any() or on[0][0] == -np.inf
    if upper < lower:
        assert np.isnan(on[0]).all()
        return
    if upper == lower:
        assert (on[0] == -np.inf).all()
        return
    # Digits that the difference of both sigmoids keeps.
    error = 4 * np.finfo(float).eps * sides.max() / max(sides[0] - sides[1], 1e-300)
    if error < 1e-3:
        for found, expected in zip(on, off, strict=True):
            np.testing.assert_allclose(found, expected, rtol=max(10 * error, 1e-12), atol=error)
    else:
        assert np.isfinite(on[0]).all() or upper == -np.inf or lower == np.inf


@pytest.mark.parametrize("far", [-np.inf, np.inf])
def test_infinite_predictors(far):
    off, on = (
        value_and_gradient(picked(cuts), {eta: np.full(N, far), cuts: VALUES[cuts]}, on=on)
        for on in (False, True)
    )
    np.testing.assert_array_equal(on[0], off[0])
    same = np.isfinite(off[1])
    np.testing.assert_array_equal(on[1][same], off[1][same])
    assert not np.isnan(on[1]).any()


@pytest.mark.parametrize("ends", [[-np.inf, 0, 1, 2], [-1, 0, 1, np.inf], [-1, 0, np.inf, np.inf]])
def test_infinite_cut_points(ends):
    at = {eta: VALUES[eta], cuts: np.array(ends, dtype=float)}
    off, on = (pregrad(picked(cuts), on=on).eval(at, mode=PYTHON) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-12)


def test_single_precision():
    out = pt.log(pt.sigmoid(f + np.float32(1)) - pt.sigmoid(f))
    found = pregrad(out, on=True)
    assert found.type.dtype == "float32"
    value = found.eval({f: np.full(N, 20, "float32")}, mode=PYTHON)
    np.testing.assert_allclose(value, exact(21.0, 20.0)[0], rtol=1e-6)


SORTED = pm.distributions.transforms.ordered


def ordered_model(transform=SORTED, shape=K - 1, cut_of=lambda cut: cut, **options):
    with pm.Model() as model:
        start = np.broadcast_to(VALUES[cuts], shape if isinstance(shape, tuple) else (shape,))
        cut = pm.Normal("cut", 0, 2, shape=shape, initval=start, transform=transform, **options)
        slope = pm.Normal("slope")
        pm.OrderedLogistic("y", slope * VALUES[eta], cut_of(cut), compute_p=False, observed=y)
    return freeze_dims_and_data(model)


def evaluate(model, cut, slope, *, on):
    """Return the log density and its gradient."""
    values = [cut if x.type.ndim else slope for x in model.value_vars]
    return with_gradients(model.logp(), model.value_vars, on=on)(*map(np.asarray, values))


MODELS = {
    "sorted": ordered_model(),
    "sorted in each group": ordered_model(shape=(GROUPS, K - 1), cut_of=lambda cut: cut[group]),
    "of any order": ordered_model(transform=None),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    model = MODELS[name]
    cut = VALUES[cuts] if name == "of any order" else VALUES[free]
    cut = np.broadcast_to(cut, next(x.type.shape for x in model.value_vars if x.type.ndim)).copy()
    off, on = (evaluate(model, cut, 0.3, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["sorted", "sorted in each group"])
def test_checks_of_sorted_cut_points_read_no_table(name):
    graph = pregrad(MODELS[name].logp(), on=True)
    assert not any(is_made_by(x, Sigmoid) for x in ancestors([graph]))


def test_ratio_is_computed_once_per_category():
    graph = pregrad(MODELS["sorted"].logp(), on=True)
    ratios = [x for x in ancestors([graph]) if is_made_by(x, Log1mexp)]
    assert ratios
    assert all(max(x.type.shape) <= K for x in ratios)


def test_increments_below_the_rounding_of_cut_points_keep_their_digits():
    """Increments of e^-40 vanish in cut points next to 1000."""
    cut = [1e3, -40.0, -40.0, -40.0]
    off, on = (evaluate(MODELS["sorted"], cut, 0.0, on=on)[0] for on in (False, True))
    assert off == -np.inf
    assert np.isfinite(on)


@pytest.mark.parametrize("on", [False, True])
def test_unsorted_cut_points_fail_their_check(on):
    with pytest.raises(Exception, match="0 <= p <=1"):
        evaluate(MODELS["of any order"], [1.0, 0.5, -0.2, 0.3], 0.3, on=on)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("slope", [np.nan, np.inf])
def test_nan_fails_the_check(slope, on):
    cut = [np.inf, 0.5, -0.2, 0.3] if slope == np.inf else VALUES[free]
    with pytest.raises(Exception, match="0 <= p <=1"):
        evaluate(MODELS["sorted"], cut, slope, on=on)


SORTED_CUTS = {
    "constant": pt.constant([-1.0, 0.0, 0.5, 2.0]),
    "cumulative sum": pt.cumsum(pt.exp(free)),
    "rows of cumulative sums": pt.cumsum(pt.exp(by_group), axis=-1)[group],
    "plus a number": pt.cumsum(pt.exp(free)) + low,
}
UNSORTED_CUTS = {
    "input": cuts,
    "unsorted constant": pt.constant([-1.0, 0.5, 0.0, 2.0]),
    "increments of any sign": pt.cumsum(free),
    "cumulative product": pt.cumprod(pt.exp(free)),
    "along the other axis": pt.cumsum(pt.exp(by_group), axis=0)[group],
    "minus a sorted array": low - pt.cumsum(pt.exp(free)),
    "plus an array": pt.cumsum(pt.exp(free)) + cuts,
}


def checked(cut):
    """Return the check of the table."""
    p = table(cut)
    conditions = [pt.all(p >= 0), pt.all(pt.isclose(p.sum(axis=-1), 1.0))]
    return pt.all(pt.stack(conditions))


@pytest.mark.parametrize("name", SORTED_CUTS)
def test_sorted_cut_points_are_checked_for_nan(name):
    graph = pregrad(checked(SORTED_CUTS[name]), on=True)
    assert not any(is_made_by(x, Sigmoid) for x in ancestors([graph]))


@pytest.mark.parametrize("name", UNSORTED_CUTS)
def test_other_cut_points_keep_their_check(name):
    assert_left_alone(checked(UNSORTED_CUTS[name]), CHECK)
