"""A process of ``python -m benchmarks.first_draw``: nothing that a side imports is imported before the clock runs, and the plugin never where it is off."""

import argparse
import json
import sys
import time
from typing import Any

from benchmarks.suite import case

WITHOUT_PLUGIN = ("off", "JAX")
SETTINGS = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2, "random_seed": 1}


def sample(arguments: argparse.Namespace) -> dict[str, float]:
    """Import, make the model, sample; return the seconds of each part."""
    if arguments.side == "Stan":
        return sample_by_stan(arguments)
    start = time.perf_counter()
    import pymc as pm

    if arguments.side not in WITHOUT_PLUGIN:
        import pymc_fastlogp
    if arguments.side != "sample" or arguments.draws:  # which does without
        import nutpie  # noqa: F401

    imported = time.perf_counter()
    model = case(arguments.model[0]).make()
    options = {"model": model, "progressbar": False, "quiet": True, **SETTINGS}
    if arguments.draws:
        options |= {"draws": arguments.draws, "tune": arguments.draws, "chains": 1}
    begin = time.perf_counter()
    match arguments.side:
        case "sample":
            idata = pymc_fastlogp.sample(**options)
        case "JAX":
            idata = pm.sample(**options, nuts_sampler="nutpie", compile_kwargs={"backend": "jax"})
        case _:
            idata = pm.sample(**options, nuts_sampler="nutpie")
    call = time.perf_counter() - begin
    if arguments.side in WITHOUT_PLUGIN:
        assert "pymc_fastlogp" not in sys.modules, "the plugin was imported"
    sampling = idata["posterior"].attrs["sampling_time"]
    return {"imports": imported - start, "compile": call - sampling, "sampling": sampling}


def sample_by_stan(arguments: argparse.Namespace) -> dict[str, float]:
    """Do the same with stanli; its draws become a ``DataTree``, whose time counts as compiling, as it does on the other sides."""
    start = time.perf_counter()
    import stanli
    from arviz_base import from_dict

    imported = time.perf_counter()
    program, data = case(arguments.model[0]).stan_code(), case(arguments.model[0]).stan_data()
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


def time_logp(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time logp and gradient, nutpie's callback with the plugin off against that of ``pymc_fastlogp.sample``."""
    from pymc_fastlogp import compile_pymc_model
    from pymc_fastlogp.benchmarking import BenchmarkResult
    from pymc_fastlogp.benchmarking.native import LogpCallback
    from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
    from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

    make = case(arguments.model[0]).make
    off = compile_side(make(), "off")
    on = LogpCallback.from_compiled(compile_pymc_model(make()))
    points = legal_points(off, seed=0)
    check_agreement(on.evaluate, off.evaluate, points)
    timers = {"off": off.timer(points), "on": on.timer(points)}
    with pinned():
        seconds = time_in_turn(timers, rounds=21, seconds_per_round=0.05)
    return BenchmarkResult(n_dim=points.shape[1], seconds=seconds).to_dict()


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--logp", action="store_true")
    parser.add_argument("--side")
    parser.add_argument(
        "--draws", type=int, help="as many of one chain, and as many of its warm-up"
    )
    parser.add_argument("--model", nargs=1)
    arguments = parser.parse_args()
    print(json.dumps((time_logp if arguments.logp else sample)(arguments)))


if __name__ == "__main__":
    main()
