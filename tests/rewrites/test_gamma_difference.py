"""``gammaln(a + k) - gammaln(a)`` stays one term: the pairs that are found, value and gradient. Accuracy is in ``test_rising_refused.py``."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.ops import gamma_difference
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
)

RULE = "fastlogp_gamma_difference"

s, t = pt.scalar("s"), pt.scalar("t")
v, w = (pt.vector(name, shape=(3,)) for name in "vw")
x, y = (pt.vector(name, shape=(6,)) for name in "xy")
counts = pt.vector("counts", shape=(6,), dtype="int64")
single = pt.tensor("x32", shape=(3,), dtype="float32")
g = pt.constant(np.array([0, 2, 1, 1, 0, 2]))
h = pt.constant(np.array([0, 1, 1, 2, 2, 2]))
VALUES = {
    s: np.array(0.7),
    t: np.array(-1.3),
    v: np.array([0.4, 1.2, 3.0]),
    w: np.array([0.5, -2.0, 0.1]),
    x: np.array([1.5, 0.1, 2.5, 4.0, 0.7, 0.3]),
    y: np.array([0.0, 2.0, 0.25, 60.0, 1.0, 7.0]),
    counts: np.array([3, 0, 1, 12, 1, 400]),
    single: np.array([0.5, 2.0, 3.5], dtype="float32"),
}
a, rows = pt.exp(s), pt.exp(v)[g]


def difference(a, k, g=None):
    """Return what a pair becomes, of entries ``g`` of ``a``."""
    a, low = (a, pt.gammaln(a)) if g is None else (a[g], pt.gammaln(a)[g])
    return gamma_difference(a, pt.as_tensor(k).astype(a.dtype), low)


FIRES = {
    "by group": (pt.gammaln(y + rows) - pt.gammaln(rows), difference(pt.exp(v), y, g)),
    "one a": (pt.gammaln(y + a) - pt.gammaln(a), difference(a, y)),
    "may be negative": (pt.gammaln(v[g] + y) - pt.gammaln(v[g]), difference(v, y, g)),
    "integers": (
        pt.gammaln(counts + rows) - pt.gammaln(rows),
        difference(pt.exp(v), counts, g),
    ),
    "another sign": (pt.gammaln(rows) - pt.gammaln(rows + y), -difference(pt.exp(v), y, g)),
    "far apart": (
        x - (pt.gammaln(rows) - (t - pt.gammaln(y + 1) + pt.gammaln(y + rows))),
        pt.add(x, t, -pt.gammaln(y + 1), difference(pt.exp(v), y, g)),
    ),
    "as a binomial coefficient": (
        pt.gammaln(y + rows - 1 + 1) - pt.gammaln(y + rows - y),
        difference(pt.exp(v), y, g),
    ),
    "a multiple": (
        pt.gammaln(2 * y + rows) - pt.gammaln(rows),
        difference(pt.exp(v), 2 * y, g),
    ),
    "another group": (
        pt.gammaln(rows + w[h]) - pt.gammaln(rows),
        difference(pt.exp(v), w[h], g),
    ),
    "single precision": (
        pt.gammaln(single[g] + np.arange(6, dtype="float32")) - pt.gammaln(single[g]),
        difference(single, np.arange(6, dtype="float32"), g),
    ),
}
open_rows = pt.vector("open")
REFUSES = {
    "a constant step": pt.gammaln(rows + np.arange(1.0, 7.0)) - pt.gammaln(rows),
    "what the rows of a read, too": pt.gammaln(rows + pt.exp(w)[g]) - pt.gammaln(rows),
    "one number each": pt.gammaln(a + pt.exp(t)) - pt.gammaln(a) + x,
    "an entry of its own for each row": pt.gammaln(y + pt.exp(x)) - pt.gammaln(pt.exp(x)),
    "a sum": pt.gammaln(y + rows) + pt.gammaln(rows),
    "another multiple": pt.gammaln(y + 2 * rows) - pt.gammaln(rows),
    "a weight": 2 * pt.gammaln(y + rows) - pt.gammaln(rows),
    "of a constant": pt.gammaln(y + 2.0) - pt.gammaln(pt.constant(np.full(6, 2.0))),
    "unknown length": pt.gammaln(open_rows + a) - pt.gammaln(a),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    before, after = FIRES[name]
    found = pregrad(before, on=True)
    simplified = sketch(pregrad(found, on=False))
    assert simplified == sketch(pregrad(after, on=False))
    assert sketch(pregrad(found, on=True)) == simplified
    assert found.type == pregrad(before, on=False).type


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    rtol = 2e-6 if name == "single precision" else 1e-12
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=rtol)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_gradient_is_one_kernel():
    out = (pt.gammaln(y + rows) - pt.gammaln(rows)).sum()
    gradients = pytensor.grad(pregrad(out, on=True), [v, y])
    function = pytensor.function([v, y], gradients, mode="NUMBA")
    assert [type(node.op) for node in function.maker.fgraph.apply_nodes] == [FusedKernel]


def test_second_derivatives_agree():
    out = (pt.gammaln(y + rows) - pt.gammaln(rows)).sum()
    hessians = []
    for on in (False, True):
        [gradient] = pytensor.grad(pregrad(out, on=on), [v])
        hessian = pytensor.gradient.jacobian(gradient, [v, y], vectorize=True)
        hessians.append(pytensor.function([v, y], hessian, mode=PYTHON)(VALUES[v], VALUES[y]))
    for off, on in zip(*hessians, strict=True):
        np.testing.assert_allclose(on, off, rtol=1e-11, atol=1e-13)
