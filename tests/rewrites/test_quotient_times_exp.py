"""``(a + b / exp(x)) * exp(x)`` becomes ``a * exp(x) + b``, finite also where the exponential underflows."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.traversal import ancestors

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.scalars.quotient_times_exp import local_quotient_times_exp
from tests.rewrites.conftest import pregrad, sketch

PYTHON = Mode(
    linker="py", optimizer=get_mode("NUMBA").excluding("fusion", "inplace", "numba").optimizer
)

a, b, c, d, x = (pt.scalar(name) for name in "abcdx")
m = pt.exp(x)
rows, v = pt.vector("rows", shape=(4,)), pt.vector("v", shape=(4,))
f = pt.fscalar("f")

both = a + d + pt.sqr(c)
BOTH = "Add(Sqr(c), a, d)"
FIRES = {
    "sum": ((both + b / m) * m, f"Add(Mul({BOTH}, Exp(x)), b)"),
    "negative quotient": ((both - b / m) * m, "Add(Mul(Add(Add(a, d), Sqr(c)), Exp(x)), Neg(b))"),
    "another factor": (c * (both + b / m) * m, f"Add(Mul({BOTH}, Exp(x), c), Mul(b, c))"),
    "rows": ((both + rows / pt.exp(v)) * pt.exp(v), f"Add(Mul({BOTH}, Exp(v)), rows)"),
    "one rate of all rows": (
        (rows + both + b / pt.expand_dims(m, 0)) * pt.expand_dims(m, 0),
        "Add(Mul(Add(Sqr(c), a, d, rows), Exp(x)), b)",
    ),
}
REFUSES = {
    "two terms, which upstream cancels": (a + b / m) * m,
    "two quotients, which it cancels, too": (both + b / m + c / m) * m,
    "no exponential": (both + b / c) * c,
    "another exponential": (both + b / pt.exp(c)) * m,
    "quotient the other way round": (both + m / b) * m,
    "square": (both + b / pt.sqr(m)) * m,
    "no other term": (b / m + c / m) * m,
    "sum that others read": (both + b / m) * m + pt.sqr(both + b / m),
}


@pytest.mark.parametrize("name", FIRES)
def test_does_not_divide(name):
    out, expected = FIRES[name]
    found = pregrad(out, on=True)
    assert sketch(found) == expected
    assert found.type == out.type
    assert "True_div" in sketch(pregrad(out, on=False))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    off, on = (sketch(pregrad(REFUSES[name], on=on)) for on in (False, True))
    assert off == on


def test_exponential_that_occurs_twice_is_cancelled_once():
    """The rule itself, since PyTensor makes a square of the two."""
    graph = FunctionGraph([a, b, x], [pt.mul(a + b / m, m, m)], clone=True)
    in2out(local_quotient_times_exp).rewrite(graph)
    [found] = graph.outputs
    assert "True_div" not in sketch(found)
    value = pytensor.function(graph.inputs, found, mode=PYTHON)(2.0, 3.0, 0.5)
    np.testing.assert_allclose(value, 2 * np.exp(1) + 3 * np.exp(0.5), rtol=1e-14)


def test_dtype_is_kept():
    narrow = (f + pt.sqr(f) + pt.sin(f) + f / pt.exp(f)) * pt.exp(f)
    assert pregrad(narrow, on=True).type == narrow.type
    assert "True_div" not in sketch(pregrad(narrow, on=True))


def evaluated(out, values, *, on):
    inputs = [i for i in values if i in set(ancestors([out]))]
    with switched(on):
        function = pytensor.function(inputs, out, mode=PYTHON)
    with np.errstate(all="ignore"):
        return function(*(values[i] for i in inputs))


@pytest.mark.parametrize("exponent", [-700.0, -30.0, 0.3, 700.0, 720.0])
@pytest.mark.parametrize("name", FIRES)
def test_value_equals_upstreams_without_underflow(name, exponent):
    numbers = np.array([3.0, 0.0, -2.5, 7.0])
    values = {
        a: -8.0,
        b: 20.0,
        c: 0.7,
        d: -3.0,
        x: exponent,
        v: np.full(4, exponent),
        rows: numbers,
    }
    off, on = (evaluated(FIRES[name][0], values, on=on) for on in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-14, atol=0)


@pytest.mark.parametrize("exponent", [-740.0, -744.0, -746.0, -1e4, -np.inf])
def test_limit_where_the_exponential_underflows(exponent):
    values = {a: -8.0, b: 20.0, c: 0.0, d: 1.0, x: exponent}
    off, on = (evaluated(FIRES["sum"][0], values, on=on) for on in (False, True))
    assert not np.isfinite(off)
    exact = 20 - 7 * mpmath.exp(exponent)
    assert on == float(exact)


@pytest.mark.parametrize("exponent", [0.3, -300.0, -720.0, -760.0, -1e5])
def test_gradient_of_a_poisson_rate(exponent):
    """Upstream's gradient of this likelihood is NaN for exponents below -745."""
    seen = np.arange(1000) % 5
    with pm.Model() as model:
        pm.Poisson("y", pm.Exponential("rate"), observed=seen)
    [value] = model.value_vars
    for outputs in ([model.dlogp()], [model.logp(), model.dlogp()]):
        with switched(True):
            function = pytensor.function([value], outputs, mode=PYTHON)
        [*_, gradient] = function(exponent)
        exact = seen.sum() + 1 - (len(seen) + 1) * mpmath.exp(exponent)
        np.testing.assert_allclose(gradient, [float(exact)], rtol=1e-14)


def test_whole_model_agrees():
    with pm.Model() as model:
        pm.Poisson("y", pm.Exponential("rate"), observed=np.arange(1000) % 5)
    assert pymc_fastlogp.verify(model)
