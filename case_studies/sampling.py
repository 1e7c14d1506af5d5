"""Compile one model with the plugin off or on, sample it by nutpie, and keep the timings."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import nutpie
import pandas as pd
import pymc as pm
from pytensor.graph.basic import equal_computations
from pytensor.graph.fg import FunctionGraph
from xarray import DataTree

import pymc_fastlogp
from benchmarks.sides import Reference, fastest
from benchmarks.suite import Case
from case_studies.comparison import summarize
from pymc_fastlogp.benchmarking import BenchmarkResult
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import check_agreement, legal_points, time_compiled
from pymc_fastlogp.config import switched

# What a case study compares: keyword arguments of :func:`compile_model`.
SIDES: dict[str, dict[str, Any]] = {
    "off": {"on": False},
    "on": {"on": True},
    "JAX": {"on": False, "backend": "jax", "gradient_backend": "jax"},
}
SETTINGS = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2, "seed": 20_240_229}


class Run(NamedTuple):
    """One run of the sampler: its draws, their summary and the seconds it took."""

    idata: DataTree
    summary: pd.DataFrame
    compile_seconds: float
    sampling_seconds: float

    @property
    def divergences(self) -> int:
        """Number of divergent transitions after tuning."""
        return int(self.idata["sample_stats"]["diverging"].sum())

    @property
    def worst_rhat(self) -> float:
        """Largest R-hat of all scalars that are not constant."""
        return float(self.summary["r_hat"].max())

    @property
    def ess_per_second(self) -> float:
        """Smallest bulk effective sample size, a second of sampling."""
        return float(self.summary["ess_bulk"].min() / self.sampling_seconds)

    @property
    def draws_per_second(self) -> float:
        """Draws after tuning of all chains, a second of sampling (tuning included)."""
        sizes = self.idata["posterior"].sizes
        return sizes["chain"] * sizes["draw"] / self.sampling_seconds

    @property
    def gradients(self) -> int:
        """Evaluations of logp and gradient: the leapfrog steps of all chains, with tuning."""
        groups = ("warmup_sample_stats", "sample_stats")
        return sum(int(self.idata[group]["n_steps"].sum()) for group in groups)


def compile_model(make: Callable[[], pm.Model], on: bool, **kwargs: Any) -> tuple[Any, float]:
    """Compile for nutpie with the plugin on or off, up to and including the first draw.

    The first draw belongs to it: with the JAX backend, that is when the machine code is made.

    Parameters
    ----------
    make
        Builds the model. Each side gets a model of its own, because PyMC rewrites parts of a
        model in place while compiling it, so that a second compilation can start elsewhere.
    on
        Whether the plugin acts.
    **kwargs
        For ``nutpie.compile_pymc_model``.

    Returns
    -------
    tuple
        What ``nutpie.compile_pymc_model`` returns, and the seconds taken.
    """
    model = make()
    start = time.perf_counter()
    with switched(on):
        compiled = nutpie.compile_pymc_model(model, **pymc_fastlogp.compile_kwargs(), **kwargs)
    nutpie.sample(compiled, draws=1, tune=1, chains=1, progress_bar=False)
    return compiled, time.perf_counter() - start


def compile_sides(make: Callable[[], pm.Model]) -> dict[str, tuple[Any, float]]:
    """Return what :func:`compile_model` does for each of :data:`SIDES`."""
    return {side: compile_model(make, **kwargs) for side, kwargs in SIDES.items()}


def throughput(runs: Mapping[str, Run]) -> pd.DataFrame:
    """Return what runs did in which time, and how well they mixed; one column a run."""
    return pd.DataFrame(
        {
            side: {
                "chains": run.idata["posterior"].sizes["chain"],
                "draws of a chain": run.idata["posterior"].sizes["draw"],
                "compile, s": run.compile_seconds,
                "sampling, s": run.sampling_seconds,
                "draws per second": run.draws_per_second,
                "gradients per second": run.gradients / run.sampling_seconds,
                "smallest bulk ESS per second": run.ess_per_second,
                "worst R-hat": run.worst_rhat,
                "divergences": run.divergences,
            }
            for side, run in runs.items()
        }
    )


def sample(
    compiled: Any,
    compile_seconds: float,
    progress: Callable[[list[Any]], None] | None = None,
    settings: Mapping[str, int] = SETTINGS,
) -> Run:
    """Sample a compiled model; ``progress`` is called now and then with nutpie's counters."""
    start = time.perf_counter()
    idata = nutpie.sample(compiled, **settings, progress_bar=False, progress_callback=progress)
    seconds = time.perf_counter() - start
    return Run(idata, summarize(idata), compile_seconds, seconds)


def is_rewritten(off: Any, on: Any) -> bool:
    """Return whether the logp and gradient of two compiled models are different graphs."""
    first: FunctionGraph = off.logp_func.maker.fgraph
    second: FunctionGraph = on.logp_func.maker.fgraph
    return not equal_computations(
        first.outputs, second.outputs, in_xs=first.inputs, in_ys=second.inputs
    )


def time_logp(off: Any, on: Any) -> BenchmarkResult:
    """Time logp and gradient of two compiled models as ``pymc_fastlogp.benchmark`` does."""
    return time_compiled(off, on, rounds=21, seconds_per_round=0.05, seed=SETTINGS["seed"])


def time_with_jax(off: Any, on: Any, model: pm.Model) -> BenchmarkResult:
    """Time logp and gradient as :func:`time_logp` does, with JAX as a third side.

    JAX repeats its function in a loop of its own, so no call from Python is between the
    evaluations; nutpie's JAX backend pays for that call as well. Of the gradients that PyTensor
    and JAX derive, the faster counts.

    Parameters
    ----------
    off, on
        The compiled models, Numba backend.
    model
        The same model, for JAX.

    Returns
    -------
    BenchmarkResult
        With the sides ``"off"``, ``"on"`` and ``"JAX"``.

    Raises
    ------
    AssertionError
        If a side disagrees with plugin off by more than round-off.
    """
    callbacks = {"off": LogpCallback.from_compiled(off), "on": LogpCallback.from_compiled(on)}
    points = legal_points(callbacks["off"], SETTINGS["seed"])
    check_agreement(callbacks["on"].evaluate, callbacks["off"].evaluate, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}
    reference = Reference.of(model, callbacks["off"], points)
    jax = fastest("jax", Case("case_study", "case study", "case_studies"), model, reference)
    assert jax is not None, "JAX has a side for every model"
    with pinned():
        seconds = time_in_turn(timers | {"JAX": jax.timer}, rounds=21, seconds_per_round=0.05)
    return BenchmarkResult(n_dim=points.shape[1], seconds=seconds)


def silence_blas_warning() -> None:
    """Ignore PyTensor's warning about C code without BLAS: nothing here runs C code."""
    warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS installation")
