"""All measurements of one case, each in a child process, gathered into one record."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fresh_process import ON_ONE_CORE, environment
from pymc_fastlogp.benchmarking.pairing import pinned

if TYPE_CHECKING:
    from benchmarks.suite import Case

ROOT = Path(__file__).parent.parent

# Sides that may fail without failing the run, unlike "off" and "on".
COMPETITORS = ("jax", "jax_on", "stan", "ceiling")
TASK_LIMIT_SECONDS = 900


@dataclass(frozen=True)
class Effort:
    """Number of evaluations and rounds."""

    rounds: int
    seconds_per_round: float
    cold_compile: bool


FULL = Effort(rounds=7, seconds_per_round=0.1, cold_compile=True)
QUICK = Effort(rounds=3, seconds_per_round=0.05, cold_compile=False)


def measure(case: "Case", effort: Effort, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure one case.

    Parameters
    ----------
    case : Case
        A row of the suite.
    effort : Effort
        How much to measure.
    tell : callable
        Gets the name of each step before it starts.

    Returns
    -------
    dict
        The record of the case, ready for JSON; times in seconds, memory in bytes, None for
        what was not measured. ``failures`` maps each failed step to its error.
    """
    record: dict[str, Any] = {
        "name": case.name,
        "title": case.title,
        "target": case.target,
        "evaluation": None,
        "notes": {},
        "failures": {},
        "first_compile_seconds": {"off": None, "on": None},
        "off": {},
        "on": {},
    }
    with tempfile.TemporaryDirectory(prefix="fastlogp-bench-") as folder:
        child = _Child(case.name, effort, Path(folder), record["failures"], tell)
        if effort.cold_compile:
            for side in ("off", "on"):
                answer = child.run("compile", side, cache=side)
                record["first_compile_seconds"][side] = answer.get("compile_seconds")
            child.merge_caches("on", "off")
        answer = child.run("evaluate", "all", cache="off")
        record["evaluation"] = answer.get("evaluation")
        record["notes"] = answer.get("notes", {})
        record["failures"].update(answer.get("failures", {}))
        for side in ("off", "on"):
            record[side] = child.run("session", side, cache="off")
    return record


def failed(record: dict[str, Any]) -> bool:
    """Return whether something other than a competitor failed."""
    return bool(set(record["failures"]) - set(COMPETITORS))


def how_it_ended(status: int, stderr: str) -> str:
    """Return exit status and last error line of a child without an answer, such as a crashed one."""
    lines = stderr.strip().splitlines() or [""]
    return f"exit status {status}: {lines[-1]}"[:200]


@dataclass(frozen=True)
class _Child:
    case: str
    effort: Effort
    folder: Path
    failures: dict[str, str]
    tell: Callable[[str], None]

    def run(self, task: str, side: str, cache: str) -> dict[str, Any]:
        """Run a task in a fresh process; on failure note the error and return an empty answer."""
        self.tell(f"{task} {side}")
        output = self.folder / "answer.json"
        output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.child", task, self.case, side, str(output)]
        command += ["--rounds", str(self.effort.rounds)]
        command += ["--seconds", str(self.effort.seconds_per_round)]
        try:
            # The child inherits the core, with every thread that its packages start on import.
            with pinned():
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=self._environment(cache),
                    timeout=TASK_LIMIT_SECONDS,
                    capture_output=True,
                    text=True,
                )
        except subprocess.TimeoutExpired:
            self.failures[f"{task} {side}"] = f"stopped after {TASK_LIMIT_SECONDS} s"
            return {}
        answer = json.loads(output.read_text()) if output.exists() else {}
        if done.returncode == 0:
            return answer
        self.failures[f"{task} {side}"] = answer.get("error") or how_it_ended(
            done.returncode, done.stderr
        )
        return {}

    def merge_caches(self, source: str, target: str) -> None:
        """Copy one compilation cache into another; entries are files named by their hash."""
        shutil.copytree(self.folder / source, self.folder / target, dirs_exist_ok=True)

    def _environment(self, cache: str) -> dict[str, str]:
        if not self.effort.cold_compile:
            return os.environ | ON_ONE_CORE
        folder = self.folder / cache
        own = environment(folder / "pytensor", one_core=True)
        return own | {"NUMBA_CACHE_DIR": str(folder / "numba")}
