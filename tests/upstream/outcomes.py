"""Run one test file in a process and read the outcome of each test from pytest's XML."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

REPOSITORY = Path(__file__).parents[2]
PLUGIN = "pymc_fastlogp.testing"

# By the element that pytest writes into that of a test; a test without one has passed.
OUTCOMES = {"failure": "failed", "error": "error", "skipped": "skipped"}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a test, with the first line of the reason."""

    state: str
    why: str = ""


@dataclass(frozen=True)
class Run:
    """The tests of one file, by their id, and the seconds that they took."""

    outcomes: Mapping[str, Outcome]
    seconds: float


def run_file(
    folder: Path, file: str, *, plugin: bool, flags: str = "", timeout: float = 3600
) -> Run:
    """Run a file below a folder without the plugin or with it.

    A process that ends before pytest has written its XML, or is too slow, counts as one test by the name of the file.
    """
    # Both sides start from the same environment; the plugin is on where it is imported.
    inherited = os.environ.get("PYTENSOR_FLAGS", "")
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "PYTENSOR_FLAGS": ",".join(filter(None, (inherited, flags))),
    }
    environment.pop("PYMC_FASTLOGP", None)
    with TemporaryDirectory() as temporary:
        xml = Path(temporary) / "outcomes.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["--rootdir=.", "--confcutdir=.", f"--junitxml={xml}", "-o", "addopts="]
        command += ["-p", PLUGIN] if plugin else []
        start = perf_counter()
        try:
            process = subprocess.run(
                [*command, file],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run({file: Outcome("too slow")}, timeout)
        seconds = perf_counter() - start
        if not xml.exists():
            *_, last = (process.stderr or process.stdout or "no output").strip().splitlines()
            return Run({file: Outcome(f"crashed ({process.returncode})", last)}, seconds)
        return Run(outcomes_in(xml.read_text()), seconds)


def outcomes_in(xml: str) -> dict[str, Outcome]:
    """Return what became of each test, by pytest's XML."""
    found: dict[str, Outcome] = {}
    for case in ET.fromstring(xml).iter("testcase"):
        test = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        outcome = Outcome("passed")
        for element in case:
            if element.tag in OUTCOMES:
                why = element.get("message", "").strip().partition("\n")[0]
                outcome = Outcome(OUTCOMES[element.tag], why)
                break
        # A test whose teardown raises is there twice.
        if test not in found or found[test].state == "passed":
            found[test] = outcome
    return found
