"""Value of each rule: the models on which it fires, and the loss there if it alone is excluded.

``python -m benchmarks.rule_value [RULE ...]`` takes some models on which each rule fires, by the table of ``tests.canaries``,
rewrites them without the rule, and where that leaves other code, compiles both and times them in turn, a process for each
model. A side "again", compiled like the baseline, is the noise.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import pytensor
from pytensor.compile.mode import optdb
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.child import error_line
from benchmarks.compiled_graph import code_of, compiled_graph
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.result import BenchmarkResult
from pymc_fastlogp.benchmarking.run import check_agreement, compile_model, legal_points
from pymc_fastlogp.registration import registered
from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests import canaries

NAMES = tuple(dict.fromkeys(rule.name for rule in (*RULES, *GRAPH_RULES)))
AGAIN, BASELINE = "again", "on"
ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "rule_value.json"


@contextmanager
def without(name: str) -> Iterator[None]:
    """Let the rewrites of this name leave every graph alone for a block."""
    rewrites = [(registered(r), "transform") for r in RULES if r.name == name]
    rewrites += [(optdb[name], "apply") for r in GRAPH_RULES if r.name == name]
    with ExitStack() as stack:
        for rewriter, method in rewrites:
            stack.enter_context(mock.patch.object(rewriter, method, return_value=None))
        yield


def census() -> dict[str, list[str]]:
    """Return for each rule the models on which it fires, those of each collection in turn."""
    fires: dict[str, dict[str, list[str]]] = {name: {} for name in NAMES}
    for model, text in canaries.read().items():
        rules = {f"fastlogp_{rule}" for rule in canaries.rules_of(text)} | {"fastlogp_fused_kernel"}
        if "HeldConstants" in text:
            rules.add("fastlogp_held_constants")
        for rule in rules:
            fires[rule].setdefault(model.partition("/")[0], []).append(model)
    return {
        rule: [x for x in chain.from_iterable(zip_longest(*models.values())) if x is not None]
        for rule, models in fires.items()
    }


def chosen(fires: dict[str, list[str]], most: int) -> dict[str, list[str]]:
    """Return the rules that each model is timed without: few models, the rarest rules first."""
    rules_of: dict[str, list[str]] = {}
    for rule, models in sorted(fires.items(), key=lambda item: len(item[1])):
        preferred = sorted(models, key=lambda model: model not in rules_of)
        for model in preferred[:most]:
            rules_of.setdefault(model, []).append(rule)
    return rules_of


def time_sides(name: str, rules: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Compile a model as it is and without each of the rules; return the ratios of times to the baseline.

    None for the rules without which the code is the same.
    """
    make = canaries.MODELS[name]
    code = code_of(compiled_graph(make()).fgraph)
    same = [rule for rule in rules if _code_without(rule, name) == code]
    callbacks, compiling = {}, {}
    # The first side pays for what all compilations share.
    for side in (AGAIN, BASELINE, *(rule for rule in rules if rule not in same)):
        model, start = make(), seconds_now()
        with without(side), pytensor.config.change_flags(numba__cache=False):
            callbacks[side] = LogpCallback.from_compiled(compile_model(model, "on"))
        compiling[side] = seconds_now() - start
    points = legal_points(callbacks[BASELINE], seed=0)
    notes = _disagreements(callbacks, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}
    with pinned():
        measured = time_in_turn(timers, rounds=rounds, seconds_per_round=seconds)
    result = BenchmarkResult(n_dim=points.shape[1], seconds=measured)
    ratios = {
        side: {
            **result.ratio(side)._asdict(),
            "compile": compiling[side] / compiling[BASELINE],
            "microseconds": result.median(side) * 1e6,
            "note": notes.get(side, ""),
        }
        for side in callbacks
    }
    return ratios | dict.fromkeys(same)


def _code_without(rule: str, name: str) -> str:
    with without(rule):
        return code_of(compiled_graph(canaries.MODELS[name]()).fgraph)


def _disagreements(callbacks: dict[str, LogpCallback], points: Any) -> dict[str, str]:
    notes = {}
    for side, callback in callbacks.items():
        try:
            check_agreement(callback.evaluate, callbacks[BASELINE].evaluate, points)
        except AssertionError as error:
            notes[side] = error_line(error)
    return notes


def in_child(name: str, rules: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Return what ``time_sides`` returns, from a process of its own; nothing, said aloud, if that fails."""
    command = [sys.executable, "-m", "benchmarks.rule_value", *rules, "--child", name]
    command += ["--rounds", str(rounds), "--seconds", str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def table(fires: dict[str, list[str]], timed: dict[str, Any]) -> Table:
    """Return a row a rule: where it fires, where of those models that were tried it matters, and times without it."""
    shown = Table("rule", "fires", "tried", "matters", "time without : with", "compile")
    for rule, models in fires.items():
        tried = {model: sides[rule] for model, sides in timed.items() if rule in sides}
        ratios = {model: ratio for model, ratio in tried.items() if ratio}
        by_ratio = sorted(ratios.items(), key=lambda item: -item[1]["median"])
        shown.add_row(
            rule,
            *(str(len(x)) for x in (models, tried, ratios)),
            ", ".join(f"{model} {r['median']:.2f}{'!' * bool(r['note'])}" for model, r in by_ratio),
            f"{median(r['compile'] for r in ratios.values()):.2f}" if ratios else "",
        )
    return shown


def main() -> None:
    """Count, time, print and write, or time one model in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="*", metavar="RULE", default=[*NAMES])
    parser.add_argument("--most", type=int, default=6, help="models that a rule is timed on")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each side in each round")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--child", metavar="MODEL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    effort = (arguments.rounds, arguments.seconds)
    if arguments.child is not None:
        print(json.dumps(time_sides(arguments.child, arguments.rules, *effort)))
        return
    fires = {rule: models for rule, models in census().items() if rule in arguments.rules}
    timed: dict[str, Any] = {}
    for model, rules in track(chosen(fires, arguments.most).items(), "compiling and timing"):
        timed[model] = in_child(model, rules, *effort)
        # What is known so far is kept: a run takes long.
        arguments.output.write_text(json.dumps({"fires": fires, "timed": timed}, indent=1))
    Console(width=160).print(table(fires | {AGAIN: [*timed]}, timed))


if __name__ == "__main__":
    main()
