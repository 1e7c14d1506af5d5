"""``switch(l == -inf & (y == 0), 0, y * l)``, which ``logpow`` writes, becomes ``switch(y == 0, 0, y * l)``."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.dist_math import logpow
from pytensor.graph.traversal import ancestors

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

RULE = "fastlogp_log_power"
COUNTS = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 5.0])
EDGES = np.array([-np.inf, -800.0, -3.0, -np.inf, 0.5, 2.0])

x, w = (pt.vector(name, shape=COUNTS.shape) for name in "xw")
y, zero = pt.constant(COUNTS), pt.constant(COUNTS == 0)
power = pt.switch(zero, 0.0, y * x)


def guarded(mask=zero, u=0.0, of=x, counts=y):
    return pt.switch(pt.eq(of, -np.inf) & mask, u, counts * x)


FIRES = {
    "as PyMC writes it": (guarded(), power),
    "what is zero where it counts": (
        guarded(u=pt.constant(np.where(COUNTS == 0, 0, -np.inf))),
        power,
    ),
    "the other way round": (pt.switch(zero & pt.eq(-np.inf, x), 0.0, x * y), power),
    "fewer": (
        guarded(pt.constant(COUNTS == 0) & np.array([True, False] * 3)),
        pt.switch((COUNTS == 0) & np.array([True, False] * 3), 0.0, y * x),
    ),
}
REFUSES = {
    "a count that is not zero": guarded(pt.constant(COUNTS == 2)),
    "another value": guarded(u=1.0),
    "another logarithm": guarded(of=w),
    "infinity": pt.switch(pt.eq(x, np.inf) & zero, 0.0, y * x),
    "either": pt.switch(pt.eq(x, -np.inf) | zero, 0.0, y * x),
    "no constant counts": guarded(counts=w),
    "no mask": pt.switch(pt.eq(x, -np.inf), 0.0, y * x),
    "three factors": pt.switch(pt.eq(x, -np.inf) & zero, 0.0, y * x * w),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    for values in (EDGES, np.linspace(-3, 3, 6), np.full(6, -np.inf)):
        assert_same_value_and_gradient(FIRES[name][0], {x: values}, rtol=1e-15)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_logpow():
    p = pt.sigmoid(x)
    found = sketch(pregrad(logpow(p, y), on=True))
    assert "-inf" not in found
    assert "-inf" in sketch(pregrad(logpow(p, y), on=False))


@pytest.mark.parametrize(
    ("likelihood", "options"),
    [(pm.Poisson, {}), (pm.Binomial, {"n": 10}), (pm.Geometric, {})],
)
def test_a_mean_that_is_nan_or_infinite_is_no_finite_density(likelihood, options):
    """Where the rule makes zero of nan, the other terms of a density or its check still see the mean."""
    mean = pt.vector("mean", shape=COUNTS.shape)
    name = "mu" if likelihood is pm.Poisson else "p"
    counts = np.maximum(COUNTS, 1) if likelihood is pm.Geometric else COUNTS
    logp = pm.logp(likelihood.dist(**{name: mean}, **options), counts)
    bare = pregrad(logp.sum(), on=True)
    assert mean in set(ancestors([bare]))
    for value in (np.nan, np.inf):
        try:
            found = bare.eval({mean: np.full(6, value)}, mode="FAST_COMPILE")
        except pm.logprob.utils.ParameterValueError:
            continue
        assert not np.isfinite(found)
