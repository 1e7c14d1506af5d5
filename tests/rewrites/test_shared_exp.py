"""Softplus and logistic functions of one number share one exponential in what no kernel takes."""

import mpmath as mp
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.compiled.shared_exp import NAME, with_shared_exp

MODE = get_mode("NUMBA").excluding("fastlogp_fused_kernel")
FUNCTIONS = {
    "softplus": pt.softplus,
    "softplus of minus": lambda x: pt.softplus(-x),
    "sigmoid": pt.sigmoid,
    "sigmoid of minus": lambda x: pt.sigmoid(-x),
    "exp": pt.exp,
    "exp of minus": lambda x: pt.exp(-x),
}
EXACT = {
    "softplus": lambda x: max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x))),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "exp": mp.exp,
}
THRESHOLDS = [0.0, 1e-300, 1e-16, 1e-8, 1e-4, 0.5, 1.0, 18.0, 33.3, 36.7, 37.0, 40.0, 700.0, 708.3]


def scalar_functions(dtype="float64"):
    """Return a number and the functions of it and of its negative, by name."""
    x = ps.get_scalar_type(dtype)("x")
    scalar = {"softplus": psm.softplus, "sigmoid": psm.sigmoid, "exp": ps.exp}
    functions = {name: f(x) for name, f in scalar.items()}
    return x, functions | {f"{name} of minus": f(-x) for name, f in scalar.items()}


def shared(*names, dtype="float64"):
    x, functions = scalar_functions(dtype)
    return with_shared_exp(ps.Composite([x], [functions[name] for name in names]))


def count(composite, scalar_op):
    return sum(isinstance(node.op, scalar_op) for node in composite.fgraph.apply_nodes)


FIRES = [
    ("softplus", "sigmoid"),
    ("softplus", "softplus of minus"),
    ("sigmoid", "sigmoid of minus"),
    ("softplus of minus", "sigmoid", "exp"),
    tuple(FUNCTIONS),
]
REFUSES = [
    ("softplus",),
    ("sigmoid",),
    ("exp", "exp of minus"),
    ("softplus", "exp"),
    ("sigmoid", "exp of minus"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("names", FIRES, ids=" and ".join)
def test_one_exponential_is_left(names, dtype):
    composite = shared(*names, dtype=dtype)
    assert count(composite, ps.Exp) == 1
    assert count(composite, psm.Softplus | psm.Sigmoid) == 0
    assert [out.type.dtype for out in composite.outputs] == [dtype] * len(names)
    assert with_shared_exp(composite) is None


@pytest.mark.parametrize("names", REFUSES, ids=" and ".join)
def test_refuses(names):
    assert shared(*names) is None


def test_refuses_different_numbers_and_integers():
    x, y, n = ps.float64("x"), ps.float64("y"), ps.int64("n")
    assert with_shared_exp(ps.Composite([x, y], [psm.softplus(x), psm.sigmoid(y)])) is None
    assert with_shared_exp(ps.Composite([n], [psm.softplus(n), psm.sigmoid(n)])) is None


def test_functions_of_functions():
    x = ps.float64("x")
    inner = psm.softplus(x)
    outputs = [psm.softplus(inner), psm.sigmoid(inner), psm.sigmoid(x)]
    composite = with_shared_exp(ps.Composite([x], outputs))
    assert count(composite, ps.Exp) == 2
    assert count(composite, psm.Softplus | psm.Sigmoid) == 0
    value = 0.3 + np.log1p(np.exp(-0.3))
    expected = [np.log1p(np.exp(value)), 1 / (1 + np.exp(-value)), 1 / (1 + np.exp(-0.3))]
    found = composite(*[ps.ScalarConstant(ps.float64, np.float64(0.3))], return_list=True)
    np.testing.assert_allclose([out.eval() for out in found], expected, rtol=1e-15)


@pytest.fixture(scope="module", params=["float64", "float32"])
def compiled(request):
    """All functions of a vector in one loop, without the rewrite and with it."""
    x = pt.vector("x", dtype=request.param)
    outputs = [f(x) for f in FUNCTIONS.values()]
    functions = {}
    for on in (False, True):
        with switched(on):
            functions[on] = pytensor.function([x], outputs, mode=MODE)
    return request.param, functions


def values_by_name(compiled, x, *, on):
    dtype, functions = compiled
    return dict(zip(FUNCTIONS, functions[on](np.array(x, dtype=dtype)), strict=True))


def test_the_compiled_graph_shares(compiled):
    _, functions = compiled
    counts = {}
    for on, function in functions.items():
        [node] = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, Elemwise)]
        counts[on] = [count(node.op.scalar_op, op) for op in (ps.Exp, psm.Softplus, psm.Sigmoid)]
    assert counts == {False: [2, 2, 2], True: [1, 0, 0]}


@pytest.mark.parametrize("name", EXACT)
def test_digits(compiled, name):
    dtype, _ = compiled
    largest = 709 if dtype == "float64" else 87
    rng = np.random.default_rng(5)
    thresholds = [x for x in THRESHOLDS if x < largest]
    x = np.r_[thresholds, rng.uniform(0, 40, 300), rng.uniform(0, largest, 100)].astype(dtype)
    x = np.r_[x, -x]
    with mp.workdps(40):
        exact = np.array([float(EXACT[name](mp.mpf(float(z)))) for z in x])
    eps = np.finfo(dtype).eps
    for found in (
        values_by_name(compiled, x, on=True)[name],
        values_by_name(compiled, -x, on=True)[f"{name} of minus"],
    ):
        np.testing.assert_allclose(found, exact, rtol=4 * eps, atol=np.finfo(dtype).tiny)


def test_limits(compiled):
    x = [-np.inf, -1e300, -750.0, -0.0, 0.0, 750.0, 1e300, np.inf, np.nan]
    off, on = (values_by_name(compiled, x, on=on) for on in (False, True))
    for name in FUNCTIONS:
        np.testing.assert_allclose(on[name], off[name], rtol=1e-6)


def test_excluded():
    x = pt.vector("x")
    mode = MODE.excluding(NAME)
    function = pytensor.function([x], [pt.softplus(x), pt.sigmoid(x)], mode=mode)
    [node] = [n for n in function.maker.fgraph.apply_nodes if isinstance(n.op, Elemwise)]
    assert count(node.op.scalar_op, psm.Softplus) == 1
