"""The runner of compile-time benchmarks counts each stage once, and has its commands."""

from itertools import count

import numpy as np
import pytest

from benchmarks.compile_time import __main__ as runner
from benchmarks.compile_time import growth, models, new_data, stages
from benchmarks.suite import case
from tests.conftest import PYTHON


def test_inner_calls_do_not_count_for_the_outer_one(monkeypatch):
    ticks = count()
    monkeypatch.setattr(stages, "seconds_now", lambda: float(next(ticks)))
    clock = stages.Clock()
    inner = clock.timed(lambda _: None, lambda name: name)
    outer = clock.timed(lambda _: [inner("inner"), inner("inner")], lambda name: name)
    outer("outer")
    # The clock is read twice by each call, a tick apart: five ticks pass between the readings of the outer call.
    assert clock.seconds == {"outer": 5 - 2, "inner": 2}
    assert clock.calls == {"outer": 1, "inner": 2}


@pytest.mark.parametrize("command", runner.COMMANDS)
def test_every_command_explains_itself(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["compile_time", command, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runner.main()
    assert command in capsys.readouterr().out


def test_models_of_a_command_differ_in_data_and_length():
    same, different = (growth.make(3, kind) for kind in growth.KINDS)
    assert {len(x.eval(mode=PYTHON)) for x in same.rvs_to_values.values() if x.name[0] == "y"} == {
        30
    }
    assert [len(different[f"y{k}"].eval(mode=PYTHON)) for k in range(3)] == [30, 31, 32]
    first, second = (models.make(k).observed_RVs[0].eval(mode=PYTHON).size for k in (0, 4))
    assert (first, second) == (200, 204)


def test_data_are_drawn_from_the_rows_that_were_there():
    model = case("radon").make()
    before = {x.name: x.get_value() for x in model.data_vars}
    new_data.drawn_again(model, seed=1, share=1.05)
    after = {x.name: x.get_value() for x in model.data_vars}
    assert {len(x) for x in after.values()} == {round(1.05 * 919)}
    assert all(np.isin(after[name], before[name]).all() for name in before)
