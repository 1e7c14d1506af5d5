"""A switch to zero is dropped if the other branch is zero under the condition: valid proofs, and refusals."""

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)

RULE = "fastlogp_switch_to_zero"
EDGES = np.array([-np.inf, -np.inf, -800.0, -745.2, -3.0, 0.5, -800.0, -np.inf, 3.0])
COUNTS = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 3.0, 4.0, 0.0])

x = pt.vector("x", shape=COUNTS.shape)
one = pt.vector("one", shape=(1,))
other = pt.vector("other", shape=COUNTS.shape)
mu, y = pt.exp(x), pt.constant(COUNTS)
zero = pt.constant(COUNTS == 0)
is_zero = pt.eq(mu, 0) & zero


def guarded(mask):
    return pt.switch(pt.eq(x, -np.inf) & mask, 0.0, y * x)


FIRES = {
    "as a Poisson": pt.switch(zero, 0.0, y * x) - pt.gammaln(y + 1) - mu,
    "negative": -mu,
    "product": 3 * mu,
    "sum": mu + y,
    "a condition of floats": pt.switch(pt.constant(2.0 * (COUNTS == 0)), 0.0, y * x) - mu,
    "guarded twice": guarded(zero) - mu * guarded(zero),
}
SCALED = {
    "an exposure": pt.constant(np.arange(9.0)) * mu,
    "two exponentials": mu * pt.exp(-pt.expand_dims(x[0], 0)),
    "gathered": pt.exp(x[:3])[pt.constant([0, 1, 2, 0, 1, 2, 0, 1, 2])] * 2.0,
}
CONDITIONS = {
    "and": is_zero,
    "product": pt.eq(mu, 0) * pt.eq(y, 0),
    "turned round": pt.eq(0, mu) & zero,
}
REFUSES = {
    "not zero": pt.switch(is_zero, 0.0, mu + 1),
    "zero elsewhere": pt.switch(pt.eq(mu, 0), 0.0, mu + y),
    "may be 0 * -inf": pt.switch(is_zero, 0.0, y * x),
    "guard elsewhere": pt.switch(is_zero, 0.0, guarded(pt.constant(COUNTS == 2))),
    "guard of another number": pt.switch(
        is_zero, 0.0, pt.switch(pt.eq(x, -800) & zero, 0.0, y * x)
    ),
    "factor that may be infinite": pt.switch(is_zero, 0.0, mu * pt.exp(-x)),
    "not an exponential": pt.switch(pt.eq(x, 0) & zero, 0.0, -x),
    "a factor of any kind": pt.switch(pt.eq(mu * x, 0) & zero, 0.0, -(mu * x)),
    "to one": pt.switch(is_zero, 1.0, -mu),
    "any of two": pt.switch(pt.eq(mu, 0) | zero, 0.0, -mu),
    "not equal": pt.switch(pt.neq(mu, 0) & zero, 0.0, -mu),
    "equal to one": pt.switch(pt.eq(mu, 1) & zero, 0.0, -mu),
    "broadcast": pt.switch(pt.eq(pt.exp(one), 0) & zero, 0.0, -pt.exp(one)),
    "unknown function": pt.switch(is_zero, 0.0, pt.cos(mu)),
    "finite, and not zero": pt.switch(
        is_zero, 0.0, pt.switch(pt.eq(x, -np.inf) & zero, 0.0, 3 * x)
    ),
    "another value behind a guard": pt.switch(
        is_zero, 0.0, pt.switch(pt.eq(x, -np.inf) & zero, 1.0, y * x)
    ),
    "another number below infinity": pt.switch(
        is_zero, 0.0, pt.switch(pt.lt(other, np.inf), 0.0, other)
    ),
    "below something else": pt.switch(is_zero, 0.0, pt.switch(pt.lt(mu, other), 0.0, 1.0)),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_known_conditions_are_dropped(condition):
    assert_rewritten(pt.switch(CONDITIONS[condition], 0.0, -mu), -mu)


@pytest.mark.parametrize("name", SCALED)
def test_switch_on_a_scaled_exponential_is_dropped(name):
    rate = SCALED[name]
    guarded = pt.switch(pt.eq(rate, 0) & zero, 0.0, pt.switch(zero, 0.0, y * x) - rate)
    assert_rewritten(guarded, pt.switch(zero, 0.0, y * x) - rate)
    for values in (EDGES, np.linspace(-3, 3, 9), np.full(9, np.nan)):
        assert_same_value_and_gradient(guarded, {x: values}, rtol=1e-15)


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    r = FIRES[name]
    assert_rewritten(pt.switch(is_zero, 0.0, r), r)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    out = pt.switch(is_zero, 0.0, FIRES[name])
    assert_same_value_and_gradient(out, {x: EDGES}, rtol=1e-15)
    assert_same_value_and_gradient(out, {x: np.full_like(EDGES, np.nan)}, rtol=1e-15)
    assert_same_value_and_gradient(out, {x: np.full_like(EDGES, np.inf)}, rtol=1e-15)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_rows_of_a_poisson_have_one_switch():
    with pm.Model() as model:
        eta = pm.Normal("eta", shape=COUNTS.shape)
        pm.Poisson("y", pm.math.exp(eta), observed=COUNTS.astype(int))
    [logp] = model.logp(sum=False, vars=[model["y"]])
    switches = {
        v
        for v in ancestors([pregrad(logp, on=True)])
        if isinstance(v.owner_op, Elemwise) and isinstance(v.owner.op.scalar_op, ps.Switch)
    }
    assert len(switches) == 1
