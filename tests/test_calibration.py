"""The comparison of posteriors finds a difference only between different posteriors."""

import json

import numpy as np
import pytest

from benchmarks import calibration, permutation

CHAINS, DRAWS, SCALARS = 12, 100, 40


@pytest.fixture(scope="module")
def chains():
    """Two sides of autocorrelated chains of correlated, heavy-tailed scalars, the same for both."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(2 * CHAINS, DRAWS, SCALARS)) + rng.normal(size=(2 * CHAINS, DRAWS, 1))
    for i in range(1, DRAWS):
        noise[:, i] = 0.5 * noise[:, i - 1] + np.sqrt(0.75) * noise[:, i]
    return np.sinh(2 * noise)


def p_values(draws):
    return [
        permutation.difference(*np.split(measure(draws), 2), level=0.01).p_value
        for measure in (permutation.location, permutation.scale)
    ]


def test_equal_posteriors_have_no_small_p_value(chains):
    assert min(p_values(chains)) > 0.05


def test_shifted_scalar_is_detected(chains):
    other = chains.copy()
    other[CHAINS:, :, 7] = np.sinh(np.arcsinh(other[CHAINS:, :, 7]) + 1.5)
    location, _ = p_values(other)
    assert location < 0.001


def test_rescaled_scalar_is_detected_by_scale_alone(chains):
    other = chains.copy()
    other[CHAINS:, :, 7] *= 8.0
    location, scale = p_values(other)
    assert scale < 0.001
    assert location > 0.05


def test_p_values_are_uniform_without_a_difference():
    """Exact, though the scalars are strongly correlated: a level of 0.1 is passed one time in ten."""
    rng = np.random.default_rng(6)
    found = [
        permutation.difference(
            *(rng.normal(size=(2, 6, 5)) + rng.normal(size=(2, 6, 1))), level=0.1
        )
        for _ in range(60)
    ]
    p = np.array([one.p_value for one in found])
    assert abs(p.mean() - 0.5) < 0.15
    assert 1 <= (p < 0.1).sum() <= 14


def test_a_detectable_difference_is_detected():
    """The formula for what would show, put to use: scalars alike, one of them shifted by it."""
    rng = np.random.default_rng(7)
    off, on = rng.normal(size=(2, 32, 20))
    shift = permutation.difference(off, on, level=0.01).detectable
    assert 0.5 < shift < 1.5  # a t of about 3.5, times sqrt(2 / 32)
    on[:, 3] += 1.5 * shift * np.sign((on - off)[:, 3].mean())
    assert permutation.difference(off, on, level=0.01).p_value < 0.01


def test_publishes_json_and_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- benchmark table: begin -->\nold\n<!-- benchmark table: end -->\nafter"
    )
    test = {"p_value": 0.5, "largest": 0.01, "detectable": 0.1}
    record = {
        "title": "a model",
        "scalars": 3,
        "chains": 8,
        "draws": 100,
        "worst_rhat": {"off": 1.001, "on": 1.002, "together": 1.003},
        "location": test,
        "scale": test | {"p_value": 1e-4},
    }
    results = {"date": "today", "versions": {"pymc": "6", "commit": "c"}, "models": [record]}
    calibration.publish(results, tmp_path / "results.json", page)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert "| a model | 3 | 8 of 100 draws | 1.001 / 1.002 / 1.003 |" in page.read_text()
    assert "old" not in page.read_text()
    assert calibration.is_different(record)
    assert not calibration.is_different(record | {"scale": test})


@pytest.mark.slow
@pytest.mark.parametrize("title", calibration.MODELS)
def test_posteriors_are_the_same(title):
    record = calibration.compare(title, calibration.SHORT)
    assert not calibration.is_different(record), record
    assert record["worst_rhat"]["together"] < 1.05
