"""``softplus(x) - softplus(-x)`` becomes ``x`` before the gradient."""

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from tests.conftest import PYTHON
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)

RULE = "fastlogp_difference_of_softplus"
x = pt.vector("x", shape=(7,))
z = pt.vector("z", shape=(7,))
one, n = pt.vector("one", shape=(1,)), pt.lscalar("n")
column = pt.matrix("column", shape=(7, 1))
s, s_minus = pt.softplus(x), pt.softplus(-x)
p = pt.sigmoid(x)

FIRES = {
    "difference": (s - s_minus, x),
    "the other sign": (s_minus - s, -x),
    "of negated": (-s_minus - -s, x),
    "sum with a negative": (s + -s_minus, x),
    "negative first": (-s_minus + s, x),
    "log odds of a probability": (pt.log(p) - pt.log(1 - p), x),
}
REFUSES = {
    "sum": s + s_minus,
    "both negated": -s - s_minus,
    "of one argument": s - pt.softplus(z),
    "of different arguments": s - pt.softplus(-z),
    "broadcast": pt.softplus(column.T) - pt.softplus(-column),
    "as many as only the call knows": pt.softplus(one) - pt.softplus(pt.alloc(-1.0, n) * one),
    "a sign as often as only the call knows": pt.softplus(one)
    + pt.alloc(-1.0, n) * pt.softplus(-one),
    "three terms": pt.add(s, -s_minus, z),
    "three softplus": pt.add(s, -s_minus, pt.softplus(z)),
    "another function": s - pt.exp(-x),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    values = {x: np.array([-2.5, -0.0, 0.0, 0.3, 30.0, -40.0, 1e3])}
    assert_same_value_and_gradient(FIRES[name][0], values, rtol=1e-14)


@pytest.mark.parametrize("name", FIRES)
def test_infinite_and_large_arguments_agree(name):
    values = {x: np.array([-np.inf, np.inf, 1e300, -1e300, 50.0, -0.0, 0.0])}
    assert_same_value_and_gradient(FIRES[name][0], values, rtol=1e-15)


@pytest.mark.parametrize("name", FIRES)
def test_nan_stays(name):
    assert np.isnan(
        pregrad(FIRES[name][0], on=True).eval({x: np.full(7, np.nan)}, mode=PYTHON)
    ).all()


def test_odds_overflow_and_underflow_as_upstream():
    odds = pt.exp(pt.log(1 - p) - pt.log(p))
    values = np.array([-np.inf, -710.0, -709.5, 709.0, 746.0, np.inf, np.nan])
    off, on = (pregrad(odds, on=on).eval({x: values}, mode=PYTHON) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-12)  # upstream's exponent of 709 is rounded


def test_result_is_exact():
    values = np.linspace(-40, 40, 7) + 1e-3
    assert (pregrad(s - s_minus, on=True).eval({x: values}, mode=PYTHON) == values).all()


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.parametrize("on", [False, True])
def test_mean_of_a_negative_binomial_has_no_difference_of_softplus(on):
    with pm.Model() as model:
        eta = pm.Normal("eta", shape=7)
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=2.5, observed=np.arange(7))
    [logp] = model.logp(sum=False, vars=[model["y"]])
    arguments_of_exp = [
        v.owner.inputs[0].owner.op.scalar_op
        for v in ancestors([pregrad(logp, on=on)])
        if isinstance(v.owner_op, Elemwise)
        and isinstance(v.owner.op.scalar_op, ps.Exp)
        and isinstance(v.owner.inputs[0].owner_op, Elemwise)
    ]
    assert [isinstance(op, ps.Sub) for op in arguments_of_exp] == [not on] * len(arguments_of_exp)
