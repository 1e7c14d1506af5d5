"""The functions in Numba: any width gives the same bits, with fast-math flags around or without."""

from itertools import product

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from numpy.testing import assert_array_equal

from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.accuracy import arguments, evaluate
from tests.kernel.vecmath_intrinsic import apply

WIDTHS = (1, 2, 3, 8, 64)
# What PyTensor compiles with, and all flags at once.
FASTMATH = ({"arcp", "contract", "afn", "reassoc", "nsz"}, True)


def bits(x):
    """Return the bits, with one nan in place of all."""
    return np.where(np.isnan(x), np.nan, x).view(np.int64)


@pytest.fixture(scope="module")
def columns():
    """Return 1003 columns of arguments for a function: every width leaves a partial vector."""
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1.0, 1e308, -1e308]

    def of(name):
        row = FUNCTIONS[name]
        special = np.array(list(product(edges, repeat=row.n_arguments))).T
        x, n = arguments(row, 2_000), 1003 - special.shape[1]
        return np.hstack([special, np.random.default_rng(0).choice(x, n, axis=1)])

    return of


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_do_not_depend_on_the_width(name, columns):
    x = columns(name)
    expected = bits(evaluate(name, x))
    for width in WIDTHS:
        assert_array_equal(bits(evaluate(name, x, width)), expected, f"width {width}")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("fastmath", FASTMATH, ids=["pytensor", "all"])
def test_bits_do_not_depend_on_the_flags_of_the_caller(name, fastmath, columns):
    f = apply(name)

    @numba.njit(fastmath=fastmath)
    def surrounded(x, out):
        shifted = np.empty_like(x)
        for i in range(x.size):
            shifted[i] = x[i] * 2.0
        f(shifted, out)
        for i in range(out.size):
            out[i] = out[i] * 2.0

    x = columns(name)
    halves = x[:, np.isfinite(x).all(axis=0)] / 2
    out = np.empty(halves.shape[1])
    surrounded(halves.ravel(), out)
    with np.errstate(over="ignore"):
        expected = 2 * evaluate(name, 2 * halves)
    finite = np.isfinite(out)
    assert_array_equal(bits(out)[finite], bits(expected)[finite])


@pytest.mark.parametrize("name", SHARED)
def test_shared_functions_have_the_bits_of_the_single_ones(name):
    results = SHARED[name].results
    x = np.random.default_rng(0).normal(scale=20, size=1003)
    out = np.empty((len(results), x.size))
    apply(name)(x, out)
    for row, result in zip(out, results):
        assert_array_equal(bits(row), bits(evaluate(result, x)))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
def test_every_length_and_nothing_past_the_end(n):
    x, out = np.linspace(-1, 1, n), np.full(n + 8, 7.0)
    apply("exp")(x, out[:n])
    np.testing.assert_allclose(out[:n], np.exp(x), rtol=1e-15)
    assert (out[n:] == 7).all()


def test_output_may_alias_the_input():
    x = np.linspace(-1, 1, 37)
    expected = evaluate("exp", x)
    apply("exp")(x, x)
    assert_array_equal(x, expected)


def test_default_width_is_two_native_vectors():
    assert default_width() in (4, 8, 16)
    assert apply("exp") is not apply("exp", 1)


def test_bad_input_is_refused_in_one_line():
    x = np.ones(4)
    with pytest.raises(ValueError, match="no vector function 'exq'"):
        apply("exq")
    with pytest.raises(ValueError, match="width 65 is not from 1 to 64"):
        apply("exp", 65)
    with pytest.raises(ValueError, match="one row for each"):
        apply("exp")(x, np.ones(3))
    with pytest.raises(TypingError, match="C-contiguous float64"):
        apply("exp")(x.astype(np.float32), x)
    with pytest.raises(TypingError, match="C-contiguous float64"):
        apply("exp")(x[::2], x[:2])
