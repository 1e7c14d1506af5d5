"""Compilation of one model with the plugin off or on for the demo, sampling by nutpie, and their timings."""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import nutpie
import pandas as pd
import pymc as pm
from pytensor.graph.basic import equal_computations
from pytensor.graph.fg import FunctionGraph
from xarray import DataTree

import pymc_fastlogp
from case_studies.comparison import summarize
from pymc_fastlogp.benchmarking import BenchmarkResult
from pymc_fastlogp.benchmarking.run import time_compiled
from pymc_fastlogp.config import switched

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


def compile_model(make: Callable[[], pm.Model], on: bool) -> tuple[Any, float]:
    """Compile for nutpie with the plugin on or off, up to and including the first draw.

    Parameters
    ----------
    make
        Builds the model. Each side gets a model of its own, because PyMC rewrites parts of a
        model in place while compiling it, so that a second compilation can start elsewhere.
    on
        Whether the plugin acts.

    Returns
    -------
    tuple
        What ``nutpie.compile_pymc_model`` returns, and the seconds taken.
    """
    model = make()
    start = time.perf_counter()
    with switched(on):
        compiled = nutpie.compile_pymc_model(model, **pymc_fastlogp.compile_kwargs())
    nutpie.sample(compiled, draws=1, tune=1, chains=1, progress_bar=False)
    return compiled, time.perf_counter() - start


def sample(
    compiled: Any,
    compile_seconds: float,
    progress: Callable[[list[Any]], None] | None = None,
) -> Run:
    """Sample a compiled model; ``progress`` is called now and then with nutpie's counters."""
    start = time.perf_counter()
    idata = nutpie.sample(compiled, **SETTINGS, progress_bar=False, progress_callback=progress)
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


def silence_blas_warning() -> None:
    """Ignore PyTensor's warning about C code without BLAS: nothing here runs C code."""
    warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS installation")
