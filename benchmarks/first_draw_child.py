"""Functions of the processes of :mod:`benchmarks.first_draw`, which import nothing of a side before the clock runs, and never the plugin on a side without it."""

import os
import sys
import time
from typing import Any

from benchmarks.suite import case

WITHOUT_PLUGIN = ("off", "nutpie-JAX", "NumPyro")
SETTINGS: dict[str, Any] = {
    "draws": 1000,
    "tune": 1000,
    "chains": 4,
    "cores": 2,
    "random_seed": 1,
}


def sample(side: str, name: str, draws: int | None = None) -> dict[str, float]:
    """Return the seconds of imports, compilation and sampling of one side.

    Parameters
    ----------
    side : str
        A side of :data:`benchmarks.first_draw_report.SIDES`.
    name : str
        Name of a model of the suite.
    draws : int, optional
        Number of draws and of tuning steps of a single chain; 4 chains of 1000 + 1000 by default.
    """
    _use_two_cores()
    if side == "Stan":
        return _sample_by_stan(name)
    start = time.perf_counter()
    import pymc as pm

    if side not in WITHOUT_PLUGIN:
        import pymc_fastlogp
    if side == "NumPyro":
        import numpyro  # noqa: F401
        import pymc.sampling.jax  # makes several devices, so that chains run in parallel
    elif side != "sample" or draws:  # which needs no nutpie package
        import nutpie  # noqa: F401

    imported = time.perf_counter()
    model = case(name).make()
    options = {"model": model, "progressbar": False, "quiet": True, **SETTINGS}
    if draws:
        options |= {"draws": draws, "tune": draws, "chains": 1}
    begin = time.perf_counter()
    match side:
        case "sample":
            idata = pymc_fastlogp.sample(**options)
        case "compile_kwargs":
            compile_kwargs = pymc_fastlogp.compile_kwargs()
            idata = pm.sample(**options, nuts_sampler="nutpie", compile_kwargs=compile_kwargs)
        case "nutpie-JAX":
            idata = pm.sample(**options, nuts_sampler="nutpie", compile_kwargs={"backend": "jax"})
        case "NumPyro":
            idata = pm.sample(**options, nuts_sampler="numpyro")
        case _:
            idata = pm.sample(**options, nuts_sampler="nutpie")
    call = time.perf_counter() - begin
    if side in WITHOUT_PLUGIN:
        assert "pymc_fastlogp" not in sys.modules, "the plugin was imported"
    sampling = idata["posterior"].attrs["sampling_time"]
    return {"imports": imported - start, "compile": call - sampling, "sampling": sampling}


def _use_two_cores() -> None:
    """Restrict the process to two cores: XLA and BLAS take all that they find."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: SETTINGS["cores"]])


def _sample_by_stan(name: str) -> dict[str, float]:
    """Sample with stanli. The conversion of draws to a ``DataTree`` counts as compilation, as on the other sides."""
    start = time.perf_counter()
    import stanli
    from arviz_base import from_dict

    imported = time.perf_counter()
    program, data = case(name).stan_code(), case(name).stan_data()
    begin = time.perf_counter()
    model = stanli.Model(stan_code=program, data=data)
    compiled = time.perf_counter()
    fit = model.sample(
        chains=SETTINGS["chains"],
        seed=SETTINGS["random_seed"],
        warmup=SETTINGS["tune"],
        samples=SETTINGS["draws"],
        parallel_chains=SETTINGS["cores"],
        refresh=0,
    )
    sampled = time.perf_counter()
    from_dict({"posterior": {name: fit.draws(name) for name in fit.variables}})
    end = time.perf_counter()
    return {
        "imports": imported - start,
        "compile": compiled - begin + end - sampled,
        "sampling": sampled - compiled,
    }


def time_logp(name: str) -> dict[str, Any]:
    """Time logp and gradient: nutpie's callback with the plugin off, against the callback of ``pymc_fastlogp.sample``."""
    from pymc_fastlogp import compile_pymc_model
    from pymc_fastlogp.benchmarking import BenchmarkResult
    from pymc_fastlogp.benchmarking.native import LogpCallback
    from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
    from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

    make = case(name).make
    off = compile_side(make(), "off")
    on = LogpCallback.from_compiled(compile_pymc_model(make()))
    points = legal_points(off, seed=0)
    check_agreement(on.evaluate, off.evaluate, points)
    timers = {"off": off.timer(points), "on": on.timer(points)}
    with pinned():
        seconds = time_in_turn(timers, rounds=21, seconds_per_round=0.05)
    return BenchmarkResult(n_dim=points.shape[1], seconds=seconds).to_dict()
