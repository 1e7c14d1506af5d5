"""``python -m tests.versions [NAME ...]``: make an environment for each row of the table, and run some tests in it.

The lower bounds of ``pyproject.toml`` are what ``uv`` takes as the oldest versions, so that a bound that does not hold shows.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build" / "versions"
BUILT_ON = ("pymc", "pytensor", "numba", "llvmlite", "nutpie", "numpy")
# What the tests import besides.
TESTS_NEED = ("pytest>=8.3", "pytest-xdist>=3.7", "hypothesis>=6.100", "mpmath>=1.3", "jax>=0.6")
# Registration, the workflow of a user, both ways to compile, kernels and CPUs.
TESTS = (
    "tests/test_registration.py",
    "tests/test_workflow.py",
    "tests/test_threads.py",
    "tests/callbacks/test_compile.py",
    "tests/callbacks/test_numba_pipeline.py",
    "tests/callbacks/test_graphs.py",
    "tests/kernel/test_op.py",
    "tests/kernel/test_numba_dispatch.py",
    "tests/kernel/test_numba_processes.py",
    "tests/kernel/test_cpus.py",
    "tests/rewrites/test_gaussian_rows.py",
    "tests/rewrites/test_compact_rows.py",
)


@dataclass(frozen=True)
class Environment:
    """A Python, and which versions of our dependencies are installed for it."""

    name: str
    python: str
    resolution: str


ENVIRONMENTS = (
    Environment("oldest", "3.12", "lowest-direct"),
    Environment("newest", "3.13", "highest"),
    Environment("next", "3.14", "highest"),
)


def main() -> int:
    """Return how many environments could not be made, or have a test that fails."""
    names = [environment.name for environment in ENVIRONMENTS]
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    chosen = parser.parse_args().names or names
    outcomes = {x.name: _outcome(x) for x in ENVIRONMENTS if x.name in chosen}
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")
    return sum(outcome != "passed" for outcome in outcomes.values())


def _outcome(environment: Environment) -> str:
    """Make an environment, say what is in it, run the tests, and return how that ended."""
    folder = FOLDER / environment.name
    python = folder / "bin" / "python"
    uv = (sys.executable, "-m", "uv")
    installing = (*uv, "pip", "install", "--quiet", "--python", python)
    commands = (
        (*uv, "venv", "--quiet", "--clear", "--python", environment.python, folder),
        # At once, since what tests need alone would move NumPy.
        (
            *installing,
            "--resolution",
            environment.resolution,
            "--editable",
            REPOSITORY,
            *TESTS_NEED,
        ),
    )
    for command in commands:
        if subprocess.run(command, check=False).returncode:
            return "could not be installed"
    listed = subprocess.run(
        (*uv, "pip", "list", "--python", python), capture_output=True, text=True, check=True
    )
    versions = [line for line in listed.stdout.splitlines() if line.split()[0] in BUILT_ON]
    print(
        f"{environment.name}, Python {environment.python}:",
        *map(" ".join, map(str.split, versions)),
        sep="\n  ",
    )
    tests = (
        python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-m",
        "not slow",
        "--dist",
        "loadfile",
        *TESTS,
    )
    failed = subprocess.run(tests, cwd=REPOSITORY, check=False).returncode
    return "tests failed" if failed else "passed"


if __name__ == "__main__":
    sys.exit(main())
