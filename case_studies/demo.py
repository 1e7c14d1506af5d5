"""Sample two real hierarchical models with the plugin off and on, compare, and save a plot.

``make demo`` runs this. It exits with 0 if the posteriors agree, and with 1 otherwise.
"""

import sys
from collections.abc import Callable
from math import erfc, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import pymc_fastlogp
from benchmarks.models import radon
from case_studies import sleepstudy_model
from case_studies.comparison import MCSE_LIMIT, agreement, compare_posteriors, verdict
from case_studies.sampling import (
    Run,
    compile_model,
    is_rewritten,
    sample,
    silence_blas_warning,
    time_logp,
)
from pymc_fastlogp.benchmarking import BenchmarkResult

MODELS: dict[str, Callable[[], pm.Model]] = {
    "radon": radon.make,
    "sleepstudy": sleepstudy_model.make,
}
PLOT = Path("demo.png")


class Result(NamedTuple):
    """One model, sampled with the plugin off and on."""

    name: str
    off: Run
    on: Run
    rewritten: bool
    timing: BenchmarkResult

    @property
    def comparison(self) -> pd.DataFrame:
        """The posterior means side by side."""
        return compare_posteriors(self.off.summary, self.on.summary)

    @property
    def sentence(self) -> str:
        """Sentence on the plugin's effect on this model."""
        return f"{self.name}: {verdict(self.timing.ratio('off').median, self.rewritten)}."


def main() -> int:
    """Run the demo; return the exit code."""
    console = Console()
    silence_blas_warning()
    if not pymc_fastlogp.is_enabled():
        console.print(
            "The plugin is off, so there is nothing to compare: unset PYMC_FASTLOGP, and use "
            "versions of PyMC and PyTensor that `python -m pymc_fastlogp` calls tested."
        )
        return 2
    results = [measure(name, make, console) for name, make in MODELS.items()]
    for result in results:
        console.print(posterior_table(result), timing_table(result), sep="\n")
    console.print(why_that_limit(sum(len(result.comparison) for result in results)))
    for result in results:
        console.print(result.sentence)
    plot(results, PLOT)
    console.print(f"Plot saved as {PLOT}.")
    return exit_code([result.comparison for result in results])


def why_that_limit(n_means: int) -> str:
    """Return the reason for the allowed distance of two posterior means, as chances of a false alarm."""
    alarms = {limit: n_means * erfc(limit / sqrt(2)) for limit in (2.0, MCSE_LIMIT)}
    return (
        f"{MCSE_LIMIT:g} MCSE are allowed because {n_means} means of random draws are compared at once:"
        f" of equal posteriors, about {alarms[2.0]:.0f} of them would differ by more than 2 MCSE by"
        f" chance, and {alarms[MCSE_LIMIT]:.1g} by more than {MCSE_LIMIT:g}."
    )


def exit_code(comparisons: list[pd.DataFrame]) -> int:
    """Return 0 if all posterior means of all models agree, else 1."""
    return 0 if all(comparison["agrees"].all() for comparison in comparisons) else 1


def measure(name: str, make: Callable[[], pm.Model], console: Console) -> Result:
    """Compile, sample and time one model both ways."""
    with progress_display(console) as progress:
        compiled = {side: compile_side(name, side, make, progress) for side in ("off", "on")}
        runs = {side: sample_side(name, side, *compiled[side], progress) for side in compiled}
        task = progress.add_task(f"{name}, timing logp in turn", total=None)
        off, on = compiled["off"][0], compiled["on"][0]
        timing = time_logp(off, on)
        progress.update(task, total=1, completed=1)
    return Result(name, runs["off"], runs["on"], is_rewritten(off, on), timing)


def progress_display(console: Console) -> Progress:
    """Return a display of one line a step."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def compile_side(
    name: str, side: str, make: Callable[[], pm.Model], progress: Progress
) -> tuple[Any, float]:
    """Compile one side; return the compiled model and the seconds taken."""
    task = progress.add_task(f"{name}, compiling, plugin {side}", total=None)
    compiled, seconds = compile_model(make, on=side == "on")
    progress.update(task, total=1, completed=1)
    return compiled, seconds


def sample_side(
    name: str, side: str, compiled: Any, compile_seconds: float, progress: Progress
) -> Run:
    """Sample one side, with nutpie's counters in the display."""
    task = progress.add_task(f"{name}, sampling, plugin {side}", total=None)

    def show(chains: list[Any]) -> None:
        total = sum(chain.total_draws for chain in chains)
        progress.update(task, total=total, completed=sum(c.finished_draws for c in chains))

    run = sample(compiled, compile_seconds, show)
    progress.update(task, total=1, completed=1)
    return run


def posterior_table(result: Result) -> Table:
    """Return the means of the parameters that are not one of a group."""
    title = escape(f"{result.name}: {agreement(result.comparison)}")
    table = Table(title=title, title_justify="left")
    table.add_column("posterior mean (MCSE)")
    for column in ("off", "on", "distance in MCSE"):
        table.add_column(column, justify="right")
    for name, row in population_rows(result).iterrows():
        table.add_row(
            escape(str(name)),
            f"{row.mean_off:.4g} ({row.mcse_off:.1g})",
            f"{row.mean_on:.4g} ({row.mcse_on:.1g})",
            f"{row.distance:.1f}",
        )
    return table


def population_rows(result: Result) -> pd.DataFrame:
    """Return the comparison without the variables that have a value for each group."""
    groups = {"county", "subject"}
    posterior = result.off.idata["posterior"]
    names = {str(name) for name, draws in posterior.items() if groups.isdisjoint(draws.dims)}
    comparison = result.comparison
    varies = comparison["mcse_off"] > 1e-12 * comparison["mean_off"].abs()
    return comparison[varies & comparison.index.str.split("[").str[0].isin(names)]


def timing_table(result: Result) -> Table:
    """Return diagnostics and timings, one column a side."""
    table = Table(title=f"{result.name}: diagnostics and timings", title_justify="left")
    table.add_column("")
    for column in ("off", "on"):
        table.add_column(column, justify="right")
    runs = (result.off, result.on)
    microseconds = (result.timing.median(side) * 1e6 for side in ("off", "on"))
    ratio = result.timing.ratio("off")
    table.add_row("worst R-hat", *(f"{run.worst_rhat:.3f}" for run in runs))
    table.add_row("divergences", *(str(run.divergences) for run in runs))
    table.add_row("compile, s *", *(f"{run.compile_seconds:.1f}" for run in runs))
    table.add_row("sampling, s", *(f"{run.sampling_seconds:.2f}" for run in runs))
    table.add_row("smallest ESS per second", *(f"{run.ess_per_second:.0f}" for run in runs))
    table.add_row("logp and gradient, us", *(f"{value:.2f}" for value in microseconds))
    table.add_row("ratio off / on, paired", "", f"{ratio.median:.2f}")
    table.add_row("  its quartiles", "", f"{ratio.lower:.2f} to {ratio.upper:.2f}")
    table.caption = "* off is compiled first, and leaves machine code in the cache for on"
    table.caption_justify = "left"
    return table


def plot(results: list[Result], path: Path) -> None:
    """Save the picture of :func:`draw`."""
    draw(results).savefig(path, dpi=150)


def draw(results: list[Result]) -> Figure:
    """Return a figure of how far the posterior means are apart, and the times; one row a model."""
    figure = Figure(figsize=(12, 3.5 * len(results)), layout="constrained")
    for result, axes in zip(results, figure.subplots(len(results), 3, squeeze=False), strict=True):
        plot_distances(result, axes[0])
        median = {side: result.timing.median(side) * 1e6 for side in ("off", "on")}
        ratio = result.timing.ratio("off").median
        plot_sides(axes[1], median, f"logp and gradient: off / on is {ratio:.2f}", "microseconds")
        seconds = {"off": result.off.sampling_seconds, "on": result.on.sampling_seconds}
        ratio = seconds["off"] / seconds["on"]
        plot_sides(axes[2], seconds, f"sampling, one run: off / on is {ratio:.2f}", "seconds")
    return figure


def plot_distances(result: Result, ax: Axes) -> None:
    """Draw a histogram of the distances of the means, in their standard errors, and the limits."""
    comparison = result.comparison
    z = (comparison["mean_on"] - comparison["mean_off"]) / np.hypot(
        comparison["mcse_on"], comparison["mcse_off"]
    )
    z = z[comparison["distance"] > 0]  # not what is a constant up to round-off
    edge = max(MCSE_LIMIT, z.abs().max()) + 1
    ax.hist(z, bins=np.arange(-np.ceil(edge), np.ceil(edge) + 0.1, 0.5), color="C0")
    for limit in (-MCSE_LIMIT, MCSE_LIMIT):
        ax.axvline(limit, color="C3", linestyle="--")
    ax.set_title(f"{result.name}: {len(z)} posterior means, on - off")
    ax.set_xlabel(f"difference in MCSE (dashed: the limit, {MCSE_LIMIT:g})")
    ax.set_ylabel("number of means")


def plot_sides(ax: Axes, values: dict[str, float], title: str, unit: str) -> None:
    """Draw a bar for each side, with its value beside it."""
    bars = ax.barh(list(values), list(values.values()), color=["0.6", "C0"])
    ax.bar_label(bars, fmt="{:.3g}", padding=3)
    ax.margins(x=0.15)
    ax.invert_yaxis()
    ax.set_title(title)
    ax.set_xlabel(unit)


if __name__ == "__main__":
    sys.exit(main())
