"""Of two powers beside each other one is enough, to no fewer digits than upstream has."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Composite, Pow

import pymc_fastlogp
from benchmarks.compiled_graph import compiled_graph
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.rewrites.conftest import with_gradients

NAME = "fastlogp_neighboring_powers"
DATABASES = ["canonicalize", "stabilize", "specialize", "uncanonicalize", "numba"]
LENGTH = 5
# The least base that is known as positive, see `TINY` of the intervals.
LEAST = 2.0**-99

v = pt.vector("v", shape=(LENGTH,))
w = pt.vector("w", shape=(LENGTH,))
table = pt.matrix("table", shape=(LENGTH, LENGTH))
single = pt.vector("single", shape=(LENGTH,), dtype="float32")
s, t = pt.scalars("s", "t")

base = 1 + pt.sqr(v) / pt.exp(t)
wide = 1 + pt.sqr(table)
a = pt.exp(s)
by_row = pt.exp(w)

FIRES = {
    "below zero": [base**-a, base ** (-a - 1)],
    "above zero": [base**a, base ** (a + 1)],
    "a base that is small": [(0.25 + pt.sqr(v)) ** -a, (0.25 + pt.sqr(v)) ** (-1 - a)],
    "a number less": [base ** -(a + 0.5), base ** (-1.5 - a)],
    "a number subtracted": [base ** -(2.5 - pt.tanh(s)), base ** -(3.5 - pt.tanh(s))],
    "an exponent for each row": [base**-by_row, base ** (-by_row - 1)],
    "an exponent for each column of a matrix": [
        wide ** -by_row[None, :],
        wide ** (-1 - by_row)[None, :],
    ],
    "an exponent for each row of a matrix": [
        wide ** -by_row[:, None],
        wide ** -(1 + by_row[:, None]),
    ],
    "the gradient": [base**-a, pt.grad((base**-a).sum(), v)],
}
REFUSES = {
    "a base that may be zero": [pt.sqr(v) ** -a, pt.sqr(v) ** (-a - 1)],
    "a base that may be below zero": [v**-a, v ** (-a - 1)],
    "an exponent of either sign": [base**s, base ** (s - 1)],
    "exponents on both sides of zero": [base**a, base ** (a - 1)],
    "constant exponents": [base**-1.7, base**-2.7],
    "two apart": [base**-a, base ** (-a - 2)],
    "half apart": [base**-a, base ** (-a - 0.5)],
    "one alone": [base**-a, base ** (-pt.exp(t) - 1)],
    "of opposite sign": [base**a, base ** (-a - 1)],
    "other bases": [base**-a, (base + 1) ** (-a - 1)],
    "rows and columns": [wide ** -by_row[None, :], wide ** (-1 - by_row)[:, None]],
    "a product": [base ** (a + 1), base * a, base**s],
    "a base as exponent": [base**-a, (a + 0.1) ** base],
    "single precision": [
        (1 + pt.sqr(single)) ** -pt.exp(single),
        (1 + pt.sqr(single)) ** (-pt.exp(single) - 1),
    ],
}


def rewritten(outputs, *, on=True, exclude=()):
    """Return graphs after the rules for Numba, before fusion."""
    with switched(on):
        out = pt.concatenate([pt.flatten(out) for out in outputs])
        exclude = ["fastlogp_fused_kernel", *exclude]
        return rewrite_graph(out, include=DATABASES, exclude=exclude, clone=True)


def is_made_by(x, name):
    """Return whether an Op makes a variable, also one of a number that has left its array."""
    return x.owner is not None and name in str(x.owner.op)


def powers(out):
    """Return how many powers a graph has."""
    return sum(is_made_by(x, "Pow") for x in ancestors([out]))


@pytest.mark.parametrize("name", FIRES)
def test_fires(name):
    assert powers(rewritten(FIRES[name], on=False)) == 2
    assert powers(rewritten(FIRES[name])) == 1


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    expected = powers(rewritten(REFUSES[name], on=False))
    assert powers(rewritten(REFUSES[name])) == expected == 2


def test_is_excluded_by_name():
    assert powers(rewritten(FIRES["below zero"], exclude=[NAME])) == 2


@pytest.mark.parametrize(("steps", "left"), [(2, 1), (3, 2), (4, 2)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_no_power_is_made_of_one_that_was_made(steps, left, sign):
    """Else the roundings of the divisions would add up."""
    out = rewritten([base ** (sign * (a + k)) for k in range(steps)])
    assert powers(out) == left
    made = set(filter(_is_made_of_a_power, ancestors([out])))
    assert len(made) == steps - left
    assert not any(made.intersection(x.owner.inputs) for x in made)


def _is_made_of_a_power(x):
    return (is_made_by(x, "True_div") or is_made_by(x, "Mul")) and any(
        is_made_by(i, "Pow") for i in x.owner.inputs
    )


def test_powers_that_are_multiplied_are_one():
    assert powers(rewritten([base**-a * base ** (-a - 1)])) == 1


def functions(sign):
    """Return the power beside that of an exponent of a sign, off and on."""
    limits = (-np.inf, 0.0) if sign < 0 else (0.0, np.inf)
    x, p = pt.clip(v, LEAST, np.inf), pt.clip(w, *limits)
    outputs = [x**p, x ** (p + sign)]
    sides = []
    for on in (False, True):
        with switched(on):
            sides.append(pytensor.function([v, w], outputs, mode="NUMBA"))
    return sides


SIDES = {sign: functions(sign) for sign in (-1, 1)}


def count_in(function):
    """Return how many powers a compiled function has, within its nodes."""
    found = 0
    for node in function.maker.fgraph.toposort():
        inner = node.op.fgraph.toposort() if isinstance(node.op, FusedKernel) else [node]
        for each in inner:
            op = getattr(each.op, "scalar_op", None)
            nodes = op.fgraph.toposort() if isinstance(op, Composite) else []
            found += isinstance(op, Pow) + sum(isinstance(n.op, Pow) for n in nodes)
    return found


@pytest.mark.parametrize("sign", SIDES)
def test_compiled_functions_have_one_power(sign):
    assert [count_in(side) for side in SIDES[sign]] == [2, 1]


SUBNORMAL = 2.0**-1074


def error(found, x, p):
    """Return the error of a power in units: of itself, but not less than those of the subnormal numbers."""
    with mp.workdps(60):
        expected = mp.mpf(x) ** mp.mpf(p)
        unit = max(abs(expected) * mp.mpf(2) ** -52, mp.mpf(SUBNORMAL))
        return float(abs(mp.mpf(found) - expected) / unit)


def errors(side, sign, x, p):
    """Return the errors of the power beside ``p``; infinite ones are those of upstream."""
    found = np.array(
        [side(x[i : i + LENGTH], p[i : i + LENGTH])[1] for i in range(0, len(x), LENGTH)]
    )
    finite = np.isfinite(found.ravel())
    with mp.workdps(60):
        beside = [mp.mpf(float(q)) + sign for q in p]
    return np.array(
        [
            error(float(f), float(b), q) if ok else 0.0
            for f, b, q, ok in zip(found.ravel(), x, beside, finite, strict=True)
        ]
    )


BASES = {
    "next to one": lambda rng, n: 1 + rng.uniform(-1e-6, 1e-6, n),
    "of order one": lambda rng, n: rng.uniform(0.5, 4, n),
    "large": lambda rng, n: np.exp(rng.uniform(0, 300, n)),
    "small": lambda rng, n: np.exp(rng.uniform(np.log(LEAST), 0, n)),
}
EXPONENTS = {"tiny": (1e-300, 1e-3), "of order one": (0.05, 30), "large": (30, 1e4)}


@pytest.mark.parametrize("sign", SIDES)
@pytest.mark.parametrize("bases", BASES)
@pytest.mark.parametrize("exponents", EXPONENTS)
def test_error(sign, bases, exponents):
    """Never more than four times that of upstream, which rounds the exponent; and never more than of a power and a division."""
    rng = np.random.default_rng(0)
    n = 40 * LENGTH
    x = BASES[bases](rng, n)
    low, high = EXPONENTS[exponents]
    p = sign * np.exp(rng.uniform(np.log(low), np.log(high), n))
    off, on = (errors(side, sign, x, p).max() for side in SIDES[sign])
    assert on <= 4 * max(off, 0.5)
    assert on <= 1.6


@pytest.mark.parametrize("sign", SIDES)
def test_subnormal_powers(sign):
    """Powers next to the smallest number, which are made of what is larger, and of what is subnormal itself."""
    rng = np.random.default_rng(1)
    n = 40 * LENGTH
    x = np.exp(rng.uniform(0.01, 3, n))
    x = 1 / x if sign > 0 else x
    p = sign * rng.uniform(700, 750, n) / abs(np.log(x))
    off, on = (errors(side, sign, x, p).max() for side in SIDES[sign])
    assert on <= 4 * max(off, 0.5)
    assert on <= 1.6


EDGES = [LEAST, 0.5, np.nextafter(1, 0), 1.0, np.nextafter(1, 2), 2.0, 1e300, np.inf, np.nan]
AT = [0.0, 5e-324, 1e-320, 1e-17, 0.5, 1.0, 3.0, 1e3, 1e17, 1e300, np.inf, np.nan]


@pytest.mark.parametrize("sign", SIDES)
def test_edges(sign):
    pairs = [(x, sign * p) for x in EDGES for p in AT]
    pairs += [(1.0, 1.0)] * (-len(pairs) % LENGTH)
    x, p = np.array(pairs).T
    for i in range(0, len(x), LENGTH):
        off, on = (side(x[i : i + LENGTH], p[i : i + LENGTH]) for side in SIDES[sign])
        for expected, found in zip(off, on, strict=True):
            # Where the exponent is so large that one more is lost, upstream has the power itself.
            np.testing.assert_allclose(found, expected, rtol=1e-12)


finite = st.floats(LEAST, 1e300)


@given(x=finite, p=st.floats(0, 1e3), sign=st.sampled_from(sorted(SIDES)))
def test_any_point(x, p, sign):
    off, on = (side(np.full(LENGTH, x), np.full(LENGTH, sign * p))[1][0] for side in SIDES[sign])
    np.testing.assert_allclose(on, off, rtol=1e-12, atol=2 * SUBNORMAL)


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    given_ = [v, w, table, s, t]
    out = pt.concatenate([pt.flatten(out) for out in FIRES[name]]).sum()
    sides = [with_gradients(out, given_, on=on) for on in (False, True)]
    rng = np.random.default_rng(0)
    for _ in range(3):
        point = [rng.normal(size=x.type.shape) for x in given_]
        for expected, found in zip(*(side(*point) for side in sides), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_a_rational_quadratic_process_is_verified():
    with pm.Model() as model:
        cov = pm.gp.cov.RatQuad(1, alpha=pm.Gamma("alpha", 5, 2), ls=pm.Gamma("ls", 2, 0.75))
        gp = pm.gp.Marginal(cov_func=cov)
        points = np.linspace(0, 10, 40)[:, None]
        gp.marginal_likelihood("y", X=points, y=np.sin(points[:, 0]), sigma=pm.HalfNormal("sigma"))
    assert compiled_graph(model).fired[NAME] == 1
    assert pymc_fastlogp.verify(model).passed
