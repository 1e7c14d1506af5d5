r"""Threads of a chain: ``python -m benchmarks.threads [model ...] [--seconds S] [--rounds N] [--report]``.

Measured are the seconds of one evaluation of logp and gradient by one chain, with one and with two threads, in a native loop at 8 points. The two sides
run in turn in many short rounds, of which the fastest counts. Nothing else should run on the machine.

Predicted are more threads. A third side runs all chunks of a loop in order, and measures their time. The predicted time of :math:`p` threads is

.. math::

    S + \sum_j \frac{\lceil K_j / p \rceil}{K_j} P_j + F + (p - 2) J b

with the time :math:`P_j` of the :math:`K_j` chunks of loop :math:`j` of :math:`J`, the time :math:`S` of one thread outside of these loops, the time :math:`b` of a barrier with one
helper, and the time :math:`F` that two threads take longer than this sum, mostly for transfers between caches. The result is written to the JSON and to the table of the docs.
"""

import argparse
import ctypes
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine, versions
from benchmarks.report import digits, insert_table, machine_and_versions
from benchmarks.suite import Case

RESULTS = Path(__file__).parent / "results" / "threads.json"
POINTER = ctypes.c_void_p
# Type of the function that runs tasks.
RUN = ctypes.CFUNCTYPE(None, POINTER, POINTER, POINTER, ctypes.c_int64)
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "cores.md"
MARKER = "table of threads"
ROUNDS, SECONDS = 200, 0.005
PREDICTED = (4, 8, 16)
# Fastest rounds in the JSON.
KEPT = 20

CASES = (
    Case("irt_2pl", "2PL item response, 20 000 rows", "irt_2pl"),
    Case("mrp", "MRP logit, 10 000 rows", "mrp", {"rows": 10_000}),
    Case("crossed_student_t", "Student-t, 25 000 rows of 10 000 pupils", "crossed_student_t"),
    Case(
        "negative_binomial",
        "negative binomial, 50 000 rows",
        "negative_binomial",
        {"rows": 50_000},
    ),
    Case("ordered_logit", "ordered logit, 50 000 rows", "ordered_logit", {"rows": 50_000}),
    Case("koyck_panel", "distributed lags, 2 000 series of 200 steps", "koyck_panel"),
    Case("verbal_aggression", "2PL, verbal aggression (real), 7 584 rows", "verbal_aggression"),
    # Too short for chunks.
    Case("student_t", "Student-t, 5 000 rows", "student_t"),
)


@dataclass
class Times:
    """Times of one model.

    Attributes
    ----------
    seconds : dict of int to list of float
        Seconds of an evaluation in each round, or in the fastest ones, by number of threads.
    chunks : list of (int, float)
        Number of chunks of each parallel loop, and seconds of all of them.
    """

    seconds: dict[int, list[float]]
    chunks: list[tuple[int, float]] = field(default_factory=list)

    def fastest(self, threads: int) -> float:
        """Return the seconds of an evaluation in the fastest round."""
        return min(self.seconds[threads])

    def predicted(self, threads: int, barrier: float) -> float:
        """Return the seconds of an evaluation with more threads, see the docstring of the module; ``barrier`` are the seconds of a barrier."""
        further = max(self.fastest(2) - self._without_waits(2), 0)
        return self._without_waits(threads) + further + (threads - 2) * len(self.chunks) * barrier

    def _without_waits(self, threads: int) -> float:
        one, total = self.fastest(1), sum(seconds for _, seconds in self.chunks)
        saved = sum((1 - ceil(k / threads) / k) * seconds for k, seconds in self.chunks)
        # The chunks are measured apart, and cannot take longer than the whole.
        return one - saved * min(1, one / total if total else 1)


def measure(case: Case, rounds: int, seconds: float) -> Times:
    """Time a model with one and two threads, and its chunks."""
    from pymc_fastlogp.benchmarking.native import LogpCallback
    from pymc_fastlogp.benchmarking.pairing import time_in_turn
    from pymc_fastlogp.benchmarking.run import legal_points
    from pymc_fastlogp.sampling.compile_model import compile_request
    from pymc_fastlogp.sampling.request import request_of

    model = case.make()
    compiled = {n: compile_request(request_of(model), n - 1) for n in (1, 2)}
    callbacks = {n: LogpCallback.from_compiled(x) for n, x in compiled.items()}
    points = legal_points(callbacks[1], 0)
    timers = {str(n): x.timer(points, time.perf_counter) for n, x in callbacks.items()}
    found = time_in_turn(timers, rounds=rounds, seconds_per_round=seconds)
    chunks = chunk_times(compiled[1], callbacks[1], points)
    return Times({int(n): list(x) for n, x in found.items()}, chunks)


def chunk_times(compiled: Any, callback: Any, points: np.ndarray) -> list[tuple[int, float]]:
    """Return the number of chunks of each parallel loop of an evaluation, and the seconds of all of them, run in order by this thread."""
    from pymc_fastlogp.kernel.emit.parallel import HELPERS
    from pymc_fastlogp.kernel.threads import helpers

    kernel = compiled.compiled_logp_func._called
    if kernel is None or not helpers.has_tasks(kernel):
        return []
    words = busy_helpers()
    run_all = RUN(helpers._functions().run)
    now: list[tuple[int, float]] = []

    @RUN
    def timed(_: int, task: int, context: int, n_tasks: int) -> None:
        start = time.perf_counter()
        run_all(words.ctypes.data, task, context, n_tasks)
        now.append((n_tasks, time.perf_counter() - start))

    # The first word of helpers is the address of the function that runs tasks.
    words_of_timed = np.array([ctypes.cast(timed, POINTER).value], np.int64)
    variable = POINTER.from_address(kernel.variable(HELPERS))
    variable.value = words_of_timed.ctypes.data
    measured = []
    try:
        for k in range(400):
            now.clear()
            callback.evaluate(points[k % len(points)])
            measured.append([*now])
    finally:
        variable.value = None
    counts = [n for n, _ in measured[0]]
    seconds = np.min([[x for _, x in each] for each in measured], axis=0)
    return list(zip(counts, map(float, seconds), strict=True))


def busy_helpers() -> np.ndarray:
    """Return the memory of helpers without a free slot, so that a caller runs all tasks in order."""
    from pymc_fastlogp.kernel.threads import protocol

    words = np.zeros(protocol.HEADER + protocol.N_SLOTS * protocol.SLOT + protocol.LINE, np.int64)
    words[protocol.HEADER + protocol.BUSY :: protocol.SLOT] = 1
    return words


def barrier_time(compiled: Any) -> float:
    """Return the seconds that two tasks without work take longer with a helper; ``compiled`` is a model whose kernel has chunks."""
    from pymc_fastlogp.kernel.threads import helpers

    team = helpers.Helpers(1, compiled.compiled_logp_func._called)
    run, alone = RUN(team._functions.run), busy_helpers()
    task = ctypes.cast(ctypes.CDLL(None).labs, POINTER)
    times: dict[int, list[float]] = {words.ctypes.data: [] for words in (team._words, alone)}
    for _ in range(2000):
        for address, seconds in times.items():
            start = time.perf_counter()
            for _ in range(20):
                run(address, task, None, 2)
            seconds.append((time.perf_counter() - start) / 20)
    team.close()
    with_helper, without = map(min, times.values())
    return max(with_helper - without, 0.0)


def page_table(results: Mapping[str, Any]) -> str:
    """Return the table of the docs."""
    head = ["model", "1 thread, µs", "2 threads, µs", "1 / 2 threads"]
    head += [f"{n} threads, predicted" for n in PREDICTED]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for case in CASES:
        if case.name not in results["times"]:
            continue
        plain = results["times"][case.name]
        times = Times({int(n): x for n, x in plain["seconds"].items()}, plain["chunks"])
        one, two = (times.fastest(n) for n in (1, 2))
        cells = [case.title, digits(1e6 * one), digits(1e6 * two), f"{one / two:.2f}"]
        predicted = (one / times.predicted(n, results["barrier"]) for n in PREDICTED)
        cells += [f"{x:.1f}" if times.chunks else "1" for x in predicted]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{machine_and_versions(results)}."])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads")
    parser.add_argument("models", nargs="*", choices=[[], *(x.name for x in CASES)])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a side in a round")
    parser.add_argument("--report", action="store_true", help="only write the table again")
    arguments = parser.parse_args()
    if not arguments.report:
        from pymc_fastlogp.sampling.compile_model import compile_request
        from pymc_fastlogp.sampling.request import request_of

        chosen = [x for x in CASES if not arguments.models or x.name in arguments.models]
        times = {}
        for case in chosen:
            found = measure(case, arguments.rounds, arguments.seconds)
            seconds = {n: sorted(x)[:KEPT] for n, x in found.seconds.items()}
            times[case.name] = {"seconds": seconds, "chunks": found.chunks}
            one, two = (1e6 * found.fastest(n) for n in (1, 2))
            print(f"{case.name}: {one:.1f} us, {two:.1f} us, {one / two:.2f}", flush=True)
            print("  chunks", [(k, f"{1e6 * x:.1f} us") for k, x in found.chunks], flush=True)
        if arguments.models:
            return
        date = datetime.now(UTC).date().isoformat()
        barrier = barrier_time(compile_request(request_of(CASES[0].make()), 0))
        print(f"barrier: {1e6 * barrier:.2f} us", flush=True)
        where = {"machine": machine(), "versions": versions(), "barrier": barrier}
        RESULTS.write_text(json.dumps({"date": date, **where, "times": times}, indent=1) + "\n")
    PAGE.write_text(
        insert_table(PAGE.read_text(), page_table(json.loads(RESULTS.read_text())), MARKER)
    )


if __name__ == "__main__":
    main()
