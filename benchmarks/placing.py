"""Effective samples of models as users write them, as written and reparametrized: ``python -m benchmarks.placing [NAME ...] [--seeds N]``.

The models of ``tests/reparametrization/as_written.py`` have unusual structure, and ``reparametrize`` must not make them worse. They are small, so effective samples per
1000 gradients, warm-up included, and divergences are compared instead of seconds. Four chains of 1000 + 1000 draws a seed.
"""

import argparse
import logging
from statistics import median
from typing import Any

import pymc as pm
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pymc_fastlogp
from benchmarks.effective import effective
from tests.reparametrization import as_written

MODELS = {x.__name__: x for x in as_written.ALL}
OPTIONS: dict[str, Any] = {
    "draws": 1000,
    "tune": 1000,
    "chains": 4,
    "cores": 1,
    "progressbar": False,
    "quiet": True,
    "discard_tuned_samples": False,
}


def measured(model: pm.Model, seeds: range, *, reparametrize: bool) -> list[dict[str, Any]]:
    """Return effective samples of the worst quantity, gradients and divergences by seed."""
    found = []
    for seed in seeds:
        idata = pymc_fastlogp.sample(
            model=model, reparametrize=reparametrize, random_seed=seed, **OPTIONS
        )
        worst = effective({x: y.to_numpy() for x, y in idata.posterior.data_vars.items()})
        groups = (idata.sample_stats, idata.warmup_sample_stats)
        found.append(
            {
                "effective": min(worst["bulk"], worst["tail"]),
                "gradients": sum(int(x["n_steps"].sum()) for x in groups),
                "divergences": int(idata.sample_stats["diverging"].sum()),
                "rhat": worst["rhat"],
                "slowest": worst["slowest"],
            }
        )
    return found


def row_of(name: str, seeds: range) -> list[str]:
    """Return a row of the table: medians of the seeds."""
    model = MODELS[name]()
    sides = [measured(model, seeds, reparametrize=x) for x in (False, True)]

    def middle(key: str) -> list[float]:
        return [median(run[key] for run in runs) for runs in sides]

    samples, gradients = middle("effective"), middle("gradients")
    each = [1000 * n / k for n, k in zip(samples, gradients, strict=True)]
    return [
        name,
        " / ".join(f"{x:.0f}" for x in samples),
        " / ".join(f"{x:.3g}" for x in each),
        f"{samples[1] / samples[0]:.2f}",
        f"{each[1] / each[0]:.2f}",
        " / ".join(f"{x:.0f}" for x in middle("divergences")),
        " / ".join(f"{x:.3f}" for x in middle("rhat")),
        " / ".join(runs[0]["slowest"] for runs in sides),
    ]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placing")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    logging.getLogger("pymc_fastlogp").setLevel(logging.ERROR)
    table = Table(title="as written / reparametrized")
    columns = ("model", "effective samples", "for 1000 gradients", "ratio", "ratio for gradients")
    for column in (*columns, "divergences", "R-hat", "worst"):
        table.add_column(column)
    for name in track(arguments.names or list(MODELS), transient=True):
        table.add_row(*row_of(name, range(1, 1 + arguments.seeds)))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
