"""Compilation and times of one model without some rules and passes, in the process of :mod:`benchmarks.rule_value` that measures it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import pytensor
from pytensor.compile.mode import optdb

from benchmarks.child import error_line
from benchmarks.compiled_graph import code_of, compiled_graph
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.result import BenchmarkResult
from pymc_fastlogp.benchmarking.run import check_agreement, compile_model, legal_points
from pymc_fastlogp.kernel.graph import op
from pymc_fastlogp.kernel.passes import PASSES, optimize
from pymc_fastlogp.registration import registered
from pymc_fastlogp.rules import GRAPH_RULES, RULES
from tests import canaries

AGAIN, BASELINE = "again", "on"


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave out the rewrites, or the pass, of this name for a block."""
    rewrites = [(registered(r), "transform") for r in RULES if r.name == name]
    rewrites += [(optdb[name], "apply") for r in GRAPH_RULES if r.name == name]
    with ExitStack() as stack:
        for rewriter, method in rewrites:
            stack.enter_context(mock.patch.object(rewriter, method, return_value=None))
        others = [run for run in PASSES if run.__name__ != name]
        if len(others) < len(PASSES):
            stack.enter_context(mock.patch.object(op, "optimize", partial(optimize, passes=others)))
        yield


def time_sides(name: str, rules: list[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Compile a model as it is and without each of the rules; return the ratios of times to the baseline.

    None for the rules without which the code is the same.
    """
    make = canaries.MODELS[name]
    code = code_of(compiled_graph(make()).fgraph)
    same = [rule for rule in rules if _code_without(rule, name) == code]
    callbacks, compiling = {}, {}
    # The first compilation pays for what all compilations share, so its time is replaced.
    for side in (AGAIN, BASELINE, *(rule for rule in rules if rule not in same), AGAIN):
        model, start = make(), time.process_time()
        with without(side), pytensor.config.change_flags(numba__cache=False):
            callbacks[side] = LogpCallback.from_compiled(compile_model(model, "on"))
        compiling[side] = time.process_time() - start
    points = legal_points(callbacks[BASELINE], seed=0)
    notes = _disagreements(callbacks, points)
    timers = {side: callback.timer(points) for side, callback in callbacks.items()}
    with pinned():
        measured = time_in_turn(timers, rounds=rounds, seconds_per_round=seconds)
    result = BenchmarkResult(n_dim=points.shape[1], seconds=measured)
    ratios = {
        side: {
            **result.ratio(side)._asdict(),
            "minimum": min(measured[side]) / min(measured[BASELINE]),
            "compile": compiling[side] / compiling[BASELINE],
            "microseconds": result.median(side) * 1e6,
            "note": notes.get(side, ""),
        }
        for side in callbacks
    }
    return ratios | dict.fromkeys(same)


def _code_without(rule: str, name: str) -> str:
    with without(rule):
        return code_of(compiled_graph(canaries.MODELS[name]()).fgraph)


def _disagreements(callbacks: dict[str, LogpCallback], points: Any) -> dict[str, str]:
    notes = {}
    for side, callback in callbacks.items():
        try:
            check_agreement(callback.evaluate, callbacks[BASELINE].evaluate, points)
        except AssertionError as error:
            notes[side] = error_line(error)
    return notes
