"""A costly function is evaluated once per distinct row: the graphs, values, and refusals."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import equal_computations
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.compact.hoist_distinct import COSTLY, NAME
from tests.conftest import PYTHON
from tests.rewrites.conftest import assert_left_alone, assert_same_value_and_gradient, pregrad

N = 240
RNG = np.random.default_rng(0)
COUNT = RNG.poisson(2.0, N).astype(float)
GROUP = RNG.integers(0, 5, N)
CONTINUOUS = RNG.gamma(2.0, size=N)
CODES = RNG.integers(0, 3, (60, 4)).astype(float)
N_COUNTS, N_PAIRS = len(np.unique(COUNT)), len({*zip(COUNT, GROUP)})

a = pt.scalar("a")
theta, alpha = pt.vector("theta", shape=(5,)), pt.vector("alpha", shape=(3,))
of_row = pt.vector("of_row", shape=(N,))
unknown = pt.vector("unknown")
f = pt.gammaln(COUNT + a)
per_component = pt.gammaln(COUNT[:, None] + alpha)

# What is hoisted, and the number of evaluations that are left.
FIRES = {
    "row by row": (f, N_COUNTS),
    "beside what differs": (f * of_row, N_COUNTS),
    "inside of another function": (pt.exp(f * CONTINUOUS).sum(), N_COUNTS),
    "in a mixture": (pt.logsumexp(per_component * CONTINUOUS[:, None], axis=1), 3 * N_COUNTS),
    "rows along the last axis": (pt.gammaln(alpha[:, None] + COUNT), 3 * N_COUNTS),
    "with a gather": (pt.gammaln(COUNT + theta[GROUP]), N_PAIRS),
    "over two axes": (pt.gammaln(CODES + a), 3),
    "two arguments": (pt.betainc(a, 2.0, COUNT / 20), N_COUNTS),
    "another of the same row": (pt.psi(COUNT + a) + f, 2 * N_COUNTS),
}
REFUSES = {
    "a function that costs little": pt.exp(COUNT + a),
    "rows that do not repeat": pt.gammaln(CONTINUOUS + a),
    "an entry of its own for each row": pt.gammaln(COUNT + of_row),
    "an unknown number of rows": pt.gammaln(unknown),
    "few rows": pt.gammaln(COUNT[:20] + a),
    "a scalar": pt.gammaln(a),
}


def evaluations(out):
    """Return how often costly functions are evaluated."""
    costly = {
        x
        for x in ancestors([out])
        if isinstance(x.owner_op, Elemwise) and isinstance(x.owner.op.scalar_op, COSTLY)
    }
    return sum(int(np.prod(x.type.shape)) for x in costly)


def values():
    return {
        a: np.array(1.7),
        of_row: np.linspace(0.3, 2.0, N),
        theta: np.linspace(0.4, 3.0, 5),
        alpha: np.array([0.5, 1.5, 4.0]),
    }


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    out, n_left = FIRES[name]
    with collected() as decisions:
        found = pregrad(out, on=True)
    assert evaluations(found) == n_left < evaluations(pregrad(out, on=False))
    assert NAME in {d.rule for d in decisions if d.fired}
    assert any(isinstance(x.owner_op, AdvancedSubtensor) for x in ancestors([found]))
    assert equal_computations([pregrad(found, on=True)], [found])


@pytest.mark.parametrize("name", [name for name in FIRES if name != "two arguments"])
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], values(), rtol=1e-12)


def test_value_of_a_function_of_two_arguments():
    out, _ = FIRES["two arguments"]
    off, on = (pregrad(out, on=on).eval({a: 1.7}, mode=PYTHON) for on in (False, True))
    assert (off == on).all()


@pytest.mark.parametrize("number", [0.0, -2.0, np.inf, np.nan])
def test_infinite_and_zero_arguments_agree(number):
    assert_same_value_and_gradient(f * of_row, values() | {a: np.array(number)}, rtol=1e-12)


def test_the_derivative_is_hoisted_too():
    gradient = pytensor.grad((pregrad(f * of_row, on=True) ** 2).sum(), a)
    assert evaluations(gradient) == 2 * N_COUNTS  # gammaln and psi


def test_a_sum_over_rows_is_compacted_instead():
    found = pregrad((f * CONTINUOUS).sum(), on=True)
    assert evaluations(found) == N_COUNTS
    assert not any(isinstance(x.owner_op, AdvancedSubtensor) for x in ancestors([found]))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], NAME)
