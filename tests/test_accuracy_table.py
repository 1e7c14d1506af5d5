"""The densities of the accuracy table are as accurate as the page says."""

import pytest

from benchmarks import accuracy


@pytest.mark.parametrize("density", accuracy.DENSITIES, ids=lambda density: density.title)
def test_densities_are_more_accurate_with_the_plugin(density):
    (off, off_gradient), (on, on_gradient) = (accuracy.errors(density, x) for x in ("off", "on"))
    assert on < 1e-14 < 1e-9 < off
    assert on_gradient < 1e-3 < 1 < off_gradient


def test_page_has_a_row_for_each_density():
    text = accuracy.PAGE.read_text().partition(f"<!-- {accuracy.MARKER}: begin -->")[2]
    assert all(f"| {density.title} |" in text for density in accuracy.DENSITIES)
