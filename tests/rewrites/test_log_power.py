"""``y * log(a * exp(x))`` as ``logpow`` writes it becomes ``y * (log(a) + x)`` with a limit, for counts ``y`` alone."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.dist_math import logpow
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Log
from pytensor.tensor.elemwise import Elemwise

from tests.conftest import PYTHON
from tests.fuzz.evaluation import off_in_numpy, on_by_kernels
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

RULE = "fastlogp_log_power"
COUNTS = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 5.0])
HALF = np.array([True, True, False, False, True, True])
EXPOSURES = np.array([0.0, 2.0, 0.5, 1e-3, 7.0, 1e6])

x, w = (pt.vector(name, shape=COUNTS.shape) for name in "xw")
y, zero, half = (pt.constant(values) for values in (COUNTS, COUNTS == 0, (COUNTS == 0) & HALF))
a = pt.constant(EXPOSURES)
mu = a * pt.exp(x)
log_mu = pt.log(mu)
with np.errstate(divide="ignore"):
    logs = pt.constant(np.log(EXPOSURES)) + x


def guarded(mask=zero, u=0.0, of=log_mu, counts=y, log=log_mu):
    return pt.switch(pt.eq(of, -np.inf) & mask, u, counts * log)


limit = pt.switch(pt.le(mu, 0), -np.inf, pt.switch(pt.lt(mu, np.inf), 0.0, np.inf))
after = pt.switch(zero, pt.switch(pt.lt(mu, np.inf), 0.0, np.nan), y * logs + limit)
FIRES = {
    "as PyMC writes it": guarded(),
    "what is zero where it counts": guarded(u=pt.constant(np.where(COUNTS == 0, 0, -np.inf))),
    "the other way round": pt.switch(zero & pt.eq(-np.inf, log_mu), 0.0, log_mu * y),
}
REFUSES = {
    "a count that is not zero": guarded(pt.constant(COUNTS == 2)),
    "zero beyond the mask": guarded(half),
    "negative counts": guarded(counts=pt.constant(-COUNTS)),
    "another value": guarded(u=1.0),
    "another logarithm": guarded(of=w),
    "no product": guarded(of=x, log=x),
    "a rate that may be negative": guarded(of=pt.log(w), log=pt.log(w)),
    "infinity": pt.switch(pt.eq(log_mu, np.inf) & zero, 0.0, y * log_mu),
    "either": pt.switch(pt.eq(log_mu, -np.inf) | zero, 0.0, y * log_mu),
    "no constant counts": guarded(counts=w),
    "no mask": pt.switch(pt.eq(log_mu, -np.inf), 0.0, y * log_mu),
    **{
        f"a rate that is {name}, whose logarithm is simpler": guarded(
            of=pt.log(rate), log=pt.log(rate)
        )
        for name, rate in {
            "a square": pt.sqr(w),
            "a root": pt.sqrt(pt.exp(w) + 1),
            "a power": (1 + pt.exp(w)) ** 1.5,
            "one over something": 1 / (1 + pt.exp(w)),
            "two over something": 2 / (1 + pt.exp(w)),
        }.items()
    },
    "three factors": pt.switch(pt.eq(log_mu, -np.inf) & zero, 0.0, y * log_mu * w),
}
POINTS = {
    "ordinary": np.linspace(-3, 3, 6),
    "underflow": np.full(6, -800.0),
    "overflow": np.full(6, 800.0),
    "zero": np.full(6, -np.inf),
    "infinity": np.full(6, np.inf),
    "nan": np.full(6, np.nan),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(FIRES[name], after)


def test_a_rate_that_is_no_product():
    rate = mu + pt.exp(x)
    out = guarded(of=pt.log(rate), log=pt.log(rate))
    nothing = pt.switch(pt.lt(rate, np.inf), 0.0, np.nan)
    assert_rewritten(out, pt.switch(zero, nothing, y * pt.log(rate)))
    for point in POINTS.values():
        off, on = (pregrad(out, on=on).eval({x: point}, mode=PYTHON) for on in (False, True))
        np.testing.assert_array_equal(on, off)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.parametrize("point", POINTS)
def test_value_is_the_same_to_the_kind_of_its_infinities(point):
    for out in FIRES.values():
        off, on = (
            pregrad(out, on=on).eval({x: POINTS[point]}, mode=PYTHON) for on in (False, True)
        )
        np.testing.assert_allclose(on, off, rtol=1e-14)


def test_value_and_gradient():
    for out in FIRES.values():
        assert_same_value_and_gradient(out[1:], {x: POINTS["ordinary"]}, rtol=1e-14)


def test_logpow():
    found = ancestors([pregrad(logpow(mu, y), on=True)])
    assert not any(
        isinstance(v.owner_op, Elemwise) and isinstance(v.owner.op.scalar_op, Log) for v in found
    )


@pytest.mark.parametrize("point", POINTS)
def test_a_poisson_has_upstreams_infinities(point):
    logp = pm.logp(pm.Poisson.dist(mu), COUNTS)
    off, on = (_value_or_error(pregrad(logp, on=on), POINTS[point]) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-14)


z = pt.vector("z", shape=COUNTS.shape)
RATES = {
    "product": pt.exp(x) * pt.exp(z),
    "quotient": pt.exp(x) / pt.exp(z),
    "product with a constant": a * pt.exp(x) * pt.exp(z),
    "one over it": 1 / pt.exp(x),
    "square": pt.sqr(x),
    "root": pt.sqrt(pt.exp(x)),
}


@pytest.mark.parametrize("at", [(-400.0, -400.0), (-400.0, 400.0), (800.0, 1.0), (-1e200, 1.0)])
@pytest.mark.parametrize("name", RATES)
def test_logarithms_of_underflow_and_overflow(name, at):
    """PyTensor's logarithms of exponentials, squares and roots stay finite if the arguments under- or overflow."""
    rate = RATES[name]
    values = [np.full(6, v) for v in at]
    out = [guarded(of=pt.log(rate), log=pt.log(rate)), pt.log(rate)]
    off, on = (f([x, z], out)(*values) for f in (off_in_numpy, on_by_kernels))
    np.testing.assert_allclose(on, off, rtol=1e-14)


@pytest.mark.parametrize("at", [0.0, -0.0])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_rate_that_is_divided_by_a_zero_of_either_sign(at, is_moved):
    """A density of infinity where upstream has nan would be accepted: what is subtracted is minus infinity."""
    scale = pt.scalar("scale")
    rate = pt.exp(x) / pt.sqrt(scale)
    rate = rate[::-1] if is_moved else rate
    out = guarded(of=pt.log(rate), log=pt.log(rate)) - rate
    values = {x: POINTS["ordinary"], scale: np.array(at)}
    off, on = (pregrad(out, on=on).eval(values, mode=PYTHON) for on in (False, True))
    assert sketch(pregrad(out, on=True)) != sketch(pregrad(out, on=False))
    np.testing.assert_array_equal(off, np.full(6, np.nan))
    np.testing.assert_array_equal(on, off)


def _value_or_error(out, point):
    try:
        return out.eval({x: point}, mode=PYTHON)
    except pm.logprob.utils.ParameterValueError:
        return np.full(6, 12345.0)
