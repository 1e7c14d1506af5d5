"""Share of our rules in the compilation of models of the suite.

Processor time of ``compile_pymc_model`` with nothing on disk, each model in a process of its own, medians over rounds: all our rules, PyTensor's
rewriting without them, and a compilation in which no rule applies except the one that makes kernels. ``--rules`` lists the rules.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest import mock

from rich.progress import track
from rich.table import Table

from benchmarks.compile_time.stages import (
    KERNELS,
    UPSTREAM,
    compile_seconds,
    compile_small,
    counted,
)
from benchmarks.fresh_process import call
from benchmarks.suite import SUITE, case
from pymc_fastlogp.registration import SwitchedRewriter
from pymc_fastlogp.rewrites.rows.row_rewriter import RowRewriter

COMPILE = "compile"
COLUMNS = ("model", "rules", "PyTensor", "ratio", "slowest rule", "kernels", "compile")
COLUMNS += ("PyTensor, no rules", "compile, no rules")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--model", nargs="+", default=[case.name for case in SUITE])
    parser.add_argument("--rules", action="store_true", help="list the time of each rule")
    parser.add_argument("--rounds", type=int, default=5)


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table with a row a model, and tables with a row a rule."""
    found = {
        name: call(measure, name, arguments.rounds, flags="on_opt_error=raise", kept="0")
        for name in track(arguments.model)
    }
    yield _models_table(found)
    for name, times in found.items() if arguments.rules else ():
        table = Table("rule", "milliseconds", "calls", title=name)
        for rule, (seconds, calls) in times["rules"].items():
            table.add_row(rule, f"{seconds * 1e3:.1f}", f"{calls:.0f}")
        yield table


@contextmanager
def without_rules() -> Iterator[None]:
    """Disable all rules in this block, except the one that makes kernels."""
    with (
        mock.patch.object(SwitchedRewriter, "transform", return_value=None),
        mock.patch.object(RowRewriter, "apply", return_value=None),
    ):
        yield


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Return the times of a model in this process."""
    make = case(name).make
    compile_small()
    on, off = [], []
    for _ in range(rounds):
        with counted() as clock:
            on.append(Counter({COMPILE: compile_seconds(make())}) + clock.seconds)
        calls = clock.calls
        with without_rules(), counted() as clock:
            off.append(Counter({COMPILE: compile_seconds(make())}) + clock.seconds)
    times = {part: median(each[part] for each in on) for part in on[0]}
    return {
        "rules": {
            rule: (times[rule], calls[rule])
            for rule in sorted(times, key=lambda rule: -times[rule])
            if rule not in (COMPILE, UPSTREAM, KERNELS)
        },
        "upstream": times[UPSTREAM],
        "kernels": times.get(KERNELS, 0.0),
        "compile": times[COMPILE],
        "upstream without rules": median(each[UPSTREAM] for each in off),
        "compile without rules": median(each[COMPILE] for each in off),
    }


def _models_table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(*COLUMNS, title="milliseconds of processor time")
    for name, times in found.items():
        rules = times["rules"]
        ours = sum(seconds for seconds, _ in rules.values())
        slowest = max(rules, key=lambda rule: rules[rule][0])
        ratio = f"{ours / times['upstream']:.2f}"
        upstream, *rest = (f"{times[x] * 1e3:.0f}" for x in times if x != "rules")
        first = f"{slowest} {rules[slowest][0] * 1e3:.0f}"
        table.add_row(name, f"{ours * 1e3:.0f}", upstream, ratio, first, *rest)
    return table
