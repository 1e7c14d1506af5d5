"""sin, cos and tan where the range reduction is hardest: next to multiples of pi/2, and huge."""

import mpmath as mp
import numpy as np
import pytest

from pymc_fastlogp.kernel.vecmath.range_reduction import HUGE
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS
from tests.kernel.accuracy import errors, evaluate

NAMES = ("sin", "cos", "tan")
# Enough for the quotient of the largest double and pi/2.
BITS = 1400


def nearest_to_a_multiple(exponent):
    """Return doubles ``m 2**exponent`` closest to a multiple of pi/2, by the continued fraction."""
    found = []
    with mp.workprec(BITS):
        rest = mp.ldexp(2 / mp.pi, exponent)
        previous, m = 1, 0
        while m < 2**53:
            if m >= 2**52:
                found.append(float(mp.ldexp(m, exponent)))
            whole = int(rest)
            previous, m = m, whole * m + previous
            rest = 1 / (rest - whole)
    return found


@pytest.fixture(scope="module")
def hard():
    """Return the doubles next to multiples of pi/2: of small ones, and the closest of each exponent."""
    with mp.workprec(BITS):
        multiples = [float(k * mp.pi / 2) for k in (*range(1, 200), *range(2**29, 2**29 + 200))]
    closest = [x for exponent in range(-52, 972) for x in nearest_to_a_multiple(exponent)]
    x = np.array([*multiples, *closest])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("name", NAMES)
def test_errors_next_to_multiples_of_half_pi(name, hard):
    assert hard.size > 1_000
    assert (np.abs(hard) < HUGE).any()
    assert np.abs(hard).max() > 1e300
    found = evaluate(name, hard)
    assert errors(FUNCTIONS[name], hard[np.newaxis], found).max() <= FUNCTIONS[name].ulp


@pytest.mark.parametrize("name", NAMES)
def test_a_huge_lane_does_not_change_the_others(name):
    x = np.linspace(-100, 100, 64)
    expected = evaluate(name, x)
    x[5] = 1e300
    result = evaluate(name, x)
    others = np.arange(x.size) != 5
    np.testing.assert_array_equal(result[others], expected[others])
    found = evaluate(name, x[[5]])
    assert errors(FUNCTIONS[name], x[np.newaxis, [5]], found).max() <= FUNCTIONS[name].ulp
