"""Cost of our rules in the rewriting of a model: ``python -m benchmarks.rewriting [--model NAME ...] [--rules] [--rounds N]``.

Processor time of ``compile_pymc_model`` with nothing on disk, for each model of the suite in a process of its own, which has compiled a
small one before, medians of some rounds: what all our rules take together, what PyTensor takes for the rest of its rewriting, and how long a compilation takes whose graphs
our rules leave alone, all but that which makes kernels. ``--rules`` lists what each rule takes. What the clock itself takes, which is as much as a call
of a rule that has nothing to do, is measured before and left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

import pymc as pm
from pytensor.graph.rewriting.basic import GraphRewriter
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pymc_fastlogp
from benchmarks.fresh_process import environment
from benchmarks.suite import SUITE, case
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.registration import SwitchedGraphRewriter, SwitchedRewriter
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRewriter

COMPILE, UPSTREAM, ROWS, KERNELS = "compile", "PyTensor", "walks of row rules", "kernels"


class Clock:
    """Processor time of calls without that of other counted calls inside of them.

    Attributes
    ----------
    seconds : Counter
        By what was called.
    calls : Counter
        How often it was.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._inner = [0.0]
        # What a counted call takes of the clock, in it and in all.
        self._own, self._whole = 0.0, 0.0

    def calibrate(self, calls: int = 20_000) -> None:
        """Measure what the clock takes of each call."""
        empty = self.timed(lambda _: None, lambda _: UPSTREAM)
        start = seconds_now()
        for _ in range(calls):
            empty(None)
        self._whole = (seconds_now() - start) / calls
        self._own = self.seconds[UPSTREAM] / calls
        self.seconds.clear()
        self.calls.clear()

    def timed(self, method: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable:
        """Return a method that counts its calls."""

        def counted(rewriter: Any, *args: Any, **kwargs: Any) -> Any:
            start = seconds_now()
            self._inner.append(0.0)
            try:
                return method(rewriter, *args, **kwargs)
            finally:
                taken, name = seconds_now() - start, name_of(rewriter)
                self.seconds[name] += taken - self._own - self._inner.pop()
                self.calls[name] += 1
                self._inner[-1] += taken - self._own + self._whole

        return counted


def _name(rewriter: Any) -> str:
    return str(rewriter.name).removeprefix("fastlogp_")


COUNTED: tuple[tuple[type, str, Callable[[Any], str]], ...] = (
    (GraphRewriter, "rewrite", lambda _: UPSTREAM),
    (SwitchedRewriter, "transform", _name),
    (RowRewriter, "apply", lambda _: ROWS),
    (SwitchedGraphRewriter, "apply", lambda _: KERNELS),
)


@contextmanager
def counted() -> Iterator[Clock]:
    """Count the time of rewriters in this block."""
    clock = Clock()
    clock.calibrate()
    with ExitStack() as stack:
        for kind, method, name_of in COUNTED:
            new = clock.timed(getattr(kind, method), name_of)
            stack.enter_context(mock.patch.object(kind, method, new))
        yield clock


@contextmanager
def without_rules() -> Iterator[None]:
    """Let all rules but that which makes kernels leave every graph alone for a block."""
    with (
        mock.patch.object(SwitchedRewriter, "transform", return_value=None),
        mock.patch.object(RowRewriter, "apply", return_value=None),
    ):
        yield


def small() -> pm.Model:
    """Return the model that a process compiles first."""
    with pm.Model() as model:
        pm.Poisson("y", pm.math.exp(pm.Normal("x", shape=2)), observed=[1, 2])
    return model


def compiling(make: Callable[[], pm.Model]) -> float:
    """Return how long a model takes to compile."""
    model = make()
    start = seconds_now()
    pymc_fastlogp.compile_pymc_model(model)
    return seconds_now() - start


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Return the times of a model in this process, medians over rounds."""
    make = case(name).make
    compiling(small)
    on, off = [], []
    for _ in range(rounds):
        with counted() as clock:
            on.append(Counter({COMPILE: compiling(make)}) + clock.seconds)
        calls = clock.calls
        with without_rules(), counted() as clock:
            off.append(Counter({COMPILE: compiling(make)}) + clock.seconds)
    times = {part: median(each[part] for each in on) for part in on[0]}
    return {
        "rules": {
            rule: (times[rule], calls[rule])
            for rule in sorted(times, key=lambda rule: -times[rule])
            if rule not in (COMPILE, UPSTREAM, KERNELS)
        },
        "compile": times[COMPILE],
        "kernels": times.get(KERNELS, 0.0),
        "upstream": times[UPSTREAM],
        "compile without rules": median(each[COMPILE] for each in off),
        "upstream without rules": median(each[UPSTREAM] for each in off),
    }


def in_child(name: str, rounds: int) -> dict[str, Any]:
    """Return the times of a model in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.rewriting", "--child", name]
    command += ["--rounds", str(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        own = environment(folder, flags="on_opt_error=raise", kept="0")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=own)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def models_table(found: dict[str, dict[str, Any]]) -> Table:
    """Return a row a model."""
    columns = ("model", "rules", "PyTensor", "ratio", "slowest rule", "kernels", "compile")
    shown = Table(
        *columns, "PyTensor, no rules", "compile, no rules", title="milliseconds of processor time"
    )
    for name, times in found.items():
        rules = times["rules"]
        ours = sum(seconds for seconds, _ in rules.values())
        slowest = max(rules, key=lambda rule: rules[rule][0])
        milliseconds = {key: f"{x * 1e3:.0f}" for key, x in times.items() if key != "rules"}
        shown.add_row(
            name,
            f"{ours * 1e3:.0f}",
            milliseconds["upstream"],
            f"{ours / times['upstream']:.2f}",
            f"{slowest} {rules[slowest][0] * 1e3:.0f}",
            milliseconds["kernels"],
            milliseconds["compile"],
            milliseconds["upstream without rules"],
            milliseconds["compile without rules"],
        )
    return shown


def rules_table(name: str, rules: dict[str, list[float]]) -> Table:
    """Return a row a rule, what takes longest first."""
    shown = Table("rule", "milliseconds", "calls", title=name)
    for rule, (seconds, calls) in rules.items():
        shown.add_row(rule, f"{seconds * 1e3:.1f}", f"{calls:.0f}")
    return shown


def main() -> None:
    """Measure models in processes of their own, or one in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=[case.name for case in SUITE])
    parser.add_argument("--rules", action="store_true", help="list what each rule takes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(measure(arguments.child, arguments.rounds)))
        return
    found = {name: in_child(name, arguments.rounds) for name in track(arguments.model)}
    console = Console(width=160)
    console.print(models_table(found))
    for name, times in found.items() if arguments.rules else ():
        console.print(rules_table(name, times["rules"]))


if __name__ == "__main__":
    main()
