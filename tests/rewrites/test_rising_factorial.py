"""``gammaln(a + k) - gammaln(a)`` keeps its digits: the pairs that are found, value and gradient against mpmath."""

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.compile.mode import Mode
from scipy.special import gammaln

from pymc_fastlogp.rewrites.loggamma.binet import binet, rising
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_same_value_and_gradient,
    pregrad,
    sketch,
    value_and_gradient,
)

RULE = "fastlogp_rising_factorial"
EPS = np.finfo("float64").eps

s, t, k = pt.scalar("s"), pt.scalar("t"), pt.scalar("k")
v, w = (pt.vector(name, shape=(3,)) for name in "vw")
x = pt.vector("x", shape=(6,))
f = pt.scalar("f", dtype="float32")
g = pt.constant(np.array([0, 2, 1, 1, 0, 2]))
counts = pt.constant(np.array([1.0, 2, 3, 4, 5, 60]))
integers = pt.constant(np.array([1, 2, 3, 4, 5, 60]))
with_zeros = pt.constant(np.array([0.0, 2, 0, 1, 5, 1000]))
table = pt.constant(np.array([[1.0, 2, 3], [4, 5, 6]]))
VALUES = {
    s: np.array(0.7),
    t: np.array(-1.3),
    k: np.array(2.0),
    v: np.array([-0.4, 1.2, 3.0]),
    w: np.array([0.5, -2.0, 0.1]),
    x: np.array([-1.5, 0.0, 2.5, 30.0, -40.0, 0.3]),
    f: np.array(0.5, dtype="float32"),
}
a, b, rows, others, matrix = pt.exp(s), pt.exp(t), pt.exp(v)[g], pt.exp(w)[g], pt.exp(v)[None]


def logarithm(a, k, g=None):
    """Return what a pair becomes where ``k`` is positive, of entries ``g`` of ``a``."""
    k = np.array(k, dtype=float)
    of_a, log_b = pt.log(a) - binet(a + 1.0), pt.log1p(a)
    if g is not None:
        a, of_a, log_b = a[g], of_a[g], log_b[g]
    return pt.add(of_a, rising(a, k, log_b), pt.as_tensor(1 - k))


FIRES = {
    "counts": (pt.gammaln(counts + a) - pt.gammaln(a), logarithm(a, counts.data)),
    "integers": (pt.gammaln(integers + a) - pt.gammaln(a), logarithm(a, counts.data)),
    "by group": (
        pt.gammaln(counts + rows) - pt.gammaln(rows),
        logarithm(pt.exp(v), counts.data, g),
    ),
    "zeros": (
        pt.gammaln(with_zeros + a) - pt.gammaln(a),
        (with_zeros.data > 0).astype(float) * logarithm(a, [1.0, 2, 1, 1, 5, 1000]),
    ),
    "one": (pt.gammaln(a + 1) - pt.gammaln(a), pt.log(a)),
    "one half": (pt.gammaln(0.5 * (a + 1)) - pt.gammaln(0.5 * a), logarithm(0.5 * a, 0.5)),
    "another sign": (pt.gammaln(a) - pt.gammaln(a + 7), -logarithm(a, 7.0)),
    "from another step": (pt.gammaln(a + 7) - pt.gammaln(a + 2), logarithm(a + 2.0, 5.0)),
    "far apart": (
        b - (pt.gammaln(a) - (s - (t - pt.gammaln(a + 7)))),
        b + s - t + logarithm(a, 7.0),
    ),
    "beta": (
        (pt.gammaln(counts + rows) + pt.gammaln(counts + others))
        - (pt.gammaln(rows) + pt.gammaln(others))
        - (pt.gammaln(2 * counts + rows + others) - pt.gammaln(rows + others)),
        pt.add(
            logarithm(pt.exp(v), counts.data, g),
            logarithm(pt.exp(w), counts.data, g),
            -logarithm(pt.exp(v) + pt.exp(w), 2 * counts.data, g),
        ),
    ),
    "table": (
        pt.gammaln(table + matrix) - pt.gammaln(matrix),
        logarithm(matrix, table.data),
    ),
}
REFUSES = {
    "may be negative": pt.gammaln(s + counts) - pt.gammaln(s),
    "a smaller step than 1/2": pt.gammaln(a + 0.25) - pt.gammaln(a),
    "some smaller than 1/2": pt.gammaln(a + np.array([1.0, 0.25])) - pt.gammaln(a),
    "downwards": pt.gammaln(pt.exp(s) - 3) - pt.gammaln(pt.exp(s)),
    "infinite": pt.gammaln(a + np.array([1.0, np.inf])) - pt.gammaln(a),
    "nan": pt.gammaln(a + np.array([1.0, np.nan])) - pt.gammaln(a),
    "no constant": pt.gammaln(a + pt.exp(k)) - pt.gammaln(a),
    "a sum": pt.gammaln(a + 3) + pt.gammaln(a),
    "another multiple": pt.gammaln(2 * a + 3) - pt.gammaln(a),
    "another argument": pt.gammaln(b + 3) - pt.gammaln(a),
    "a weight": 2 * pt.gammaln(a + 3) - pt.gammaln(a),
    "an entry of its own for each row": pt.gammaln(counts + pt.exp(x)) - pt.gammaln(pt.exp(x)),
    "single precision": pt.gammaln(pt.exp(f) + np.float32(3)) - pt.gammaln(pt.exp(f)),
    "unknown length": pt.gammaln(pt.exp(pt.vector("open")) + 3)
    - pt.gammaln(pt.exp(pt.vector("open"))),
    "constants alone": pt.gammaln(counts + 2.0) - pt.gammaln(counts),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    before, after = FIRES[name]
    others = ["fastlogp_log_of_product"]
    found = pregrad(before, on=True, exclude=others)
    simplified = pregrad(found, on=False)
    assert sketch(simplified) == sketch(pregrad(after, on=False))
    assert sketch(pregrad(found, on=True, exclude=others)) == sketch(simplified)
    assert found.type == pregrad(before, on=False).type


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-12)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_terms_are_paired_once():
    """Two of three terms form a pair, and the third stays."""
    before = pt.gammaln(a + 5) + pt.gammaln(a + 3) - pt.gammaln(a)
    found = pregrad(before, on=True)
    names = [str(node.op) for node in pytensor.graph.traversal.applys_between([s], [found])]
    assert sum("ammaln" in name for name in names) == 1
    assert_same_value_and_gradient(before, VALUES, rtol=1e-12)


def test_long_chains_are_not_searched_to_the_end():
    """A deep argument is no sum that is looked through to its end."""
    deep = a
    for _ in range(60):
        deep = 0.5 * (deep + abs(t))
    out = pt.gammaln(deep + 3) - pt.gammaln(deep)
    assert_same_value_and_gradient(out, VALUES, rtol=1e-12)


def test_tables_of_open_lengths():
    """Their product is gathered from where they are as long as each other. Of others the rows read what both have."""
    u, v = pt.vector("u"), pt.vector("v")
    by_group = pt.exp(u)[g] * pt.exp(v)[g]
    out = (pt.gammaln(counts + by_group) - pt.gammaln(by_group)).sum()
    values = {u: np.array([0.1, 0.2, 0.3]), v: np.array([0.3, 0.2, 0.1, 5.0])}
    off, on = (value_and_gradient(out, values, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


STEPS = st.one_of(
    st.just(0.5), st.integers(1, 40), st.integers(1, 10**15), st.floats(0.5, 1e6)
).map(float)


@pytest.fixture(scope="module")
def risen():
    """Return the function of the logarithm of ``a`` and of ``k`` that a pair becomes, and its derivative by the first."""
    out = s + rising(a, k, pt.softplus(s)) - binet(a + 1.0) + (1 - k)
    return pytensor.function([s, k], [out, pytensor.grad(out, s)], mode=PYTHON)


@given(exponent=st.floats(-600, 600), step=STEPS)
def test_digits(risen, exponent, step):
    """Value and gradient are right to a few last digits, of more than there are in ``gammaln(a)``."""
    value, gradient = risen(exponent, step)
    with mpmath.workdps(50 + max(0, int(exponent / 2))):
        low, high = mpmath.exp(exponent), mpmath.exp(exponent) + step
        exact = mpmath.loggamma(high) - mpmath.loggamma(low)
        slope = low * (mpmath.psi(0, high) - mpmath.psi(0, low))
        error, error_of_slope = float(abs(value - exact)), float(abs(gradient - slope))
    size = float(abs(exact)) + abs(exponent) + step + 1
    assert error <= 4 * EPS * size
    assert error_of_slope <= 8 * EPS * max(float(slope), 1)


def test_limits_are_exact_where_upstream_overflows():
    """Upstream's value is -inf if ``a`` underflows, and nan if ``gammaln`` overflows."""
    out = pt.gammaln(counts + a) - pt.gammaln(a)
    tiny, huge = (value_and_gradient(out, {s: np.array(at)}, on=True)[0] for at in (-750.0, 705.0))
    np.testing.assert_allclose(tiny, -750 + gammaln(counts.data), rtol=1e-15)
    np.testing.assert_allclose(huge, 705 * counts.data, rtol=1e-15)


def test_second_derivatives_agree():
    out = (pt.gammaln(counts + rows) - pt.gammaln(rows)).sum()
    hessians = []
    for on in (False, True):
        [gradient] = pytensor.grad(pregrad(out, on=on), [v])
        hessian = pytensor.gradient.jacobian(gradient, v, vectorize=True)
        hessians.append(pytensor.function([v], hessian, mode=PYTHON)(VALUES[v]))
    np.testing.assert_allclose(*hessians, rtol=1e-11)


def test_digits_of_the_second_derivative():
    """For large arguments the difference of the trigamma functions has no correct digit."""
    at = pt.scalar("at")
    value = pt.log(at) + rising(at, k, pt.log1p(at)) - binet(at + 1.0) + (1 - k)
    slope = pytensor.grad(value, at)
    # With PyTensor's rules for quotients.
    mode = Mode(linker="py", optimizer="fast_run")
    curvature = pytensor.function([at, k], pytensor.grad(slope, at), mode=mode)
    for low in (0.0625, 0.5, 1.25, 3.0, 1e3, 1e8, 1e12, 2.0**53, 1e17, 1e100, 1e200):
        for step in (0.5, 2.0, 100.0, 1e15, 1e300):
            with mpmath.workdps(50 + int(2 * np.log10(low + 1))):
                exact = mpmath.psi(1, mpmath.mpf(low) + step) - mpmath.psi(1, low)
            found = curvature(low, step)
            np.testing.assert_allclose(found, float(exact), rtol=16 * EPS, err_msg=f"{low} {step}")


def test_gradient_by_the_step_is_digamma():
    """The Op has it, although no rule makes a step that is not constant."""
    out = rising(a, k, pt.log1p(a)) - binet(a + 1.0) - k
    by_k = pytensor.function([s, k], pytensor.grad(out, k), mode=PYTHON)
    expected = float(mpmath.psi(0, mpmath.exp(0.7) + 2.5))
    np.testing.assert_allclose(by_k(0.7, 2.5), expected, rtol=1e-14)
