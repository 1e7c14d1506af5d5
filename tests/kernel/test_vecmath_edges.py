"""Special values agree with NumPy and SciPy, including the sign of zero."""

from functools import partial

import mpmath
import numpy as np
import pytest
import scipy.special
from llvmlite import ir
from numpy.testing import assert_array_equal

from pymc_fastlogp.kernel.llvm import F64, I64
from pymc_fastlogp.kernel.vecmath.power import (
    HALF_EXPONENTS,
    half_integer_power,
    integer_power,
    power,
)
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, Function
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers
from tests.kernel.accuracy import REFERENCES, evaluate, measure

INF, NAN, TINY, LARGEST = np.inf, np.nan, 5e-324, np.finfo(float).max
LN2 = 0.6931471805599453
HALF_PI = np.pi / 2
INTEGERS = np.arange(1.0, 23.0)
FUNCTION_TYPE = ir.FunctionType(ir.VoidType(), [ir.VectorType(F64, 2)])


def assert_same(result, expected):
    """Assert equality, with nan equal to nan and 0 not equal to -0."""
    assert_array_equal(result, expected)
    numbers = ~np.isnan(expected)
    assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])


EDGES = {
    "exp": (
        *((0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (TINY, 1), (1e308, INF), (-1e308, 0)),
        *((709.782712893384, 1.7976931348622732e308), (709.7827128933841, INF)),
        *((-745.1332191019411, TINY), (-745.1332191019412, 0)),
    ),
    "exp2": (
        *((0.0, 1), (1.0, 2), (-1.0, 0.5), (1023.0, 2.0**1023), (1024.0, INF), (INF, INF)),
        *((-1022.0, 2.0**-1022), (-1074.0, TINY), (-1075.0, 0), (-1076.0, 0), (-INF, 0)),
    ),
    "expm1": (
        *((INF, INF), (-INF, -1), (TINY, TINY), (-TINY, -TINY), (1e-310, 1e-310)),
        *((-1e-310, -1e-310), (-50.0, -1), (-1e308, -1), (709.7827128933841, INF)),
    ),
    "log": (
        *((1.0, 0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (-TINY, NAN), (INF, INF), (-INF, NAN)),
        *((TINY, -744.4400719213812), (LARGEST, 709.782712893384)),
    ),
    "log1p": (
        *((-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN), (TINY, TINY), (-TINY, -TINY)),
        (LARGEST, 709.782712893384),
    ),
    "log2": (
        *((1.0, 0), (0.0, -INF), (-1.0, NAN), (INF, INF), (TINY, -1074)),
        *((2.0**-1022, -1022), (8.0, 3)),
    ),
    "log10": ((1.0, 0), (0.0, -INF), (-1.0, NAN), (INF, INF), (10.0, 1), (1e22, 22)),
    "sigmoid": (
        *((0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (1e308, 1), (-1e308, 0)),
        *((TINY, 0.5), (40.0, 1)),
    ),
    "softplus": (
        *((0.0, LN2), (INF, INF), (-INF, 0), (1e308, 1e308), (-1e308, 0), (LARGEST, LARGEST)),
    ),
    "log_sigmoid": ((0.0, -LN2), (-INF, -INF), (INF, -0.0), (1e308, -0.0), (-1e308, -1e308)),
    "log1mexp": (
        *((0.0, -INF), (-0.0, -INF), (1.0, NAN), (TINY, NAN), (INF, NAN), (-INF, -0.0)),
        *((-TINY, -744.4400719213812), (-1e308, -0.0)),
    ),
    "tanh": (
        *((INF, 1), (-INF, -1), (1e308, 1), (-20.0, -1), (TINY, TINY), (-TINY, -TINY)),
        (1e-310, 1e-310),
    ),
    "reciprocal": ((0.0, INF), (-0.0, -INF), (INF, 0), (-INF, -0.0), (1.0, 1), (TINY, INF)),
    "sqrt": (
        *((0.0, 0), (-0.0, -0.0), (4.0, 2), (INF, INF), (-1.0, NAN), (-TINY, NAN), (-INF, NAN)),
        *((TINY, 2.0**-537), (LARGEST, 1.3407807929942596e154)),
    ),
    "sin": (
        *((0.0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (TINY, TINY), (-1e-310, -1e-310)),
        *((HALF_PI, 1), (1e22, -0.8522008497671888), (-1e22, 0.8522008497671888)),
        *((np.pi, 1.2246467991473532e-16), (LARGEST, 0.004961954789184062)),
    ),
    "cos": (
        *((0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (TINY, 1), (np.pi, -1), (-np.pi, -1)),
        *((HALF_PI, 6.123233995736766e-17), (1e22, 0.523214785395139)),
        (6381956970095103 * 2.0**797, -4.6871659242546277e-19),
    ),
    "tan": (
        *((0.0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (TINY, TINY), (-1e-310, -1e-310)),
        *((HALF_PI, 1.633123935319537e16), (-HALF_PI, -1.633123935319537e16)),
    ),
    "arcsin": (
        *((0.0, 0), (-0.0, -0.0), (1.0, HALF_PI), (-1.0, -HALF_PI), (INF, NAN), (-INF, NAN)),
        *((np.nextafter(1, 2), NAN), (TINY, TINY), (-1e-310, -1e-310)),
    ),
    "arccos": (
        *((0.0, HALF_PI), (-0.0, HALF_PI), (1.0, 0), (-1.0, np.pi), (INF, NAN), (-INF, NAN)),
        *((np.nextafter(-1, -2), NAN), (TINY, HALF_PI), (0.5, 1.0471975511965979)),
    ),
    "arctan": (
        *((0.0, 0), (-0.0, -0.0), (INF, HALF_PI), (-INF, -HALF_PI), (1.0, np.pi / 4)),
        *((LARGEST, HALF_PI), (-1e300, -HALF_PI), (TINY, TINY), (-1e-310, -1e-310)),
    ),
    "arctan2": (
        *((0.0, 1.0, 0), (-0.0, 1.0, -0.0), (0.0, -1.0, np.pi), (-0.0, -1.0, -np.pi)),
        *((0.0, -0.0, np.pi), (1.0, 0.0, HALF_PI), (-1.0, -0.0, -HALF_PI), (INF, NAN, NAN)),
        *((INF, INF, np.pi / 4), (INF, -INF, 3 * np.pi / 4), (1.0, INF, 0), (-1.0, -INF, -np.pi)),
        *((LARGEST, LARGEST, np.pi / 4), (TINY, TINY, np.pi / 4), (TINY, 1.0, TINY)),
    ),
    "i0e": ((0.0, 1), (-0.0, 1), (TINY, 1), (INF, 0), (-INF, 0)),
    "i1e": (
        *((0.0, 0), (-0.0, -0.0), (INF, 0), (-INF, -0.0), (1e-310, 5e-311), (-1e-310, -5e-311)),
    ),
    "sinh": (
        *((0.0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (TINY, TINY), (-1e-310, -1e-310)),
        *((710.475860073944, INF), (-710.475860073944, -INF), (LARGEST, INF)),
    ),
    "cosh": (
        *((0.0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (TINY, 1), (710.475860073944, INF)),
        *((-710.475860073944, INF), (-LARGEST, INF)),
    ),
    "arcsinh": (
        *((0.0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (TINY, TINY), (-1e-310, -1e-310)),
        *((LARGEST, 710.475860073944), (-LARGEST, -710.475860073944)),
    ),
    "arccosh": (
        *((1.0, 0), (INF, INF), (-INF, NAN), (0.0, NAN), (-1.0, NAN), (LARGEST, 710.475860073944)),
        (np.nextafter(1, 0), NAN),
    ),
    "arctanh": (
        *((0.0, 0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (INF, NAN), (-INF, NAN), (2.0, NAN)),
        *((np.nextafter(-1, -2), NAN), (TINY, TINY), (-1e-310, -1e-310)),
    ),
    "gammaln": (
        *((1.0, 0), (2.0, 0), (0.0, INF), (-0.0, INF), (-1.0, INF), (-1e300, INF), (INF, INF)),
        *((-INF, INF), (TINY, 744.4400719213812), (-TINY, 744.4400719213812), (1e308, INF)),
    ),
    "psi": (
        *((0.0, -INF), (-0.0, INF), (-1.0, NAN), (-1e300, NAN), (INF, INF), (-INF, NAN)),
        *((TINY, -INF), (-TINY, INF), (-1e-20, 1e20)),
    ),
    "trigamma": (
        *((0.0, INF), (-0.0, INF), (-1.0, INF), (-1e300, INF), (INF, 0), (-INF, INF)),
        (TINY, INF),
    ),
    "erf": (
        *((0.0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (LARGEST, 1), (-6.0, -1), (TINY, TINY)),
        *((-TINY, -TINY), (1e-310, 1.1283791670955e-310), (0.5, 0.5204998778130465)),
    ),
    "erfc": (
        *((0.0, 1), (-0.0, 1), (INF, 0), (-INF, 2), (LARGEST, 0), (-LARGEST, 2), (-6.0, 2)),
        *((TINY, 1), (-TINY, 1), (27.2, 2 * TINY), (27.23, 0)),
    ),
    "erfcx": (
        *((0.0, 1), (-0.0, 1), (INF, 0), (-INF, INF), (-LARGEST, INF), (TINY, 1), (-TINY, 1)),
        *((-26.62873571375149, 1.7976931348622484e308), (-26.628735713751492, INF)),
        *((1e308, 5.64189583547756e-309), (LARGEST, 3.138408733985443e-309)),
    ),
    "erfinv": (
        *((0.0, 0), (-0.0, 0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (-2.0, NAN), (INF, NAN)),
        *((-INF, NAN), (np.nextafter(1, 2), NAN), (TINY, TINY), (-TINY, -TINY)),
        (0.5, 0.4769362762044699),
    ),
    "erfcinv": (
        *((1.0, -0.0), (0.0, INF), (-0.0, INF), (2.0, -INF), (3.0, NAN), (-1.0, NAN), (-TINY, NAN)),
        *((INF, NAN), (-INF, NAN), (0.5, 0.4769362762044699), (1.5, -0.4769362762044699)),
        *((2.0**-1022, 26.54325845425098), (TINY, 27.213293210812949)),
    ),
    "ndtr": (
        *((0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (LARGEST, 1), (-LARGEST, 0), (TINY, 0.5)),
        *((-38.48, TINY), (-38.5, 0), (9.0, 1)),
    ),
    "log_ndtr": (
        *((0.0, -LN2), (-0.0, -LN2), (INF, -0.0), (-INF, -INF), (LARGEST, -0.0), (TINY, -LN2)),
        *((-LARGEST, -INF), (38.48, -TINY), (38.5, -0.0), (-TINY, -LN2)),
        *((-1.8961503816218352e154, -1.7976931348623155e308), (-1.8961503816218355e154, -INF)),
    ),
    "pow": (
        *((2.0, 10.0, 1024), (2.0, -1074.0, TINY), (2.0, -1075.0, 0), (2.0, 1024.0, INF)),
        *((-2.0, 3.0, -8), (-2.0, 2.0, 4), (-8.0, 1 / 3, NAN), (9.0, 0.5, 3), (-TINY, 1.0, -TINY)),
        *((NAN, 0.0, 1), (1.0, NAN, 1), (NAN, 1.0, NAN), (2.0, NAN, NAN), (-1.0, 1e300, 1)),
        *((LARGEST, 1.0, LARGEST), (1e-310, 1.0, 1e-310), (3.0, 33.0, 3**33)),
        (-1.0, 2.0**53 - 1, -1),
    ),
    "logaddexp": (
        *((0.0, 0.0, LN2), (INF, INF, INF), (-INF, -INF, -INF), (INF, -INF, INF), (-INF, 1.0, 1)),
        *((2.0, -INF, 2), (INF, NAN, NAN), (NAN, INF, NAN), (1.0, NAN, NAN), (0.0, -745.0, TINY)),
        *((LARGEST, LARGEST, LARGEST), (LARGEST, -LARGEST, LARGEST), (-INF, INF, INF)),
    ),
    "softplus_sum": (
        *((0.0, -INF, LN2), (-INF, 0.0, LN2), (-INF, -INF, 0), (INF, -INF, INF), (-INF, INF, INF)),
        *((INF, INF, INF), (1.0, NAN, NAN), (NAN, INF, NAN), (LARGEST, LARGEST, INF)),
        *((LARGEST, -LARGEST, LARGEST), (-745.0, -INF, TINY), (-40.0, 40.0, 40)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_at_edges(name):
    nan = (NAN,) * (FUNCTIONS[name].n_arguments + 1)
    *x, expected = np.array([*EDGES[name], nan], dtype=float).T
    assert_same(evaluate(name, np.array(x)), expected)


HYPERBOLIC = ("sinh", "cosh", "arcsinh", "arccosh", "arctanh")
CROSSING_ZERO = ("expm1", "log1p", "tanh", "sqrt", "sin", "tan", "arcsin", "arctan", "sinh")


@pytest.mark.parametrize("name", [*CROSSING_ZERO, "arcsinh", "arctanh"])
def test_zeros_keep_their_sign(name):
    zeros = np.array([0.0, -0.0])
    assert_same(evaluate(name, zeros), zeros)


AS_NUMPY = ("reciprocal", "sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", *HYPERBOLIC)
SPECIAL = np.array([0.0, -0.0, INF, -INF, NAN, -1.0, -2.0, 1.0, 1e-310, -1e-310, 1e308, -1e308])


@pytest.mark.parametrize(
    ("name", "upstream"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("expm1", np.expm1),
        ("log", np.log),
        ("log1p", np.log1p),
        ("log2", np.log2),
        ("log10", np.log10),
        ("sigmoid", scipy.special.expit),
        ("log_sigmoid", scipy.special.log_expit),
        ("tanh", np.tanh),
        *((f, getattr(np, f)) for f in AS_NUMPY),
        ("psi", scipy.special.psi),
        ("trigamma", lambda x: scipy.special.polygamma(1, x)),
        *((f, getattr(scipy.special, f)) for f in ("erf", "erfc", "erfcx", "erfinv", "erfcinv")),
        *((f, getattr(scipy.special, f)) for f in ("ndtr", "log_ndtr")),
    ],
)
def test_kind_and_sign_of_the_result_are_as_upstream(name, upstream):
    with np.errstate(all="ignore"):
        expected = upstream(SPECIAL)
    result = evaluate(name, SPECIAL)
    for kind in (np.isnan, np.isposinf, np.isneginf, lambda y: y == 0):
        assert_array_equal(kind(result), kind(expected))
    numbers = ~np.isnan(expected)
    assert_array_equal(np.signbit(result)[numbers], np.signbit(expected)[numbers])


PAIRS = [
    ("pow", np.power),
    ("logaddexp", np.logaddexp),
    ("arctan2", np.arctan2),
    ("softplus_sum", lambda x, y: np.logaddexp(0.0, x) + np.logaddexp(0.0, y)),
]


@pytest.mark.parametrize(("name", "upstream"), PAIRS)
def test_special_pairs_are_as_upstream(name, upstream):
    edges = [*SPECIAL, 0.5, -0.5, 2.0, 3.0, -3.0, TINY, -TINY, 2.0**53, -(2.0**53) - 2, 1e19]
    x, y = (grid.ravel() for grid in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        expected = upstream(x, y)
    result = evaluate(name, np.array([x, y]))
    exact = ~np.isfinite(expected) | (expected == 0)
    assert_same(result[exact], expected[exact])
    np.testing.assert_allclose(result, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("n", [-100, -7, -3, -2, -1, 1, 2, 3, 4, 5, 31, 100])
def test_integer_powers_are_within_the_bound(n, monkeypatch):
    row = Function(f"power_{n}", partial(integer_power, n=n), None, (-LARGEST, LARGEST))
    monkeypatch.setitem(FUNCTIONS, row.name, row)
    monkeypatch.setitem(REFERENCES, row.name, lambda x: x**n)
    assert measure(row, 4_000).ulp <= row.ulp


@pytest.mark.parametrize("n", [-3, -2, -1, 0, 1, 2, 3, 4, 5])
def test_integer_powers_have_numpys_special_cases(n, monkeypatch):
    row = Function(f"power_{n}", partial(integer_power, n=n), None, (-LARGEST, LARGEST))
    monkeypatch.setitem(FUNCTIONS, row.name, row)
    with np.errstate(all="ignore"):
        expected = np.power(SPECIAL, n)
    assert_same(evaluate(row.name, SPECIAL), expected)


@pytest.mark.parametrize("n", HALF_EXPONENTS)
def test_half_integer_powers_agree_with_pow(n, monkeypatch):
    row = Function(f"power_{n}", partial(half_integer_power, n=n), None, (0.0, LARGEST))
    monkeypatch.setitem(FUNCTIONS, row.name, row)
    monkeypatch.setitem(REFERENCES, row.name, lambda x: mpmath.power(x, n))
    assert measure(row, 4_000).ulp <= row.ulp
    # Not NumPy's power, which is its root for 1/2, with other signs at -0.0 and -inf.
    general = evaluate("pow", np.array([SPECIAL, np.full_like(SPECIAL, n)]))
    result = evaluate(row.name, SPECIAL)
    is_limit = ~np.isfinite(general) | (general == 0)
    assert_same(result[is_limit], general[is_limit])
    np.testing.assert_allclose(result, general, rtol=5e-16)


@pytest.mark.parametrize("of_integers", [False, True])
def test_a_constant_small_integer_exponent_takes_multiplications(of_integers):
    builder = ir.IRBuilder(ir.Function(ir.Module(), FUNCTION_TYPE, "f").append_basic_block())
    x = Floats(builder, builder.function.args[0])
    three = Integers(builder, ir.Constant(ir.VectorType(I64, 2), [3, 3])).to_floats()
    power(x, three if of_integers else x.filled(3.0))
    assert {i.opname for i in builder.block.instructions} - {"sitofp"} == {"fmul"}


@pytest.mark.parametrize("exponent", [2.5, 17.0, INF, NAN])
def test_other_constant_exponents_use_the_logarithm(exponent, monkeypatch):
    name = f"power_{exponent}"
    row = Function(name, lambda x: power(x, x.filled(exponent)), None, (0.0, LARGEST))
    monkeypatch.setitem(FUNCTIONS, name, row)
    x = np.array([0.5, 1.0, 2.0, 3.0])
    expected = evaluate("pow", np.array([x, np.full_like(x, exponent)]))
    assert_same(evaluate(name, x), expected)


def test_powers_of_the_base_have_exact_logarithms():
    assert_array_equal(evaluate("log10", 10.0**INTEGERS), INTEGERS)
    exponents = np.arange(-1074.0, 1024.0)
    assert_array_equal(evaluate("log2", evaluate("exp2", exponents)), exponents)
