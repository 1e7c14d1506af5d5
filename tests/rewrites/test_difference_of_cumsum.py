"""Differences of cumulative sums are sums of the entries between."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from pytensor.graph.traversal import ancestors
from pytensor.tensor.extra_ops import CumOp

from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)
from tests.slices import examples

RULE = "fastlogp_difference_of_cumsum"
y = pt.vector("y", shape=(10,))
z = pt.vector("z", shape=(10,))
n = pt.vector("n", shape=(10,), dtype="int64")
unknown = pt.vector("unknown")
matrix = pt.matrix("matrix", shape=(10, 10))
index = pt.lvector("index", shape=(3,))
LAST, FIRST = np.array([2, 5, 9]), np.array([0, 2, 5])

# Sums of these are exact.
VALUES = {y: np.arange(-2.0, 8.0) ** 3}


def differences(x, last=LAST, first=FIRST):
    sums = pt.cumsum(x, axis=0)
    return sums[last] - sums[first]


FIRES = {
    "rows of a triangle": (
        differences(y),
        pt.zeros(3)[np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])].inc(y[1:10]),
    ),
    "apart": (
        differences(y, np.array([2, 9]), np.array([0, 6])),
        pt.zeros(2)[np.array([0, 0, 1, 1, 1])].inc(y[np.array([1, 2, 7, 8, 9])]),
    ),
    "in any order": (
        differences(y, np.array([9, 2]), np.array([6, 0])),
        pt.zeros(2)[np.array([0, 0, 0, 1, 1])].inc(y[np.array([7, 8, 9, 1, 2])]),
    ),
    "negative numbers": (
        differences(y, LAST - 10),
        pt.zeros(3)[np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])].inc(y[1:10]),
    ),
    "slices": (
        pt.cumsum(y)[5::4] - pt.cumsum(y)[:8:4][:2],
        pt.zeros(2)[np.array([0] * 5 + [1] * 5)].inc(y[np.r_[1:6, 5:10]]),
    ),
    "nothing between": (
        differences(y, np.array([3, 7]), np.array([3, 4])),
        pt.zeros(2)[np.array([1, 1, 1])].inc(y[5:8]),
    ),
}
REFUSES = {
    "backwards": differences(y, FIRST, LAST),
    "indices of two axes": differences(y, LAST[None, :], FIRST[None, :]),
    "one pair backwards": differences(y, np.array([9, 0]), np.array([2, 4])),
    "one subtracted from several": differences(y, LAST, FIRST[:1]),
    "nothing at all": differences(y, FIRST, FIRST),
    "of two vectors": pt.cumsum(y)[LAST] - pt.cumsum(z)[FIRST],
    "runtime index": differences(y, index),
    "unknown length": differences(unknown),
    "integers": differences(n),
    "matrix": differences(matrix),
    "product": pt.cumprod(y)[LAST] - pt.cumprod(y)[FIRST],
    "overlapping, more entries than there are": differences(
        y, np.array([8, 9, 7]), np.array([0, 0, 1])
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-13)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.parametrize("first", [7, 8])
def test_index_out_of_range_raises_at_the_call(first):
    out = differences(y, np.array([15]), np.array([first]))
    for on in (False, True):
        # PyTensor fails to make a slice of one index that is beyond the end.
        with pytensor.config.change_flags(on_opt_error="ignore"):
            function = pytensor.function([y], pregrad(out, on=on), mode=PYTHON)
        with pytest.raises(IndexError):
            function(VALUES[y])


@settings(max_examples=examples(12, 40))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_same_for_any_positions(pairs):
    first, last = np.sort(np.array(pairs), axis=1).T
    assert_same_value_and_gradient(differences(y, last, first), VALUES, rtol=1e-12)


def test_a_small_sum_after_a_large_one_keeps_its_digits():
    at = np.array([1.0, 1e16, 0, 1e-16, 2e-16, 3e-16, 1, 2, 3, 4])
    off, on = (pregrad(differences(y), on=on).eval({y: at}, mode=PYTHON) for on in (False, True))
    np.testing.assert_allclose(on, [1e16, 6e-16, 10], rtol=1e-15)
    assert off[1] == 0


@pytest.fixture(scope="module")
def lkj_cholesky_cov():
    """Both sides of a prior of three standard deviations, which has no kernel behind it."""
    with pm.Model() as model:
        pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=pm.Exponential.dist(1), compute_corr=False)
    [x] = model.continuous_value_vars
    sides = {}
    for on in (False, True):
        logp = pregrad(model.logp(), on=on)
        assert any(isinstance(v.owner_op, CumOp) for v in ancestors([logp])) != on
        sides[on] = pytensor.function([x], [logp, pytensor.grad(logp, x)], mode=PYTHON)
    return sides


def test_lkj_cholesky_cov_is_the_same(lkj_cholesky_cov):
    at = np.array([0.3, -0.5, 0.2, 1.0, 0.4, -0.7])
    for expected, found in zip(
        lkj_cholesky_cov[False](at), lkj_cholesky_cov[True](at), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_lkj_cholesky_cov_with_very_different_scales(lkj_cholesky_cov):
    """Standard deviations of 1e8 and, after it, 1e-8: PyTensor's variance of the second is zero."""
    log_diagonal = [np.log(1e8), np.log(1e-8), 0.0]
    at = np.array([log_diagonal[0], 3e-9, log_diagonal[1], 0.5, 0.25, log_diagonal[2]])
    with np.errstate(all="ignore"):
        off, on = (lkj_cholesky_cov[side](at)[0] for side in (False, True))
    assert not np.isfinite(off)
    np.testing.assert_allclose(on, exact_log_prior(at), rtol=1e-12)


def exact_log_prior(packed, eta=2):
    """Return LKJ's density of the correlations, of standard deviations ~ Exponential(1), and Jacobians."""
    with mp.workdps(40):
        rows = [[mpf(v) for v in row] for row in ([packed[0]], packed[1:3], packed[3:6])]
        n = len(rows)
        rows = [[*row[:-1], mp.exp(row[-1])] for row in rows]
        sds = [mp.sqrt(sum(v**2 for v in row)) for row in rows]
        log_corr = [mp.log(row[-1] / sd) for row, sd in zip(rows, sds, strict=True)]
        lkj = sum((2 * eta - 3 + n - i) * c for i, c in enumerate(log_corr))
        jacobian = sum(
            c - i * mp.log(sd) for i, (c, sd) in enumerate(zip(log_corr, sds, strict=True))
        )
        constant = mpf(
            float(pm.distributions.multivariate._lkj_normalizing_constant(eta, n).eval(mode=PYTHON))
        )
        return float(constant + lkj - sum(sds) + jacobian + sum(mp.log(row[-1]) for row in rows))
