"""Child process: one task for one case, its result as JSON.

    python -m benchmarks.child TASK CASE SIDE OUTPUT --rounds N --seconds S

A process per task keeps memory figures honest and failures apart.
"""

import argparse
import json
import platform
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp.benchmarking.pairing import time_in_turn

if TYPE_CHECKING:
    import nutpie
    import pymc as pm

CHAINS, TUNE, DRAWS = 2, 200, 200
SAMPLING_LIMIT_SECONDS = 30


def evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time one evaluation of logp and gradient, all sides in turn."""
    from benchmarks.sides import SIDES, Reference, fastest
    from benchmarks.suite import case as find_case
    from pymc_fastlogp import compile_pymc_model
    from pymc_fastlogp.benchmarking import BenchmarkResult
    from pymc_fastlogp.benchmarking.native import LogpCallback
    from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

    case = find_case(arguments.case)
    # One model for each side: PyMC's rewrites in place for the first must not help the second.
    callbacks = {side: compile_side(case.make(), side) for side in ("off", "on")}
    callbacks["direct"] = LogpCallback.from_compiled(compile_pymc_model(case.make()))
    model = case.make()
    points = legal_points(callbacks["off"], seed=0)
    for side in ("on", "direct"):
        check_agreement(callbacks[side].evaluate, callbacks["off"].evaluate, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}

    reference = Reference.of(model, callbacks["off"], points)
    notes, failures = {}, {}
    for side in SIDES:
        try:
            variant = fastest(side, case, model, reference)
        except Exception as error:
            failures[side] = error_line(error)
            continue
        if variant is not None:
            notes[side], timers[side] = variant

    seconds = time_in_turn(timers, rounds=arguments.rounds, seconds_per_round=arguments.seconds)
    result = BenchmarkResult(n_dim=points.shape[1], seconds=seconds)
    return {"evaluation": result.to_dict(), "notes": notes, "failures": failures}


def compile_only(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the compilation of one side."""
    return {"compile_seconds": _compile(arguments)[2]}


def session(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time compilation and the first draw, take the peak of memory, then sample a short run."""
    import nutpie

    start = time.perf_counter()
    model, compiled, compile_seconds = _compile(arguments)
    nutpie.sample(compiled, draws=1, tune=1, chains=1, cores=1, seed=1, progress_bar=False)
    first_draw_seconds = time.perf_counter() - start
    return {
        "compile_seconds": compile_seconds,
        "first_draw_seconds": first_draw_seconds,
        "peak_memory_bytes": _peak_memory_bytes(),
        **_sample(compiled, [variable.name for variable in model.free_RVs]),
    }


TASKS = {"evaluate": evaluate, "compile": compile_only, "session": session}


def _compile(arguments: argparse.Namespace) -> tuple["pm.Model", "nutpie.CompiledModel", float]:
    import nutpie  # noqa: F401, importing is not compiling

    from benchmarks.suite import case
    from pymc_fastlogp.benchmarking.run import compile_model

    model = case(arguments.case).make()
    start = time.perf_counter()
    compiled = compile_model(model, arguments.side)
    return model, compiled, time.perf_counter() - start


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _sample(compiled: "nutpie.CompiledModel", names: list[str]) -> dict[str, Any]:
    """Return the smallest bulk ESS of a short run over its seconds, tuning included.

    None, with the reason, if the run takes too long or a chain does not move.
    """
    import arviz
    import nutpie

    settings = {"draws": DRAWS, "tune": TUNE, "chains": CHAINS, "cores": 1, "seed": 1}
    start = time.perf_counter()
    sampler = nutpie.sample(compiled, **settings, progress_bar=False, blocking=False)
    try:
        idata = sampler.wait(timeout=SAMPLING_LIMIT_SECONDS)
    except TimeoutError:
        sampler.abort()
        reason = f"sampling was stopped after {SAMPLING_LIMIT_SECONDS} s"
        return {"ess_per_second": None, "ess_missing": reason}
    elapsed = time.perf_counter() - start
    ess = arviz.ess(idata, method="bulk", var_names=names)
    smallest = float(np.min([values.min() for values in ess.data_vars.values()]))
    if np.isnan(smallest):
        return {"ess_per_second": None, "ess_missing": "ESS is nan"}
    return {"ess_per_second": smallest / elapsed}


def error_line(error: BaseException) -> str:
    """Return an error as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"[:200]


def main() -> None:
    """Run the task that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("case")
    parser.add_argument("side")
    parser.add_argument("output", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2)
    arguments = parser.parse_args()
    try:
        answer = TASKS[arguments.task](arguments)
    except BaseException as error:  # panics of nutpie are no Exception
        arguments.output.write_text(json.dumps({"error": error_line(error)}))
        raise
    arguments.output.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
