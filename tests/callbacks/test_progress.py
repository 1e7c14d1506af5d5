"""Progress of ``sample`` on a stream that is no terminal: lines of the log, without control characters."""

import logging
from types import SimpleNamespace

import pytest
import rich.console

import pymc_fastlogp
from pymc_fastlogp.sampling import progress
from tests.callbacks import models

OPTIONS = {"draws": 20, "tune": 50, "chains": 2, "cores": 1, "random_seed": 1}
LOGGER = "pymc.sampling.mcmc"


def state(finished, divergent=()):
    return SimpleNamespace(
        finished_draws=finished, total_draws=200, divergent_draws=list(divergent)
    )


def test_a_line_is_logged_once_in_an_interval(caplog, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    with caplog.at_level(logging.INFO, LOGGER), progress.ProgressLines() as lines:
        for now in (101, 109, 111, 112, 120, 122):
            clock.now = float(now)
            lines.update([state(100, [3]), state(now - 100)])
    assert caplog.messages == [
        "27 % of 400 draws, 1 divergences, 11 seconds",
        "30 % of 400 draws, 1 divergences, 22 seconds",
        "Sampling took 22 seconds.",
    ]


def test_error_logs_no_line(caplog):
    with (
        caplog.at_level(logging.INFO, LOGGER),
        pytest.raises(OSError, match="gone"),
        progress.ProgressLines(),
    ):
        raise OSError("gone")
    assert caplog.messages == []


def test_output_without_terminal_has_no_control_characters(caplog, capfd, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with caplog.at_level(logging.INFO, LOGGER):
        pymc_fastlogp.sample(model=models.one_number(), **OPTIONS)
    lines = [x.getMessage() for x in caplog.records if x.name == LOGGER]
    assert any("% of 140 draws" in line for line in lines)
    assert lines[-1].startswith("Sampling took")
    written = "".join(capfd.readouterr())
    assert not {"\x1b", "\r", "━"} & set(written)


@pytest.mark.parametrize("options", [{"progressbar": False}, {"quiet": True}], ids=min)
def test_progress_can_be_switched_off(caplog, capfd, monkeypatch, options):
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with caplog.at_level(logging.INFO, LOGGER):
        pymc_fastlogp.sample(model=models.one_number(), **OPTIONS, **options)
    assert not any("%" in line or "took" in line for line in caplog.messages)
    assert "━" not in "".join(capfd.readouterr())


def test_a_terminal_gets_the_bars_of_pymc(capsys, monkeypatch):
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)
    monkeypatch.setattr(rich.console.Console, "is_dumb_terminal", False)
    assert progress.shows_bars()
    pymc_fastlogp.sample(model=models.one_number(), **OPTIONS)
    assert "━" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["combine", 3])
def test_a_wrong_layout_is_refused_on_any_stream(wrong):
    with pytest.raises(ValueError, match="progressbar"):
        pymc_fastlogp.sample(model=models.one_number(), **OPTIONS, progressbar=wrong)


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_gets_bars_if_rich_can_redraw_them(monkeypatch, has_widgets):
    monkeypatch.setattr(rich.console.Console, "is_terminal", False)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda name: has_widgets or None)
    assert progress.shows_bars() is has_widgets
