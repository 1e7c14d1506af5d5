"""The error bounds of the table hold against mpmath, and the page shows the measured errors."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS
from tests.kernel.accuracy import (
    PAGE,
    POINTS,
    REFERENCES,
    as_markdown,
    evaluate,
    measure,
    neighbors,
    points,
    table_of,
)
from tests.slices import examples

MONOTONE = [row.name for row in FUNCTIONS.values() if row.monotone]


@pytest.fixture(scope="module")
def maxima():
    found = [measure(row, POINTS) for row in FUNCTIONS.values()]
    print(as_markdown(found))
    return found


def test_every_function_has_a_reference():
    assert set(REFERENCES) == set(FUNCTIONS)


@pytest.mark.parametrize("row", FUNCTIONS.values(), ids=lambda row: row.name)
def test_errors_are_within_the_bounds_of_the_table(row):
    maximum = measure(row, examples(300, 100_000), seed=1)
    assert maximum.ulp <= row.ulp, maximum


@pytest.mark.slow
def test_the_page_shows_the_measured_maxima(maxima):
    assert table_of(PAGE.read_text()) == as_markdown(maxima)


@pytest.mark.parametrize("name", MONOTONE)
def test_monotone_between_neighbors_everywhere(name):
    x = np.concatenate(neighbors(points(FUNCTIONS[name], 200_000), 2))
    x.sort()
    result = evaluate(name, x[x >= FUNCTIONS[name].domain[0]])
    assert (result[1:] >= result[:-1]).all()


@pytest.mark.parametrize("name", MONOTONE)
def test_monotone_in_dense_windows(name):
    # Around the seams of the range reduction: multiples of log(2)/2 and of sqrt(1/2).
    seams = np.concatenate(
        [np.arange(-60, 60) * np.log(2) / 2, 2.0 ** np.arange(-30, 30) * 0.5**0.5]
    )
    for seam in seams[seams > FUNCTIONS[name].domain[0]]:
        x = seam + np.arange(-500, 500) * np.spacing(abs(seam))
        result = evaluate(name, x)
        assert (result[1:] >= result[:-1]).all(), seam


def test_exp_underflows_gradually():
    x = np.linspace(-745.2, -708.0, 5_000)
    result = evaluate("exp", x)
    assert_array_equal(result == 0, x < -745.1332191019412)
    assert np.abs(result - np.exp(x)).max() <= 5e-324
