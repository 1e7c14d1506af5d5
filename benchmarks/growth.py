"""Growth of compile time with the size of a model: ``python -m benchmarks.growth [--likelihoods 50 100 200] [--plot FILE]``.

Processor time of ``compile_pymc_model`` with nothing on disk, step by step, for models of that many likelihoods, normal, Poisson and
Bernoulli by turns, of some thirty rows each: all of the same length, which become few loops, and each of another, which become many. Every
model in a process of its own, which has compiled a small one before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from math import log
from unittest import mock

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.fresh_process import environment
from benchmarks.rewriting import KERNELS, UPSTREAM, compiling, counted, small
from pymc_fastlogp.kernel.native import machine_code

ROWS, GROUPS = 30, 20
KINDS = ("same length", "different lengths")
# Our rules, lowering to loops and their passes, PyTensor's rewriting, LLVM with the text that it reads, all else.
STEPS = ("rules", "kernels", "PyTensor", "machine code", "other", "all")
MACHINE_CODE = STEPS[3]


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


def seconds(n: int, kind: str) -> dict[str, float]:
    """Return how long each step of compiling a model takes in this process."""
    compiling(small)
    with counted() as clock:
        timed = clock.timed(machine_code.object_code, lambda _: MACHINE_CODE)
        with mock.patch.object(machine_code, "object_code", timed):
            every = compiling(lambda: make(n, kind))
    named = {step: clock.seconds.pop(step) for step in (KERNELS, UPSTREAM, MACHINE_CODE)}
    found = {"rules": sum(clock.seconds.values()), **named, "all": every}
    return found | {"other": 2 * every - sum(found.values())}


def _in_child(n: int, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--likelihoods", str(n), "--kind", kind]
    with tempfile.TemporaryDirectory() as folder:
        own = environment(folder, kept="0")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=own)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _plot(found: dict[str, list[dict[str, float]]], sizes: list[int], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        ncols=len(found), sharey=True, figsize=(8, 3.8), layout="constrained"
    )
    for axes, (kind, times) in zip(panels, found.items(), strict=True):
        for step in STEPS:
            axes.loglog(sizes, [each[step] for each in times], "o-", label=step, markersize=3)
        first = times[0]["all"] / (sizes[0] * log(sizes[0]))
        axes.loglog(sizes, [first * n * log(n) for n in sizes], "k:", label="n log n")
        axes.set(xlabel="likelihoods", title=kind, xticks=sizes)
        axes.set_xticklabels(map(str, sizes))
        axes.minorticks_off()
    panels[0].set_ylabel("seconds of processor time")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=150)


def _table(kind: str, times: list[dict[str, float]], sizes: list[int]) -> Table:
    """Return a row a model: seconds, and in how many times the n log n of the model before."""
    table = Table("likelihoods", *STEPS, title=f"{kind}: seconds (by n log n of the row above)")
    for k, n in enumerate(sizes):
        expected = n * log(n) / (sizes[k - 1] * log(sizes[k - 1])) if k else 0
        cells = (
            f"{times[k][step]:.2f}"
            + (f" ({times[k][step] / times[k - 1][step] / expected:.2f})" if k else "")
            for step in STEPS
        )
        table.add_row(str(n), *cells)
    return table


def main() -> None:
    """Measure models in processes of their own, or one in this process if its kind is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--likelihoods", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--plot", help="where a picture is written")
    arguments = parser.parse_args()
    sizes = arguments.likelihoods
    if arguments.kind:
        print(json.dumps(seconds(sizes[0], arguments.kind)))
        return
    found = {}
    for kind in KINDS:
        found[kind] = [_in_child(n, kind) for n in track(sizes, kind)]
        Console(width=120).print(_table(kind, found[kind], sizes))
    if arguments.plot:
        _plot(found, sizes, arguments.plot)


if __name__ == "__main__":
    main()
