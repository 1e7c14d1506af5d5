"""How compiling grows with a model: ``python -m benchmarks.growth [--likelihoods 50 100 200] [--plot FILE]``.

Processor time of ``compile_pymc_model`` with nothing on disk, for models of that many likelihoods, normal, Poisson and Bernoulli by turns,
of some thirty rows each: all of the same length, which become few loops, and each of another, which become many. Every model in a process
of its own, which has compiled a small one before.
"""

import argparse
import subprocess
import sys
import tempfile
from time import process_time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from rich.console import Console
from rich.progress import track
from rich.table import Table

import pymc_fastlogp
from benchmarks.fresh_process import environment

ROWS, GROUPS = 30, 20
KINDS = ("same length", "different lengths")


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


def seconds(n: int, kind: str) -> float:
    """Return how long a model takes to compile in this process."""
    pymc_fastlogp.compile_pymc_model(make(3, kind))
    model = make(n, kind)
    start = process_time()
    pymc_fastlogp.compile_pymc_model(model)
    return process_time() - start


def _in_child(n: int, kind: str) -> float:
    command = [sys.executable, "-m", "benchmarks.growth", "--likelihoods", str(n), "--kind", kind]
    with tempfile.TemporaryDirectory() as folder:
        own = environment(folder, kept="0")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=own)
    return float(done.stdout.split()[-1])


def _plot(found: dict[str, list[float]], sizes: list[int], path: str) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, ScalarFormatter

    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for kind, times in found.items():
        axes.loglog(sizes, times, "o-", label=kind)
    first = min(times[0] for times in found.values())
    axes.loglog(sizes, [first * n / sizes[0] for n in sizes], "k:", label="in proportion")
    axes.set(xlabel="likelihoods", ylabel="seconds of processor time", xticks=sizes)
    axes.set_xticklabels(map(str, sizes))
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure models in processes of their own, or one in this process if its kind is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--likelihoods", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--plot", help="where a picture is written")
    arguments = parser.parse_args()
    sizes = arguments.likelihoods
    if arguments.kind:
        print(seconds(sizes[0], arguments.kind))
        return
    found = {kind: [_in_child(n, kind) for n in track(sizes, kind)] for kind in KINDS}
    table = Table("likelihoods", *KINDS, title="seconds to compile")
    for n, *times in zip(sizes, *found.values(), strict=True):
        table.add_row(str(n), *(f"{t:.1f}" for t in times))
    Console().print(table)
    if arguments.plot:
        _plot(found, sizes, arguments.plot)


if __name__ == "__main__":
    main()
