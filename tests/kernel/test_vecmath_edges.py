"""Special values: as NumPy and SciPy have them, signs of zero included."""

import numpy as np
import pytest
import scipy.special
from numpy.testing import assert_array_equal

from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS
from tests.kernel.accuracy import evaluate

INF, NAN, TINY, LARGEST = np.inf, np.nan, 5e-324, np.finfo(float).max
LN2 = 0.6931471805599453
INTEGERS = np.arange(1.0, 23.0)


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
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges(name):
    x, expected = np.array([*EDGES[name], (NAN, NAN)], dtype=float).T
    assert_same(evaluate(name, x), expected)


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh"])
def test_zeros_keep_their_sign(name):
    zeros = np.array([0.0, -0.0])
    assert_same(evaluate(name, zeros), zeros)


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
        ("psi", scipy.special.psi),
        ("trigamma", lambda x: scipy.special.polygamma(1, x)),
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


def test_powers_of_the_base_have_exact_logarithms():
    assert_array_equal(evaluate("log10", 10.0**INTEGERS), INTEGERS)
    exponents = np.arange(-1074.0, 1024.0)
    assert_array_equal(evaluate("log2", evaluate("exp2", exponents)), exponents)
