"""Bessel functions of many orders come from one recurrence, to more digits than SciPy's where these lose some."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from mpmath import mp
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Ive

import pymc_fastlogp
from pymc_fastlogp.analysis.elemwise import is_made_by
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.lower import bessel
from pymc_fastlogp.ops import IveOfOrders
from pymc_fastlogp.rewrites.after_gradient import ive_of_orders
from tests.rewrites.conftest import (
    SIDES,
    with_gradients,
)

DATABASES = ["canonicalize", "stabilize", "specialize", "uncanonicalize", "numba"]
RNG = np.random.default_rng(0)
J = np.arange(20)

x = pt.scalar("x")
one = pt.vector("one", shape=(1,))
several = pt.vector("several", shape=(20,))
weights = pt.vector("weights", shape=(20,))
single = pt.fscalar("single")
n = pt.lscalar("n")

FIRES = {
    "orders in a row": pt.ive(J, x),
    "a vector of one element": pt.ive(J, one),
    "whole numbers as floats": pt.ive(J.astype(float), x),
    "any order, twice": pt.ive([7, 0, 3, 3, 9, 2], x),
    "below zero": pt.ive(J - 5, x),
    "a matrix": pt.ive(J.reshape(4, 5), x),
    "numbers": pt.stack([pt.ive(k, x) for k in range(6)]),
    "one order, and its gradient": pt.grad(pt.ive(3, x), x) + pt.ive(3, x) + pt.ive(1, x),
    "up to the highest": pt.ive([*range(20), ive_of_orders.HIGHEST], x),
}
REFUSES = {
    "orders that are not whole": pt.ive(J + 0.5, x),
    "an order that is nan": pt.ive([1.0, 2.0, 3.0, 4.0, np.nan], x),
    "an order that is infinite": pt.ive([1.0, 2.0, 3.0, 4.0, np.inf], x),
    "orders that are not constant": pt.ive(J + n, x),
    "too high": pt.ive([*range(20), ive_of_orders.HIGHEST + 1], x),
    "few, and high": pt.ive([0, 50], x),
    "one": pt.ive(3, x),
    "no orders": pt.ive(np.zeros(0), x),
    "several arguments": pt.ive(J, several),
    "an argument for each row": pt.ive(J, several[:, None]),
    "single precision": pt.ive(J.astype("float32"), single),
}


def rewritten(out, *, on=True):
    """Return a graph after the rules for Numba, before fusion."""
    with switched(on):
        return rewrite_graph(out, include=DATABASES, exclude=["fastlogp_fused_kernel"], clone=True)


def count(out, kind):
    return sum(kind(v) for v in ancestors([out]))


def is_table(v):
    return isinstance(v.owner_op, IveOfOrders)


def is_ive(v):
    return is_made_by(v, Ive)


@pytest.mark.parametrize("name", FIRES)
def test_fires(name):
    assert count(rewritten(FIRES[name]), is_table) == 1
    assert count(rewritten(FIRES[name]), is_ive) == 0
    assert count(rewritten(FIRES[name], on=False), is_table) == 0


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    found = rewritten(REFUSES[name])
    assert count(found, is_table) == 0
    assert count(found, is_ive) == count(rewritten(REFUSES[name], on=False), is_ive)


def test_value_and_gradient_are_of_one_recurrence():
    out = (weights * pt.ive(J, x)).sum()
    found = rewritten(pt.add(out, *pt.grad(out, [x])))
    assert count(found, is_table) == 1


def test_two_arguments_have_a_recurrence_each():
    assert count(rewritten(pt.ive(J, x) + pt.ive(J, one[0])), is_table) == 2


def test_the_highest_order_is_that_of_kernels():
    assert ive_of_orders.HIGHEST == bessel.HIGHEST


def test_rule_is_excluded_by_name():
    exclude = ["fastlogp_fused_kernel", "fastlogp_ive_of_orders"]
    found = rewrite_graph(FIRES["orders in a row"], include=DATABASES, exclude=exclude, clone=True)
    assert count(found, is_table) == 0


def functions(orders):
    """Return the functions of some orders and their slopes, off and on."""
    given = pt.vector("given", shape=(len(orders),))
    out = (given * pt.ive(np.array(orders), x)).sum()
    sides = [with_gradients(out, [given, x], on=on) for on in (False, True)]
    [kernel] = (v for v in sides[1].maker.fgraph.apply_nodes if isinstance(v.op, FusedKernel))
    assert any(isinstance(node.op, IveOfOrders) for node in kernel.op.fgraph.toposort())
    units = np.eye(len(orders))

    def of(side, value):
        slopes = [side(unit, value)[2] for unit in units]
        return np.stack([side(units[0], value)[1], np.array(slopes)])

    return [lambda value, side=side: of(side, value) for side in sides]


def exact(orders, value):
    """Return the functions and their slopes to many digits, and the sums of the absolute terms of either."""
    with mp.workdps(60):
        v = mp.mpf(float(value))
        scale = mp.exp(-abs(v))
        i = {k: mp.besseli(k, v) * scale for k in range(max(orders) + 2)}
        values = [i[k] for k in orders]
        means = [(i[abs(k - 1)] + i[k + 1]) / 2 for k in orders]
        slopes = [m - mp.sign(v) * y for m, y in zip(means, values, strict=True)]
        sizes = [abs(m) + abs(y) for m, y in zip(means, values, strict=True)]
        return (values, values), (slopes, sizes)


TINY = 1e-290


def errors(found, expected):
    """Return the errors of values and slopes, relative to their terms, none of what is next to underflow."""
    return [
        max(
            float(abs((mp.mpf(float(f)) - e) / size)) if abs(size) > TINY else 0.0
            for f, e, size in zip(fs, es, sizes, strict=True)
        )
        for fs, (es, sizes) in zip(found, expected, strict=True)
    ]


def between(low, high):
    rng = np.random.default_rng(0)
    return np.exp(rng.uniform(np.log(low), np.log(high), 8))


@pytest.mark.parametrize("highest", [1, 8, 20, 49])
def test_error_is_at_most_four_times_that_of_upstream(highest):
    """Never more than four times that of upstream, of values and slopes, near 0 and far out."""
    orders = range(highest + 1)
    off, on = functions(orders)
    far = bessel.ranges(highest + 1).asymptotic_from
    ranges = [(1e-300, 1e-8), (1e-8, 0.1), (0.1, 2), (2, far / 2), (far / 2, far)]
    for low, high in [*ranges, (far, 1.2 * far), (1.2 * far, 20 * far), (20 * far, 1e6)]:
        of_off, of_on = [], []
        for value in [*between(low, high), *-between(low, high)]:
            expected = exact(orders, value)
            of_off.append(errors(off(value), expected))
            of_on.append(errors(on(value), expected))
        worst_off, worst_on = (np.max(found, axis=0) for found in (of_off, of_on))
        assert (worst_on <= 4 * worst_off).all()
        assert (worst_on < 3e-15).all()


@pytest.mark.parametrize("highest", [2, 20, 49])
def test_zero_infinite_and_nan_arguments_agree(highest):
    orders = range(highest + 1)
    off, on = functions(orders)
    edges = [0.0, -0.0, 5e-324, -5e-324, 1e-200, -1e-200, 1e8, -1e8, bessel.LARGEST]
    beyond = [np.nextafter(bessel.LARGEST, np.inf), 3e9, 1e300, np.inf, -np.inf, np.nan]
    for value in [*edges, *beyond]:
        found, expected = on(value), off(value)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        # A slope far out is a small difference of values.
        of_difference = 1e-15 * np.nan_to_num(np.abs(expected[0]).max())
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=TINY + of_difference)
    assert on(0.0)[0].tolist() == [1.0, *[0.0] * highest]


def test_agrees_without_kernels():
    out = (weights * pt.ive(J, x)).sum()
    mode = pytensor.compile.mode.get_mode("NUMBA").excluding("fastlogp_fused_kernel")
    on = with_gradients(out, [weights, x], on=True, mode=mode)
    off = with_gradients(out, [weights, x], on=False)
    assert any(isinstance(node.op, IveOfOrders) for node in on.maker.fgraph.toposort())
    given = RNG.normal(size=20), np.array(2.5)
    for found, expected in zip(on(*given), off(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    inputs = [x, one]
    off, on = (_function(inputs, pt.sqr(FIRES[name]), on=on) for on in (False, True))
    for value in (-1.75, 0.3, 60.0):
        found, expected = (f(value, np.array([value])) for f in (on, off))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=TINY)


def _function(inputs, out, *, on):
    with switched(on):
        return pytensor.function(inputs, out, mode=SIDES[on], on_unused_input="ignore")


def test_a_periodic_process_is_verified():
    with pm.Model() as model:
        cov = pm.gp.cov.Periodic(1, period=1, ls=pm.LogNormal("ls"))
        gp = pm.gp.HSGPPeriodic(m=12, scale=pm.HalfNormal("scale"), cov_func=cov)
        f = gp.prior("f", np.linspace(0, 3, 40)[:, None])
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(40))
    assert pymc_fastlogp.verify(model).passed
