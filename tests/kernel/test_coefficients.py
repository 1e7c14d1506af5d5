"""The committed polynomials are what docs/coefficients.py derives."""

import importlib
from pathlib import Path

import mpmath as mp
import pytest

from pymc_fastlogp.kernel.vecmath import (
    compensated,
    erf,
    exponential,
    gamma_positive,
    inverse_trigonometric,
    logarithm,
    ndtr,
    payne_hanek,
    polynomials,
    range_reduction,
    table_logarithm,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def coefficients():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        yield importlib.import_module("coefficients")


@pytest.mark.slow
def test_committed_polynomials_are_reproduced(coefficients):
    assert coefficients.as_module() == Path(polynomials.__file__).read_text()


@pytest.mark.parametrize(
    ("high", "low", "exact"),
    [
        (exponential.LN2_HIGH, exponential.LN2_LOW, lambda: mp.log(2)),
        (logarithm.LOG10_2_HIGH, logarithm.LOG10_2_LOW, lambda: mp.log10(2)),
        (*logarithm.LOG2_E, lambda: 1 / mp.log(2)),
        (*logarithm.LOG10_E, lambda: 1 / mp.log(10)),
        (*range_reduction.HALF_PI[:2], lambda: mp.pi / 2),
        (range_reduction.TWO_OVER_PI, 0.0, lambda: 2 / mp.pi),
        (inverse_trigonometric.TAN_PI_8, 0.0, lambda: mp.tan(mp.pi / 8)),
        (table_logarithm.LN2, 0.0, lambda: mp.log(2)),
        (gamma_positive.STIRLING_CONSTANT, 0.0, lambda: (mp.log(2 * mp.pi) - 1) / 2),
        (*compensated.THIRD, lambda: mp.mpf(1) / 3),
        (*erf.ERFCX_CONSTANTS.limit, lambda: 1 / mp.sqrt(mp.pi)),
        (*erf.AT_ZERO, lambda: 9 - 3 / mp.sqrt(mp.pi)),
        (*ndtr.NORMAL_CONSTANTS.shift, lambda: 3 * mp.sqrt(2)),
        (*ndtr.NORMAL_CONSTANTS.limit, lambda: 1 / mp.sqrt(2 * mp.pi)),
    ],
)
def test_constants_are_the_nearest_doubles(high, low, exact):
    with mp.workdps(60):
        assert low == (float(exact() - high) if low else 0.0)
        assert low or high == float(exact())


@pytest.mark.parametrize("high", [exponential.LN2_HIGH, logarithm.LOG10_2_HIGH])
def test_exponents_times_leading_parts_are_exact(high):
    # Every exponent has 11 bits at most, and a double 53.
    numerator, _ = high.as_integer_ratio()
    assert numerator.bit_length() + 11 <= 53


def test_the_digits_of_two_over_pi():
    with mp.workprec(2 * payne_hanek.TWO_OVER_PI_BITS):
        assert int(mp.ldexp(2 / mp.pi, payne_hanek.TWO_OVER_PI_BITS)) == payne_hanek.TWO_OVER_PI
        assert (
            float(mp.pi / 2 - sum(map(mp.mpf, range_reduction.HALF_PI[:2])))
            == range_reduction.HALF_PI[2]
        )
