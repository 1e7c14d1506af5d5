"""Posteriors of models with correlated effects, plugin off against on: ``python -m benchmarks.calibration``.

Each side samples each model with several seeds, no seed twice, so that all chains are
independent. With the same seed the two sides would draw the same numbers until round-off has grown, which would
show less. :mod:`benchmarks.permutation` says whether location and scale of any scalar of the posterior differ.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arviz as az
import numpy as np
import nutpie
import rich
import xarray as xr
from rich.progress import track
from threadpoolctl import threadpool_limits

import pymc_fastlogp
from benchmarks import permutation, report
from benchmarks.machine import context
from benchmarks.suite import case
from case_studies import sleepstudy_model
from pymc_fastlogp.config import switched

if TYPE_CHECKING:
    import pymc as pm

RESULTS = report.ROOT / "benchmarks" / "results" / "calibration.json"
PAGE = report.ROOT / "docs" / "calibration.md"

MODELS: dict[str, Callable[[], "pm.Model"]] = {
    "sleepstudy, LKJCholeskyCov n = 2, non-centered": sleepstudy_model.make,
    "LKJCholeskyCov slopes n = 4, non-centered, 2 000 rows": case("lkj_slopes").make,
    "LKJCorr n = 10 with MvNormal, 200 rows": case("lkj_corr_mvnormal").make,
}

# Of a false alarm anywhere: for location and scale of each model.
FAMILY_LEVEL = 0.01
LEVEL = FAMILY_LEVEL / (2 * len(MODELS))

# The entries on the diagonal of a correlation matrix vary by round-off only.
ROUND_OFF = 1e-12


@dataclass(frozen=True)
class Effort:
    """Number of draws on each side."""

    seeds: int = 8
    chains: int = 4
    draws: int = 1_000


FULL = Effort()
SHORT = Effort(seeds=2, draws=300)


def main() -> int:
    """Sample, test, print the table, write the JSON and the table of the docs page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds; writes no file")
    effort = SHORT if parser.parse_args().quick else FULL
    results: dict[str, Any] = {
        **context(),
        "family_level": FAMILY_LEVEL,
        "effort": asdict(effort),
        "models": [compare(title, effort) for title in track(MODELS, "sampling")],
    }
    rich.print(report.rich_table("Posteriors, plugin off and on", COLUMNS, results["models"]))
    if effort == FULL:
        publish(results, RESULTS, PAGE)
    return int(any(is_different(record) for record in results["models"]))


def compare(title: str, effort: Effort) -> report.Record:
    """Sample a model off and on, and return the differences as plain data."""
    off, on = (scalars(sample(MODELS[title], on, effort)) for on in (False, True))
    varies = np.ptp(off, axis=(0, 1)) > ROUND_OFF * np.abs(off).max(axis=(0, 1))
    off, on = off[..., varies], on[..., varies]
    together = np.concatenate([off, on])
    tests = {
        name: permutation.difference(*np.split(measure(together), 2), level=LEVEL)._asdict()
        for name, measure in (("location", permutation.location), ("scale", permutation.scale))
    }
    draws = {"off": off, "on": on, "together": together}
    return {
        "title": title,
        "scalars": int(varies.sum()),
        "chains": len(off),
        "draws": effort.draws,
        "worst_rhat": {side: worst_rhat(of_side) for side, of_side in draws.items()},
        **tests,
    }


def sample(make: Callable[[], "pm.Model"], on: bool, effort: Effort) -> xr.Dataset:
    """Return the posterior draws of one side, all seeds' chains one after the other."""
    with switched(on):
        compiled = nutpie.compile_pymc_model(make(), **pymc_fastlogp.compile_kwargs())
    # The threads of BLAS compete with those of the chains.
    with threadpool_limits(1):
        runs = [
            nutpie.sample(
                compiled,
                draws=effort.draws,
                chains=effort.chains,
                seed=2 * seed + on,
                progress_bar=False,
            )
            for seed in range(effort.seeds)
        ]
    dataset = xr.concat([run["posterior"].to_dataset() for run in runs], "chain")
    return dataset.assign_coords(chain=np.arange(effort.seeds * effort.chains))


def scalars(posterior: xr.Dataset) -> np.ndarray:
    """Return the draws of all variables, shape (chains, draws, scalars)."""
    arrays = [
        variable.transpose("chain", "draw", ...).to_numpy()
        for _, variable in sorted(posterior.items())
    ]
    return np.concatenate([a.reshape(*a.shape[:2], -1) for a in arrays], axis=2)


def worst_rhat(draws: np.ndarray) -> float:
    """Return the largest R-hat of all scalars of an array as :func:`scalars` returns it."""
    return float(np.max(az.rhat(draws, chain_axis=0, draw_axis=1)))


def is_different(record: report.Record) -> bool:
    """Return whether either test of a model shows a difference."""
    return min(record[test]["p_value"] for test in ("location", "scale")) < LEVEL


def _test(name: str) -> Callable[[report.Record], str]:
    return lambda record: (
        f"{record[name]['largest']:.3f} ({record[name]['detectable']:.3f}), "
        f"p = {record[name]['p_value']:.2g}"
    )


COLUMNS: report.Columns = (
    *report.MODEL,
    ("scalars", lambda record: str(record["scalars"])),
    ("chains a side", lambda record: f"{record['chains']} of {record['draws']} draws"),
    (
        "worst R-hat off / on / together",
        lambda record: " / ".join(f"{rhat:.3f}" for rhat in record["worst_rhat"].values()),
    ),
    ("location", _test("location")),
    ("scale", _test("scale")),
)


def publish(results: dict[str, Any], path: Path, page: Path) -> None:
    """Write the JSON, and the table into the docs page."""
    path.write_text(json.dumps(results, indent=1))
    table = report.records_table(
        f"Measured on {results['date']}, PyMC {results['versions']['pymc']}, "
        f"commit {results['versions']['commit']}",
        COLUMNS,
        results["models"],
    )
    report.write_table(page, table)


if __name__ == "__main__":
    sys.exit(main())
