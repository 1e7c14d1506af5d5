"""The name of a kernel's code, under which it is found on disk."""

import os
from pathlib import Path

import pytest

import pymc_fastlogp.kernel
from pymc_fastlogp.kernel.native import loaded_code, target
from pymc_fastlogp.kernel.native.loaded_code import compiler, state_of_sources


def test_the_name_depends_on_the_source_of_the_whole_compiler():
    """Else code of an earlier version would be taken from disk."""
    folder = Path(pymc_fastlogp.kernel.__file__).parent
    assert state_of_sources(folder) in compiler().splitlines()


def test_the_name_depends_on_the_use_of_gathers(monkeypatch):
    names = set()
    for decision in (True, False):
        monkeypatch.setattr(loaded_code, "uses_gathers", lambda decision=decision: decision)
        names.add(compiler.__wrapped__())
    assert len(names) == 2


def test_the_name_depends_on_the_tuning(monkeypatch):
    before = compiler.__wrapped__()
    monkeypatch.setattr(target, "TUNINGS", (target.Tuning("", False, ("+another-feature",)),))
    assert compiler.__wrapped__() != before


def longer(source: Path) -> None:
    source.write_text("x = 10")


def of_equal_length(source: Path) -> None:
    source.write_text("y = 1")
    # The clock of a file system may be a coarse one.
    os.utime(source, ns=(1, 1))


def gone(source: Path) -> None:
    source.unlink()


def in_another_place(source: Path) -> None:
    source.rename(source.with_name("other.py"))


def with_another(source: Path) -> None:
    source.with_name("other.py").touch()


CHANGES = [longer, of_equal_length, gone, in_another_place, with_another]


@pytest.mark.parametrize("change", CHANGES, ids=lambda x: x.__name__)
def test_sources_that_change_have_another_state(tmp_path, change):
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    source.write_text("x = 1")
    before = state_of_sources.__wrapped__(tmp_path)
    change(source)
    assert state_of_sources.__wrapped__(tmp_path) != before


def test_what_is_no_source_does_not_count(tmp_path):
    (tmp_path / "module.py").touch()
    before = state_of_sources.__wrapped__(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "module.pyc").touch()
    assert state_of_sources.__wrapped__(tmp_path) == before
