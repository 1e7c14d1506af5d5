"""``python -m pymc_fastlogp``."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from io import StringIO

import pytest
from rich.console import Console

import pymc_fastlogp
from pymc_fastlogp.__main__ import PACKAGES, environment_table, main, vector_bits
from pymc_fastlogp.kernel.threads.protocol import is_supported
from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests.conftest import with_flags


def report(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pymc_fastlogp", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_report_names_versions_rules_and_passes():
    process = report()
    assert process.returncode == 0, process.stderr
    assert "Self-check passed" in process.stdout
    for name in (
        *PACKAGES,
        *(rule.name for rule in (*RULES, *GRAPH_RULES)),
        "vector width",
        "gathers",
    ):
        assert name in process.stdout


def test_a_package_that_is_not_installed_is_called_so(monkeypatch):
    """The plugin itself is not installed if only its sources are on the path."""

    def version(package):
        if package == "pymc-fastlogp":
            raise PackageNotFoundError(package)
        return "1.2"

    monkeypatch.setattr("pymc_fastlogp.__main__.version", version)
    cells = [[*column.cells] for column in environment_table().columns]
    assert dict(zip(*cells, strict=True))["pymc-fastlogp"] == "not installed"


@pytest.mark.parametrize(
    ("decision", "words"), [(True, "by instruction"), (False, "one load for each lane")]
)
def test_table_says_how_gathers_are_made(decision, words, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.__main__.uses_gathers", lambda: decision)
    cells = [[*column.cells] for column in environment_table().columns]
    assert dict(zip(*cells, strict=True))["gathers"] == words


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "2 for four chains at a time, 4 for two, 8 for one"),
        ({"PYMC_FASTLOGP_THREADS": "3"}, "3, from PYMC_FASTLOGP_THREADS"),
        (
            {"PYMC_FASTLOGP_THREADS": "many"},
            "PYMC_FASTLOGP_THREADS is 'many': give a number of threads from 1.",
        ),
    ],
)
@pytest.mark.skipif(not is_supported(), reason="threads need futex of Linux")
def test_table_says_how_many_threads_a_chain_has(environment, expected, monkeypatch):
    monkeypatch.setattr("pymc_fastlogp.sampling.threads.usable_cores", lambda: 8)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cells = [[*column.cells] for column in environment_table().columns]
    assert dict(zip(*cells, strict=True))["threads per chain"] == expected


@pytest.fixture
def said(monkeypatch, capsys):
    """Run the command in this process; return its status, output and errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["pymc_fastlogp", *words])
        try:
            status = main()
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_help_says_what_it_does_and_checks_nothing(said):
    status, output, errors = said("--help")
    assert (status, errors) == (0, "")
    assert "usage: python -m pymc_fastlogp" in output
    assert "Self-check" not in output


def test_unknown_words_are_a_usage_error(said):
    status, output, errors = said("nonsense")
    assert (status, output) == (2, "")
    assert "invalid choice: 'nonsense'" in errors


def test_cache_is_shown_and_cleared(said, tmp_path, monkeypatch):
    for name in (
        "pymc_fastlogp.model.0",
        "pymc_fastlogp.model.1",
        "pymc_fastlogp.table.0",
        "other",
    ):
        (tmp_path / name).write_bytes(bytes(2**19))
    for name in ("pymc_fastlogp.model.1.shapes", "pymc_fastlogp.model.xyz.unfinished"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path))
    sizes = "2 models with 1.0 of at most 512 MB, 1 results of tables with 0.5 of at most 512 MB"
    assert said("cache") == (0, f"{sizes}, in {tmp_path}\n", "")
    assert "deleted" in said("cache", "--clear")[1]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    tmp_path.chmod(0o777)
    assert "is not used" in said("cache")[1]
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", "0")
    assert "are not stored" in said("cache")[1]


def test_table_says_why_it_is_off():
    pymc_fastlogp.disable()
    console = Console(record=True, file=StringIO())
    console.print(environment_table())
    assert "no: PYMC_FASTLOGP=0" in console.export_text()


@pytest.mark.parametrize("excluded", ["fastlogp", "fastlogp_lift_set_subtensor"])
def test_failing_self_check_exits_with_1(excluded):
    process = report(PYTENSOR_FLAGS=with_flags(f"optimizer_excluding={excluded}"))
    assert process.returncode == 1, process.stderr
    assert "Self-check failed: optimizer_excluding excludes fastlogp_lift_set" in process.stdout


def test_self_check_passes_without_row_rules():
    process = report(PYTENSOR_FLAGS=with_flags("optimizer_excluding=fastlogp_rows"))
    assert process.returncode == 0, process.stdout
    assert "fastlogp_compact_rows" not in process.stdout
    assert "fastlogp_lift_set_subtensor" in process.stdout


@pytest.mark.parametrize(
    ("features", "bits"),
    [
        ({"avx512f": True, "avx2": True, "sse2": True}, 512),
        ({"avx512f": False, "avx2": True, "avx": True}, 256),
        ({"avx512f": False, "avx": True, "sse2": True}, 256),
        ({"neon": True}, 128),
        ({"sse2": True}, 128),
        ({}, 64),
    ],
)
def test_vector_bits_is_the_widest(features, bits):
    assert vector_bits(features) == bits
