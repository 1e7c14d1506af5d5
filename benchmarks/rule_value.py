"""Value of each rule and each pass of the kernels: models on which it matters, and the loss if it alone is left out.

``python -m benchmarks.rule_value [NAME ...]`` rewrites some models without each rule and each pass. If other code results, both are compiled and
timed in turn, one process per model. A side "again", compiled like the baseline, is the noise. The JSON and the tables of
``docs/rule_value.md`` are written; results of rules that are not named stay. ``--report`` writes the tables again.
"""

import argparse
import json
import sys
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.fresh_process import call
from benchmarks.machine import context
from benchmarks.report import measured_on, write_table
from benchmarks.rule_value_child import AGAIN, time_sides
from benchmarks.suite import SUITE
from pymc_fastlogp.kernel.passes import PASSES
from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests import canaries

RULE_NAMES = tuple(dict.fromkeys(rule.name for rule in (*RULES, *GRAPH_RULES)))
PASS_NAMES = tuple(run.__name__ for run in PASSES)
NAMES = RULE_NAMES + PASS_NAMES
ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "rule_value.json"
PAGE = ROOT / "docs" / "rule_value.md"
PACKAGE = ROOT / "pymc_fastlogp"

# The zoo has a small model for each rule; these collections have the models of users.
REAL = ("suite", "gallery")


def census() -> dict[str, list[str]]:
    """Return the models on which each rule fires, the collections in turn; for each pass, the models of the suite."""
    fires: dict[str, dict[str, list[str]]] = {name: {} for name in RULE_NAMES}
    for model, text in canaries.read().items():
        rules = {f"fastlogp_{rule}" for rule in canaries.rules_of(text)} | {"fastlogp_fused_kernel"}
        if "HeldConstants" in text:
            rules.add("fastlogp_held_constants")
        for rule in rules:
            fires[rule].setdefault(model.partition("/")[0], []).append(model)
    suite = [f"suite/{case.name}" for case in SUITE]
    return {
        rule: [x for x in chain.from_iterable(zip_longest(*models.values())) if x is not None]
        for rule, models in fires.items()
    } | dict.fromkeys(PASS_NAMES, suite)


def chosen(fires: dict[str, list[str]], most: int) -> dict[str, list[str]]:
    """Return the rules that each model is timed without: few models, the rarest rules first."""
    rules_of: dict[str, list[str]] = {}
    for rule, models in sorted(fires.items(), key=lambda item: len(item[1])):
        preferred = sorted(models, key=lambda model: model not in rules_of)
        for model in preferred[:most]:
            rules_of.setdefault(model, []).append(rule)
    return rules_of


class Value(NamedTuple):
    """Value of a rule or pass, over the models on which it was tried.

    Attributes
    ----------
    fires, tried : int
        Number of models on which the rule fires, and on which it was left out.
    gains : dict
        Ratio of the times without and with the rule, for each tried model whose code the rule changes; the largest ratio first.
        The ratio of the fastest rounds, for results without them the median ratio.
    compile : float or None
        Median ratio of the CPU times of a compilation without and with the rule.
    """

    fires: int
    tried: int
    gains: dict[str, float]
    compile: float | None

    @classmethod
    def of(cls, name: str, results: dict[str, Any]) -> "Value":
        """Collect the measurements of a rule or pass."""
        tried = [(model, s[name]) for model, s in results["timed"].items() if name in s]
        changed = {model: x for model, x in tried if x}
        gains = {model: x.get("minimum", x["median"]) for model, x in changed.items()}
        return cls(
            fires=len(results["fires"].get(name, ())),
            tried=len(tried),
            gains=dict(sorted(gains.items(), key=lambda item: -item[1])),
            compile=median(x["compile"] for x in changed.values()) if changed else None,
        )

    def shown_gains(self, most: int) -> str:
        """Return the largest ratios as text."""
        shown = [f"{model} {gain:.2f}" for model, gain in self.gains.items()][:most]
        return ", ".join(shown)


def table(names: list[str], results: dict[str, Any]) -> Table:
    """Return one row per rule or pass for the terminal."""
    shown = Table("name", "fires", "tried", "matters", "time without / with", "compile")
    for name in names:
        value = Value.of(name, results)
        counts = (value.fires, value.tried, len(value.gains))
        ratio = "" if value.compile is None else f"{value.compile:.2f}"
        shown.add_row(name, *map(str, counts), value.shown_gains(most=6), ratio)
    return shown


def page_tables(results: dict[str, Any]) -> str:
    """Return the tables of the page: one row per rule, one row per pass."""
    rules = [
        "| rule | fires on | real models that gain 1.1 | largest gains | compile | lines |",
        "|---|---:|---:|---|---:|---:|",
        *(_rule_row(name, results) for name in RULE_NAMES),
    ]
    passes = [
        "| pass | changes, of tried | largest gains | compile |",
        "|---|---:|---|---:|",
        *(_pass_row(name, results) for name in PASS_NAMES),
    ]
    obsolete = [
        "| rule | change in PyTensor or PyMC |",
        "|---|---|",
        *dict.fromkeys(_row(_name(rule.name), rule.until) for rule in RULES if rule.until),
    ]
    sections = {"Rules": rules, "Rules that become obsolete": obsolete, "Passes": passes}
    parts = ["\n".join([f"## {title}", "", *rows, ""]) for title, rows in sections.items()]
    return "\n".join([*parts, measured_on(results)])


def _rule_row(name: str, results: dict[str, Any]) -> str:
    value = Value.of(name, results)
    real = sum(g >= 1.1 and m.startswith(REAL) for m, g in value.gains.items())
    gaining = f"{real} of {len(value.gains)}"
    gains = _gains(value, most=3)
    return _row(_name(name), value.fires, gaining, gains, _ratio(value), lines_of(name))


def _name(rule: str) -> str:
    return f"`{rule.removeprefix('fastlogp_')}`"


def _pass_row(name: str, results: dict[str, Any]) -> str:
    value = Value.of(name, results)
    changed = f"{len(value.gains)} of {value.tried}"
    return _row(f"`{name}`", changed, _gains(value, most=4), _ratio(value))


def _gains(value: Value, most: int) -> str:
    """Return the largest ratios as a cell, in which lines may break after the name of a collection."""
    return value.shown_gains(most).replace("/", "/<wbr>")


def _ratio(value: Value) -> str:
    return "" if value.compile is None else f"{value.compile:.2f}"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def lines_of(name: str) -> str:
    """Return the number of lines of the module of a rule; nothing for a rewriter of PyTensor."""
    functions = [f"rewrites.{rule.function}" for rule in RULES if rule.name == name]
    functions += [rule.rewriter for rule in GRAPH_RULES if rule.name == name]
    module = functions[0].rpartition(".")[0].replace(".", "/")
    path = PACKAGE / f"{module}.py"
    return str(len(path.read_text().splitlines())) if path.exists() else ""


def publish(results: dict[str, Any]) -> None:
    """Write the tables into the page of the docs."""
    write_table(PAGE, page_tables(results))


def main() -> None:
    """Count, time, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rules", nargs="*", metavar="RULE", default=[*NAMES])
    parser.add_argument("--most", type=int, default=6, help="models that a rule is timed on")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each side in each round")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--missing", action="store_true", help="only models without a result")
    parser.add_argument("--report", action="store_true", help="only write the tables again")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    fires = census()
    all_again = set(arguments.rules) == set(NAMES) and not arguments.missing
    timed = {} if all_again else json.loads(arguments.output.read_text())["timed"]
    results: dict[str, Any] = {**context(), "fires": fires, "timed": timed}
    rules_of = chosen({name: fires[name] for name in arguments.rules}, arguments.most)
    if arguments.missing:
        rules_of = {model: rules for model, rules in rules_of.items() if model not in timed}
    for model, rules in track(rules_of.items(), "compiling and timing"):
        try:
            sides = call(
                time_sides, model, rules, arguments.rounds, arguments.seconds, one_core=True
            )
        except RuntimeError as error:
            print(f"{model}: {error}", file=sys.stderr)
            continue
        timed[model] = timed.get(model, {}) | sides
        # Partial results are written, as a run takes an hour.
        arguments.output.write_text(json.dumps(results, indent=1))
    Console(width=160).print(table([*arguments.rules, AGAIN], results))
    if arguments.output == RESULTS:
        publish(results)


if __name__ == "__main__":
    main()
