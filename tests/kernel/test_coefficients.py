"""The committed polynomials are what docs/coefficients.py derives."""

import importlib.util
from pathlib import Path

import mpmath as mp
import pytest

from pymc_fastlogp.kernel.vecmath import exponential, gamma, logarithm, polynomials

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def coefficients():
    spec = importlib.util.spec_from_file_location("coefficients", ROOT / "docs/coefficients.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_polynomials_are_reproduced(coefficients):
    assert coefficients.as_module() == Path(polynomials.__file__).read_text()


@pytest.mark.parametrize(
    ("high", "low", "exact"),
    [
        (exponential.LN2_HIGH, exponential.LN2_LOW, lambda: mp.log(2)),
        (logarithm.LOG10_2_HIGH, logarithm.LOG10_2_LOW, lambda: mp.log10(2)),
        (*logarithm.LOG2_E, lambda: 1 / mp.log(2)),
        (*logarithm.LOG10_E, lambda: 1 / mp.log(10)),
        (gamma.STIRLING_CONSTANT, 0.0, lambda: (mp.log(2 * mp.pi) - 1) / 2),
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
