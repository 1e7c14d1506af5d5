"""A covariance from standard deviations and correlations is factored by scaling its factor."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky

from tests.rewrites.conftest import (
    assert_left_alone,
    inputs_of,
    nodes_of,
    pregrad,
    value_and_gradient,
)

RULE = "fastlogp_gram_of_scaled"
N = 3

low = pt.vector("low", shape=(3,))
log_sd = pt.vector("log_sd", shape=(N,))
log_scale = pt.vector("log_scale", shape=(N,))
d = pt.vector("d", shape=(N,))
full = pt.matrix("full", shape=(N, N))
VALUES = {
    low: np.array([0.3, -0.5, 0.9]),
    log_sd: np.array([0.5, -0.1, 0.2]),
    log_scale: np.array([-0.5, 0.4, 0.1]),
    d: np.array([1.0, 0.5, 2.0]),
    full: np.eye(N) + 0.1,
}

DIAG = np.arange(N)
L = pt.zeros((N, N))[np.tril_indices(N, -1)].set(low)[DIAG, DIAG].set(1.0)
corr, sd, scale = L @ L.T, pt.exp(log_sd), pt.exp(log_scale)
above_one = 1.0 + sd
byte, bytes_ = pt.bvector("byte", shape=(N,)), pt.bmatrix("bytes_", shape=(N, N))

FIRES = {
    "scaled": sd[:, None] * corr * sd,
    "outer product": corr * pt.outer(sd, sd),
    "diagonal matrices": pt.diag(sd) @ corr @ pt.diag(sd),
    "divided": corr / (above_one[:, None] * above_one),
    "scaled twice": sd[:, None] * sd[:, None] * corr * sd * sd,
    "correlations from a covariance": pt.diag(scale)
    @ (corr * pt.outer(sd, sd) / pt.outer(scale, scale))
    @ pt.diag(scale),
    "dummy dimension": (sd[:, None] * corr * sd)[None],
}

REFUSES = {
    "rows only": sd[:, None] * corr,
    "others for rows than for columns": sd[:, None] * corr * scale,
    "another power": sd[:, None] * sd[:, None] * corr * sd,
    "something else between": sd[:, None] * corr * sd * full,
    "scalar": sd[:, None] * corr * sd * low[0],
    "one divided by it": sd[:, None] * sd / corr,
    "product of two grams": sd[:, None] * corr * sd * (full @ full.T),
    "bytes, whose product goes round": corr / (byte[:, None] * byte),
    "a Gram matrix of bytes": sd[:, None] * (bytes_ @ bytes_.T) * sd,
    "no gram": sd[:, None] * full * sd,
}


def evaluate(out, *, on):
    return value_and_gradient(out, inputs_of(out, VALUES), on=on)


@pytest.mark.parametrize("name", FIRES)
def test_factorization_is_removed(name):
    out = cholesky(FIRES[name])
    assert nodes_of(pregrad(out, on=True, exclude=[RULE]), Cholesky)
    assert not nodes_of(pregrad(out, on=True), Cholesky)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    off, on = (evaluate(cholesky(FIRES[name]), on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(cholesky(REFUSES[name]), RULE)


def test_a_matrix_that_is_needed_elsewhere_is_left():
    covariance = sd[:, None] * corr * sd
    out = cholesky(covariance) + covariance
    assert nodes_of(pregrad(out, on=True), Cholesky)


def test_scales_of_either_sign_keep_the_factorization():
    """Scaled by a negative number the triangle is not the factor, which has a positive diagonal."""
    out = cholesky(d[:, None] * corr * d)
    assert nodes_of(pregrad(out, on=True), Cholesky)
    off, on = (evaluate(out, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("write", ["corr", "LKJCorr"])
def test_covariance_of_lkj_priors_is_not_factored(write):
    with pm.Model() as model:
        if write == "corr":
            _, r, s = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        else:
            factor, s = pm.LKJCorr("L", n=3, eta=2.0), pm.HalfNormal("s", 1.0, shape=3)
            r = factor @ factor.T
        pm.MvNormal("y", np.zeros(3), cov=pt.diag(s) @ r @ pt.diag(s), observed=np.ones((5, 3)))
    for on in (False, True):
        assert bool(nodes_of(pregrad(model.logp(), on=on), Cholesky)) != on
