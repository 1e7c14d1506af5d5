"""Progress of many fits: counts, rate and remaining time, in a bar or in log lines."""

import logging

import pytest

from pymc_fastlogp.many import progress
from pymc_fastlogp.many.fit import Fit
from tests.many.conftest import data_set, fit_all

FITS = [
    Fit(0, was_stored=True),
    Fit(1, error=ValueError()),
    Fit(2, n_divergences=3),
]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("kind", [progress.Progress, progress.ProgressBar])
def test_counts_rate_and_remaining_time(kind, clock):
    with kind(7) as shown:
        clock[0] = 4.0
        for fit in FITS:
            shown.add(fit)
        # The fit of the store took no time.
        expected = "3 of 7 fits, 0.5 fits/s, 1 failed, 1 with divergences, 8 s left"
        assert shown.text() == expected


def test_the_number_of_data_sets_may_be_unknown(clock):
    with progress.Progress(None) as shown:
        clock[0] = 2.0
        shown.add(FITS[1])
        assert shown.text() == "1 fits, 0.5 fits/s, 1 failed, 0 with divergences"


def test_lines_are_logged_where_no_bar_can_be_shown(model, here, caplog, monkeypatch):
    monkeypatch.setattr(progress, "shows_bars", lambda: False)
    with caplog.at_level(logging.INFO, "pymc.sampling.mcmc"):
        fit_all(model, [data_set(1)], executor=here, progressbar=True)
    assert [x for x in caplog.messages if x.startswith("1 of 1 fits")]


def test_nothing_is_shown_on_request(model, here, caplog):
    with caplog.at_level(logging.INFO, "pymc.sampling.mcmc"):
        fit_all(model, [data_set(1)], executor=here)
    assert not caplog.messages
