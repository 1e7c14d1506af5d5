"""Sums over rows are split into terms for any conditions of their switches."""

import numpy as np
import pytensor.tensor as pt
import pytest
from mpmath import mp
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Sum

from pymc_fastlogp.rewrites.rows.compact.terms import split, terms_of
from pymc_fastlogp.rewrites.rows.view.grid import Grid
from tests.rewrites.conftest import assert_same_value_and_gradient, pregrad, sum_and_gradient

N = 6
a, b = pt.vectors("a", "b")
VALUES = {a: np.linspace(-1.0, 1.0, N), b: np.linspace(0.5, 3.0, N)}
# True, whatever the length.
always = pt.eq(a, a)

CONDITIONS = {
    "a constant times itself": pt.mul(always, always),
    "a constant and itself": pt.and_(always, always),
    "a constant and what is not": pt.and_(always, a > 0),
    "what is not, twice, and a constant": pt.mul(a > 0, always, a > 0),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_switches_by_any_condition_agree(name):
    chosen = pt.switch(CONDITIONS[name], pt.exp(a), b)
    assert_same_value_and_gradient((0.5 * chosen).sum(), VALUES, rtol=1e-14)


ROWS = 200
RNG = np.random.default_rng(0)
X, Y, COUNT = RNG.normal(size=ROWS), RNG.normal(size=ROWS), RNG.poisson(2, size=ROWS)
GROUP = RNG.integers(0, 4, ROWS)
effect, slope, log_scale = pt.vector("effect", shape=(4,)), pt.scalar("slope"), pt.scalar("scale")
z = (Y - effect[GROUP] - slope * X) / pt.exp(log_scale)
GUMBEL = (-z - pt.exp(-z)).sum()


def shapes_of_sums(total):
    out = pregrad(total, on=True)
    sums = [x.owner for x in ancestors([out]) if isinstance(x.owner_op, Sum)]
    return [node.inputs[0].type.shape for node in sums]


def test_a_sum_that_another_term_reads_is_one_term():
    """The derivative of a Gumbel density, ``1 - exp(-z)``, cancels row by row, and would not in two sums."""
    assert shapes_of_sums(GUMBEL) == [(ROWS,)]


def test_a_sum_with_weights_of_its_own_is_split():
    """The products of a Poisson density are read by this sum alone and become two constants per parameter."""
    assert (4,) in shapes_of_sums((COUNT * z - pt.exp(z)).sum())


@pytest.mark.parametrize("log_of_scale", [0.0, 10.0, 20.0])
def test_digits_of_a_gumbel_density_far_out(log_of_scale):
    """The derivative by the slope against 60 digits, up to where PyTensor has seven left."""
    values = {effect: np.zeros(4), slope: np.array(0.0), log_scale: np.array(log_of_scale)}
    with mp.workdps(60):
        scale = mp.exp(log_of_scale)
        rows = zip(map(float, X), map(float, Y), strict=True)
        exact = mp.fsum((1 - mp.exp(-y / scale)) * x / scale for x, y in rows)
        off, on = (
            abs(sum_and_gradient(pregrad(GUMBEL, on=on), values)[2] - exact) for on in (False, True)
        )
        assert on <= 4 * off + mp.mpf(1e-15) * abs(exact)


# One effect for each of many groups, written as a sum over the groups.
GROUPS = 24
by_loop = pt.vector("by_loop", shape=(GROUPS,))
OF_GROUP = np.repeat(np.arange(GROUPS), 5)
chosen = pt.add(*(pt.switch(k == OF_GROUP, by_loop[k], 0.0) for k in range(GROUPS)))
ERROR = RNG.normal(size=OF_GROUP.size) - chosen


def test_fully_masked_terms_are_dropped():
    """The derivative by one effect reads that effect and the data, in the rows of its group."""
    derivative = 2.0 * pt.switch(OF_GROUP == 3, 0.5 * ERROR, 0.0)
    terms = terms_of(split(Grid(OF_GROUP.shape), derivative, {0: 0}))
    effects = [term for term in terms if by_loop in ancestors([term.x])]
    assert len(effects) == 1
    assert all((term.mask == (OF_GROUP == 3)).all() for term in effects)


def test_effects_written_as_a_loop_agree():
    by_constant = pt.switch(OF_GROUP > 1, pt.exp(-ERROR) * np.arange(OF_GROUP.size), ERROR)
    nothing = pt.switch(OF_GROUP < 2, pt.switch(OF_GROUP > 2, pt.log(by_loop[0]), 0.0), 0.0)
    values = {by_loop: np.linspace(-1.0, 1.0, GROUPS)}
    derivative = pt.switch(OF_GROUP == 3, 0.5 * ERROR, 0.0)
    for rows in (
        ERROR**2,
        derivative,
        by_constant,
        nothing,
        nothing + ERROR,
        3.0 * nothing - ERROR**2,
    ):
        assert_same_value_and_gradient(rows.sum(), values, rtol=1e-13)
