"""Rows on the workers of a cluster: ``python -m benchmarks.cluster [--rows N] [--evaluations N] [--report]``.

The model is a logistic regression with two continuous covariates and 1000 groups, whose rows do not reduce. Two processes of this machine are a Dask cluster.
Measured are the seconds of the fastest of many evaluations of logp and gradient

- of all rows in this process, compiled by :func:`pymc_fastlogp.compile_pymc_model`, with one and with two threads;
- of the same rows on the two workers, by way of the scheduler, and with connections from the client to the workers;
- of four rows on one, two and four workers, which is the time of a round trip.

Overhead is the time on two workers, less that of two threads in this process. The prediction of a large cluster is the time of its rows on one core, divided by the number of
cores, plus the round trip: that to one worker, and the difference per further worker. The result is written to the JSON and to the table of the docs.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.machine import context
from benchmarks.report import digits, machine_and_versions, markdown_table, write_table

RESULTS = Path(__file__).parent / "results" / "cluster.json"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "cluster.md"
MARKER = "table of clusters"
N_ROWS, N_GROUPS, N_EVALUATIONS = 4_000_000, 1000, 50
# Clusters to predict: rows, workers, threads of a worker.
PREDICTED = (
    (100_000_000, 16, 1),
    (1_000_000_000, 100, 1),
    (1_000_000_000, 7, 16),
)


def model_of(n_rows: int) -> Any:
    """Return the model of a table in memory."""
    import pymc as pm

    import pymc_fastlogp

    rng = np.random.default_rng(0)
    columns = {
        "group": rng.integers(0, N_GROUPS, n_rows),
        "x": rng.normal(size=n_rows),
        "z": rng.normal(size=n_rows),
        "y": rng.integers(0, 2, n_rows),
    }
    table = pymc_fastlogp.table(pd.DataFrame(columns))
    with pm.Model() as model:
        a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=N_GROUPS)
        b, c = pm.Normal("b"), pm.Normal("c")
        eta = a[table["group"]] + b * table["x"] + c * table["z"]
        pm.Bernoulli("y", logit_p=eta, observed=table["y"])
    return model


def seconds(evaluate: Callable[[np.ndarray], Any], n_dim: int, n: int) -> float:
    """Return the seconds of the fastest evaluation."""
    points = np.random.default_rng(1).normal(0, 0.1, (n + 2, n_dim))
    times = []
    for point in points:
        start = time.perf_counter()
        evaluate(point)
        times.append(time.perf_counter() - start)
    return min(times[2:])


def on_workers(client: Any, model: Any, n: int) -> dict[str, float]:
    """Return the seconds of an evaluation on the workers of a client, and those until the first."""
    from pymc_fastlogp.models.row_likelihood import split_tables
    from pymc_fastlogp.sampling.cluster.sharded_likelihood import ShardedLikelihood

    split = split_tables(model)
    shapes = {"tau_log__": (), "a": (N_GROUPS,), "b": (), "c": ()}
    start = time.perf_counter()
    with ShardedLikelihood(client, split.likelihoods, shapes, 1) as likelihood:
        ready = time.perf_counter() - start
        return {"evaluation": seconds(likelihood.evaluate, N_GROUPS + 3, n), "ready": ready}


def measure(n_rows: int, n: int) -> dict[str, Any]:
    """Return all times in seconds."""
    from distributed import Client, LocalCluster

    import pymc_fastlogp

    found: dict[str, Any] = {"rows": n_rows}
    model, small = model_of(n_rows), model_of(4)
    for threads in (1, 2):
        compiled = pymc_fastlogp.compile_pymc_model(model, threads=threads)
        found[f"one process, {threads} threads"] = seconds(compiled.logp_dlogp, compiled.n_dim, n)
        del compiled
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    for workers in (1, 2, 4):
        with LocalCluster(n_workers=workers, **options) as cluster:
            for name, direct in (("proxied", False), ("direct", True)):
                with Client(cluster, direct_to_workers=direct) as client:
                    trip = on_workers(client, small, 10 * n)
                    found[f"round trip to {workers}, {name}"] = trip["evaluation"]
                    if workers == 2:
                        found[f"two workers, {name}"] = on_workers(client, model, n)
                print(json.dumps(found), flush=True)
    return found


def predicted(times: dict[str, Any], n_rows: int, workers: int, threads: int) -> float:
    """Return the predicted seconds of an evaluation with connections to the workers."""
    each = times["one process, 1 threads"] / times["rows"]
    trip = times["round trip to 1, direct"]
    further = max(times["round trip to 4, direct"] - trip, 0) / 3
    return each * n_rows / (workers * threads) + trip + further * (workers - 1)


def page_table(results: dict[str, Any]) -> str:
    """Return the tables of the docs."""
    times = results["times"]
    rows, two = times["rows"], times["one process, 2 threads"]
    named = {
        f"{rows:.0e} rows in one process, one thread": times["one process, 1 threads"],
        f"{rows:.0e} rows in one process, two threads": two,
    }
    for name, text in (("direct", "`direct_to_workers=True`"), ("proxied", "by the scheduler")):
        on_two = times[f"two workers, {name}"]["evaluation"]
        named[f"{rows:.0e} rows on two workers, {text}"] = on_two
        named[f"overhead against two threads, {text}"] = on_two - two
        named[f"round trip to one worker, {text}"] = times[f"round trip to 1, {name}"]
        named[f"round trip to four workers, {text}"] = times[f"round trip to 4, {name}"]
    measured = [[name, _ms(x)] for name, x in named.items()]
    predictions = []
    for n_rows, workers, threads in PREDICTED:
        total = predicted(times, n_rows, workers, threads)
        share = times["one process, 1 threads"] / rows * n_rows / (workers * threads) / total
        name = f"{n_rows:.0e} rows, {workers} workers of {threads} {'thread' if threads == 1 else 'threads'}"
        predictions.append([name, _ms(total), f"{100 * share:.0f} %"])
    parts = (
        markdown_table(["one evaluation of logp and gradient", "ms"], measured),
        markdown_table(["predicted", "ms", "rows share"], predictions),
        f"{machine_and_versions(results)}.",
    )
    return "\n\n".join(parts)


def _ms(x: float) -> str:
    return f"-{digits(-1e3 * x)}" if x < 0 else digits(1e3 * x)


def publish(results: dict[str, Any]) -> None:
    """Write the tables of the docs."""
    write_table(PAGE, page_table(results), MARKER)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--evaluations", type=int, default=N_EVALUATIONS)
    parser.add_argument("--report", action="store_true", help="only write the tables again")
    arguments = parser.parse_args()
    if arguments.report:
        publish(json.loads(RESULTS.read_text()))
        return
    times = measure(arguments.rows, arguments.evaluations)
    results = {**context(), "times": times}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    publish(results)


if __name__ == "__main__":
    main()
