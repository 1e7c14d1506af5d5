"""The runner that times machine code has its commands, and times each implementation of a scatter that is valid."""

import pytest

from benchmarks.costs import __main__ as runner
from benchmarks.costs import scatter


@pytest.mark.parametrize("command", runner.COMMANDS)
def test_every_command_explains_itself(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["costs", command, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runner.main()
    assert command in capsys.readouterr().out


def test_scatter_as_vectors_is_timed_only_if_groups_alternate(monkeypatch):
    monkeypatch.setattr(scatter, "ROUNDS", 1)
    monkeypatch.setattr(scatter, "SECONDS_PER_ROUND", 1e-5)
    of_runs, apart = (scatter.times(run, of_exp=False) for run in (4, scatter.APART))
    assert {*apart} - {*of_runs} == {"as vectors"}
    assert min(*of_runs.values(), *apart.values()) > 0
