"""The diagonal of a product is a sum by rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)

RULE = "fastlogp_diag_of_product"
N, M = 3, 4

a = pt.matrix("a", shape=(N, M))
b = pt.matrix("b", shape=(M, N))
wide = pt.matrix("wide", shape=(M, N + 1))
unknown = pt.matrix("unknown")
whole = pt.lmatrix("whole", shape=(N, N))
packed = pt.vector("packed", shape=(6,))
triangle = pt.zeros((N, N))[np.tril_indices(N)].set(packed)
ROWS = np.tril_indices(N)[0]

VALUES = {
    a: np.linspace(-1.0, 2.0, N * M).reshape(N, M),
    b: np.linspace(0.5, 3.0, N * M).reshape(M, N),
    packed: np.linspace(-1.0, 2.0, 6),
}

FIRES = {
    "product": (pt.diagonal(a @ b), (a * b.T).sum(axis=1)),
    "square": (pt.diagonal(a @ a.T), pt.sqr(a).sum(axis=1)),
    "standard deviations": (
        pt.sqrt(pt.diag(triangle @ triangle.T)),
        pt.sqrt(pt.zeros(N)[ROWS].inc(pt.sqr(packed))),
    ),
    "product that is needed too": (
        pt.diagonal(a @ b) * (a @ b),
        (a * b.T).sum(axis=1) * (a @ b),
    ),
}

REFUSES = {
    "other diagonal": pt.diagonal(a @ b, offset=1),
    "not square": pt.diagonal(a @ wide),
    "shape that is not known": pt.diagonal(unknown @ b),
    "sum": pt.diagonal(a @ b + 1),
    "integers": pt.diagonal(whole @ whole),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


@pytest.mark.parametrize("used", [True, False])
def test_standard_deviations_of_lkj_cholesky_cov_need_no_product(used):
    with pm.Model() as model:
        _, _, stds = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        pm.Normal("x", 0.0, stds if used else 1.0, shape=3)
    for on in (False, True):
        found = pregrad(model.logp(), on=on)
        assert any(isinstance(x.owner_op, Dot) for x in ancestors([found])) == (used and not on)
