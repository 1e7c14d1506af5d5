"""Lengths that no type knows and that do not fit: rules about rows do not read past what upstream would have compared."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from pytensor.raise_op import CheckAndRaise

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.view.length_checks import LENGTH_CHECK, length_checks
from tests.rewrites.conftest import PYTHON, ops_of, pregrad

N = 200
RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(N, 3)), RNG.normal(size=N)
TABLE = RNG.normal(size=(50, 3))
GROUP = RNG.integers(0, 7, N)
COUNTS = RNG.integers(0, 3, size=(50, 3)).astype(float)
REPEATED = np.tile(np.arange(6.0).reshape(2, 3), (N // 2, 1))
LONG_TABLE = RNG.normal(size=(N, 2))
FEW = np.tile(np.arange(15), 10)
V, M = pt.vector, pt.matrix


def squares(mean):
    return ((Y - mean) ** 2).sum()


# Each with what is open, the shape that fits, and one that is too long.
CASES = {
    "a product": (V, lambda b: squares(X @ b), (3,), (4,)),
    "a product with a transpose": (V, lambda b: squares(b @ X.T), (3,), (4,)),
    "a sum of columns": (V, lambda b: squares((X * b).sum(axis=1)), (3,), (4,)),
    "beside groups": (V, lambda b: squares(b[:7][GROUP] + X @ b[7:]), (10,), (11,)),
    "columns of a table": (V, lambda b: ((TABLE - b) ** 2).sum(), (3,), (4,)),
    "rows of a table": (V, lambda b: ((TABLE - b[:, None]) ** 2).sum(), (50,), (51,)),
    "a function of columns": (V, lambda b: pt.softplus(np.round(TABLE) - b).sum(), (3,), (4,)),
    "slopes by group": (M, lambda b: squares((b[GROUP] * X).sum(axis=1)), (7, 3), (7, 4)),
    "several outcomes": (M, lambda b: ((TABLE - X[:50] @ b) ** 2).sum(), (3, 3), (4, 3)),
    "columns of several outcomes": (M, lambda b: ((TABLE - X[:50] @ b) ** 2).sum(), (3, 3), (3, 4)),
    "repeated": (V, lambda b: ((REPEATED - pt.alloc(b, N, 3)) ** 2).sum(), (3,), (4,)),
    "a function of what is repeated": (
        V,
        lambda b: pt.exp(-REPEATED * pt.alloc(b, N, 3)).sum(),
        (3,),
        (4,),
    ),
    "joined": (
        V,
        lambda b: pt.exp(pt.join(1, b[:, None], LONG_TABLE)[FEW]).sum(axis=0)[1],
        (N,),
        (N + 3,),
    ),
    "a costly function of few values": (
        V,
        lambda b: pt.exp(TABLE * pt.gammaln(COUNTS + pt.exp(b))).sum(),
        (3,),
        (4,),
    ),
}


def function_of(name, *, on):
    """Return a function from what is open to value and gradient, and the rules that fired."""
    kind, build, *_ = CASES[name]
    x = kind("x")
    with collected() as decisions:
        out = pregrad(build(x), on=on)
    outputs = [out, pytensor.grad(out, x)]
    fired = {decision.rule for decision in decisions if decision.fired}
    return pytensor.function([x], outputs, mode=PYTHON), fired


def point(shape):
    return np.linspace(0.1, 1, int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("name", CASES)
def test_what_fits_is_the_same(name):
    *_, shape, _ = CASES[name]
    off, on = (function_of(name, on=on)[0](point(shape)) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_what_is_too_long_or_too_short_raises(name):
    *_, shape, longer = CASES[name]
    shorter = tuple(2 * n - more for n, more in zip(shape, longer, strict=True))
    for on in (False, True):
        function, _ = function_of(name, on=on)
        for wrong in (longer, shorter):
            with pytest.raises(ValueError, match=r"."):
                function(point(wrong))


def test_rules_fire_nevertheless():
    fired = [function_of(name, on=True)[1] for name in CASES]
    rules = {f"fastlogp_{name}" for name in ("gaussian_rows", "compact_rows", "hoist_distinct")}
    assert all(each & rules for each in fired)
    assert rules <= set().union(*fired)


def test_nothing_is_compared_where_all_lengths_are_known():
    b = pt.vector("b", shape=(3,))
    assert length_checks(X @ b) == ()
    assert CheckAndRaise not in ops_of(pregrad(squares(X @ b), on=True))


def test_an_index_needs_no_comparison():
    a = pt.vector("a")
    assert length_checks(squares(a[GROUP])) == ()


def test_what_is_compared():
    b, c = pt.vector("b"), pt.vector("c")
    conditions = length_checks(pt.exp(b) + np.zeros(3), pt.dot(np.ones((4, 3)), c[:, None]))
    function = pytensor.function([b, c], conditions, mode=PYTHON)
    assert sorted(map(bool, function(np.ones(3), np.ones(4)))) == [False, True]
    assert all(function(np.ones(3), np.ones(3)))


def test_what_does_not_fit_raises():
    b = pt.vector("b")
    compared = LENGTH_CHECK(b, *length_checks(b + np.zeros(3)))
    with pytest.raises(ValueError, match="Incompatible lengths"):
        compared.eval({b: np.ones(2)}, mode=PYTHON)
