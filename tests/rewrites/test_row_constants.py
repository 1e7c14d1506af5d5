"""Constants that are added in each row are summed once: the constants that leave a sum, and the accuracy of the sum."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.special import gammaln

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.compact.compact_rows import NAME
from pymc_fastlogp.rewrites.rows.compact.grouping import may_leave
from pymc_fastlogp.rewrites.rows.compact.terms import Term
from tests.conftest import PYTHON
from tests.rewrites.conftest import (
    SIDES,
    assert_left_alone,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

N = 200
RNG = np.random.default_rng(0)
# Sorted, so that no other order is better, and in parts of 1/1024, so that sums are exact.
GROUP = np.sort(RNG.integers(0, 5, N))
X = np.round(RNG.normal(size=N), 1)
COUNT = RNG.poisson(2.0, N)
C = np.round(1024 * gammaln(COUNT + 1.0)) / 1024
D = np.round(1024 * RNG.normal(size=N)) / 1024
MATRIX = np.round(1024 * RNG.normal(size=(N, 3))) / 1024

a = pt.vector("a", shape=(5,))
b = pt.scalar("b")
each = pt.vector("each", shape=(N,))
row = pt.matrix("row", shape=(N, 3))
VALUES = {
    a: np.array([0.3, -0.7, 0.1, 1.2, -0.4]),
    b: np.array(0.7),
    each: RNG.normal(size=N),
    row: RNG.normal(size=(N, 3)),
}

rate = pt.exp(each + a[GROUP])

FIRES = {
    "subtracted": ((rate - C).sum(), rate.sum() - C.sum()),
    "subtracted from": ((C - rate).sum(), (-rate).sum() + C.sum()),
    "added": ((rate + C).sum(), rate.sum() + C.sum()),
    "of integers": ((rate + COUNT).sum(), rate.sum() + float(COUNT.sum())),
    "two": ((rate - C + pt.sin(each) - D).sum(), (rate + pt.sin(each)).sum() - (C + D).sum()),
    "divided by a parameter": (((rate - C) / b).sum(), (rate / b).sum() + (-C.sum()) / b),
    "below a switch for all rows": (
        pt.switch(b > 0, rate - C, each).sum(),
        pt.switch(b > 0, rate, each).sum() + pt.switch(b > 0, -C.sum(), 0.0),
    ),
    "along the rows": (
        (pt.exp(row) - MATRIX).sum(axis=0).prod(),
        (pt.exp(row).sum(axis=0) + -MATRIX.sum(axis=0)).prod(),
    ),
    "along both axes": ((pt.exp(row) - MATRIX).sum(), pt.exp(row).sum() - MATRIX.sum()),
}


@pytest.mark.parametrize("name", FIRES)
def test_leaves_the_sum(name):
    before, after = FIRES[name]
    with collected() as decisions:
        found = pregrad(before, on=True)
    assert 0 in {d.rows_after for d in decisions if d.rule == NAME}
    assert sketch(pregrad(found, on=False)) == sketch(pregrad(after, on=False))
    assert_same_value_and_gradient(before, VALUES, rtol=1e-13)


each32 = pt.vector("each32", shape=(N,), dtype="float32")
residual = pt.constant(D) - pt.exp(each)

STAYS = {
    "large": (pt.exp(each) - 1e9 * C).sum(),
    "float32": (pt.exp(each32) - C.astype("float32")).sum(),
    "not finite": (pt.exp(each) + np.where(COUNT > 0, C, np.inf)).sum(),
    "below a mask": pt.switch(COUNT > 0, pt.exp(each), C).sum(),
    "the same in each row": (pt.exp(each) + 1.5).sum(),
    # A gradient: what is in the brackets is read elsewhere, too.
    "in a product": (X * residual).sum() * pt.sum(a[GROUP] * residual),
    "of few rows": (pt.exp(each[:30]) - C[:30]).sum(),
    "needed row by row": pt.concatenate([(x := pt.exp(each) - C).sum()[None], x]),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays_in_the_sum(name):
    assert_left_alone(STAYS[name], NAME)


@pytest.mark.parametrize(
    ("mean", "n_rows", "leaves"),
    [(126, 5_000, True), (129, 5_000, False), (2.8, 10_000_000, True), (2.9, 10_000_000, False)],
)
def test_absorbed_round_off_per_row_is_bounded(mean, n_rows, leaves):
    constants = pt.constant(np.array([2.0, -2.0, 0.0, 0.0]) * mean)
    assert may_leave(Term(constants, None, (constants,)), n_rows) == leaves


def poisson(n: int) -> pm.Model:
    rng = np.random.default_rng(1)
    x = rng.normal(size=n)
    with pm.Model() as model:
        a, b = pm.Flat("a"), pm.Flat("b")
        rate = pt.exp(a + b * pm.Data("x", x))
        pm.Poisson("y", rate, observed=pm.Data("y_data", rng.poisson(np.exp(0.4 + 0.3 * x))))
    return model


def test_counts_leave_their_factorials_behind():
    model = freeze_dims_and_data(poisson(N))
    found = pregrad(model.logp(), on=True)
    factorials = gammaln(model["y_data"].eval(mode=PYTHON) + 1.0)
    spelled = sketch(found)
    assert str(-factorials.sum())[:12] in spelled
    assert str(factorials.tolist()) not in spelled


@pytest.mark.parametrize("n", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_twelve_digits_of_many_rows(n):
    model = freeze_dims_and_data(poisson(n))
    with collected() as decisions:
        function = pytensor.function(
            model.value_vars, pregrad(model.logp(), on=True), mode=SIDES[True]
        )
    assert (n, 1) in {(d.rows_before, d.rows_after) for d in decisions if d.rule == NAME}
    x, y = model["x"].eval(mode=PYTHON).astype(np.longdouble), model["y_data"].eval(mode=PYTHON)
    factorials = np.cumsum(np.log(np.maximum(np.arange(y.max() + 1), 1).astype(np.longdouble)))
    eta = np.longdouble(0.3) + np.longdouble(0.2) * x
    expected = (y * eta - np.exp(eta) - factorials[y]).sum()
    np.testing.assert_allclose(function(a=0.3, b=0.2), float(expected), rtol=1e-12)
