"""Growth of compile time with the number of likelihoods of a model.

Processor time of the stages of ``compile_pymc_model`` with nothing on disk. The likelihoods are normal, Poisson and Bernoulli in turn, of about
thirty rows: all of equal length, which become few loops, or all of different lengths, which become many. Each model is compiled in a process of its own.
"""

import argparse
from collections.abc import Iterator
from math import log
from unittest import mock

import numpy as np
import pymc as pm
import pytensor.tensor as pt
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
from pymc_fastlogp.kernel.native import machine_code

ROWS, GROUPS = 30, 20
KINDS = ("same length", "different lengths")
# The stage "machine code" includes parsing of LLVM's text, "other" is the rest of "all".
MACHINE_CODE = "machine code"
STAGES = ("rules", KERNELS, UPSTREAM, MACHINE_CODE, "other", "all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--likelihoods", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--plot", metavar="FILE", help="draw a picture")


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table for each kind of model, and draw the picture."""
    sizes, found = arguments.likelihoods, {}
    for kind in KINDS:
        found[kind] = [call(measure, n, kind, kept="0") for n in track(sizes, kind)]
        yield _table(kind, found[kind], sizes)
    if arguments.plot:
        _plot(found, sizes, arguments.plot)


def make(n: int, kind: str) -> pm.Model:
    """Return a model of n likelihoods."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        mu, sigma, b = pm.Normal("mu"), pm.HalfNormal("sigma"), pm.Normal("b")
        a = pm.Normal("a", mu, sigma, shape=GROUPS)
        for k in range(n):
            rows = ROWS if kind == KINDS[0] else ROWS + k
            eta = a[rng.integers(GROUPS, size=rows)] + b * rng.normal(size=rows)
            if k % 3 == 0:
                pm.Normal(f"y{k}", eta, sigma, observed=rng.normal(size=rows))
            elif k % 3 == 1:
                pm.Poisson(f"y{k}", pt.exp(eta), observed=rng.poisson(2, size=rows))
            else:
                pm.Bernoulli(f"y{k}", logit_p=eta, observed=rng.integers(2, size=rows))
    return model


def measure(n: int, kind: str) -> dict[str, float]:
    """Return the seconds of each stage of compiling a model in this process."""
    compile_small()
    model = make(n, kind)
    with counted() as clock:
        timed = clock.timed(machine_code.object_code, lambda _: MACHINE_CODE)
        with mock.patch.object(machine_code, "object_code", timed):
            whole = compile_seconds(model)
    named = {stage: clock.seconds.pop(stage) for stage in (KERNELS, UPSTREAM, MACHINE_CODE)}
    found = {"rules": sum(clock.seconds.values()), **named}
    return {**found, "other": whole - sum(found.values()), "all": whole}


def _table(kind: str, times: list[dict[str, float]], sizes: list[int]) -> Table:
    """Return a row a model: seconds, and their ratio to the n log n growth of the row above."""
    table = Table("likelihoods", *STAGES, title=f"{kind}: seconds (by n log n of the row above)")
    for k, n in enumerate(sizes):
        expected = n * log(n) / (sizes[k - 1] * log(sizes[k - 1])) if k else 0
        cells = (
            f"{times[k][stage]:.2f}"
            + (f" ({times[k][stage] / times[k - 1][stage] / expected:.2f})" if k else "")
            for stage in STAGES
        )
        table.add_row(str(n), *cells)
    return table


def _plot(found: dict[str, list[dict[str, float]]], sizes: list[int], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        ncols=len(found), sharey=True, figsize=(8, 3.8), layout="constrained"
    )
    for axes, (kind, times) in zip(panels, found.items(), strict=True):
        for stage in STAGES:
            axes.loglog(sizes, [each[stage] for each in times], "o-", label=stage, markersize=3)
        first = times[0]["all"] / (sizes[0] * log(sizes[0]))
        axes.loglog(sizes, [first * n * log(n) for n in sizes], "k:", label="n log n")
        axes.set(xlabel="likelihoods", title=kind, xticks=sizes)
        axes.set_xticklabels(map(str, sizes))
        axes.minorticks_off()
    panels[0].set_ylabel("seconds of processor time")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=150)
