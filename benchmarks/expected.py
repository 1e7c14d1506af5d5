"""Expectations of `explain` beside measured ratios: ``python -m benchmarks.expected``.

Prints, for each model of the suite, the times as fast that :mod:`pymc_fastlogp.explanation.expected` gives for the whole
model, the ratio in ``benchmarks/results/latest.json``, and how many of them are within a factor of two.
"""

import json
from math import exp, log

from rich.console import Console
from rich.table import Table

import pymc_fastlogp
from benchmarks.report import RESULTS
from benchmarks.suite import SUITE


def main() -> None:
    """Print the table."""
    measured = {
        case["name"]: case["evaluation"] for case in json.loads(RESULTS.read_text())["cases"]
    }
    table = Table("model", "expected", "measured", "expected / measured")
    errors = []
    for case in SUITE:
        if case.name not in measured:
            continue
        ratio = measured[case.name]["sides"]["off"]["ratio"]["median"]
        expected = pymc_fastlogp.explain(case.make()).expected_ratio
        errors.append(log(expected / ratio))
        table.add_row(case.title, f"{expected:.3g}", f"{ratio:.3g}", f"{expected / ratio:.2f}")
    console = Console()
    console.print(table)
    within = sum(abs(error) < log(2) for error in errors)
    worst = exp(max(map(abs, errors)))
    console.print(
        f"{within} of {len(errors)} within a factor of two, the worst off by {worst:.2g}."
    )


if __name__ == "__main__":
    main()
