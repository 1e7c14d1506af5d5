"""Child process of the gallery: ``python -m benchmarks.gallery.measure NAME ...``, a line of JSON for each model.

One process measures several models, as importing what nutpie and JAX need takes longer than most measurements.
"""

import argparse
import json
from math import prod
from typing import Any

import pymc as pm

from benchmarks.child import error_line
from benchmarks.gallery.registry import MODELS, Entry
from benchmarks.sides import Reference, fastest
from pymc_fastlogp.benchmarking import BenchmarkResult
from pymc_fastlogp.benchmarking.pairing import time_in_turn
from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points

ROUNDS, SECONDS_PER_ROUND = 7, 0.05

# What a line with a record begins with; packages may print others.
LINE = "record: "


def measure(entry: Entry) -> dict[str, Any]:
    """Time logp and gradient of a model, frozen, with the plugin off and on and in JAX, in turn."""
    # A model a side: what PyMC rewrites in place while compiling the first must not help the second.
    callbacks = {side: compile_side(entry.make(), side) for side in ("off", "on")}
    points = legal_points(callbacks["off"], seed=0)
    check_agreement(callbacks["on"].evaluate, callbacks["off"].evaluate, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}

    model = entry.make()
    notes, failures = {}, {}
    try:
        reference = Reference.of(model, callbacks["off"], points)
        notes["jax"], timers["jax"] = fastest("jax", entry, model, reference)
    except Exception as error:
        failures["jax"] = error_line(error)
    seconds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    result = BenchmarkResult(n_dim=points.shape[1], seconds=seconds)
    return {
        "rows": rows(model),
        "evaluation": result.to_dict(),
        "notes": notes,
        "failures": failures,
    }


def rows(model: pm.Model) -> int:
    """Return how many numbers are observed."""
    return sum(int(prod(variable.shape.eval())) for variable in model.observed_RVs)


def main() -> None:
    """Print a line for each named model, also for those that fail."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    for name in parser.parse_args().names:
        try:
            record = measure(MODELS[name])
        except Exception as error:
            record = {"failures": {"evaluate": error_line(error)}}
        print(LINE + json.dumps({"name": name, **record}), flush=True)


if __name__ == "__main__":
    main()
