"""Densities by factors of many small covariances, and what their arithmetic takes at least: ``python -m benchmarks.small_factors``.

A meta-analysis has 1 000 studies of a few outcomes, whose errors have covariances that are known. The bound is a factor, two solves and an inverse for each
study in full vectors: its roots and reciprocals, one of each for each outcome, and its multiplications with a subtraction each, all as fast as a loop of
nothing else does them. Loads, logarithms, and what makes nan of a matrix that has no factor are not in it.
"""

import ctypes
from collections.abc import Callable

import numpy as np
import pymc as pm
from llvmlite import ir
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.native import Timer, compile_ir
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import compile_side, legal_points
from pymc_fastlogp.kernel.llvm import F64, I64, declared, filled
from pymc_fastlogp.kernel.native.target import default_width

STUDIES, OUTCOMES = 1_000, (2, 3, 4, 8, 12)
ROUNDS, SECONDS_PER_ROUND = 9, 0.05
# Chains of an operation that do not wait for each other.
CHAINS = 6

Step = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def meta_analysis(n: int) -> pm.Model:
    """Return the model of some outcomes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STUDIES, n, 2 * n))
    with pm.Model() as model:
        sd = pm.HalfNormal.dist(1, shape=n)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=n, eta=2, sd_dist=sd)
        cov = chol @ chol.T + x @ x.transpose(0, 2, 1) / n
        mu = pm.Normal("mu", 0, 5, shape=n)
        pm.MvNormal("y", mu, cov=cov, observed=rng.normal(size=(STUDIES, n)))
    return model


def multiplications(n: int) -> int:
    """Return those of a factor, two solves, the inverse of the factor, that of the matrix, and the square of what was solved."""
    pairs, triples = n * (n - 1) // 2, n * (n - 1) * (n - 2) // 6
    factor = 2 * pairs + triples
    solves = 2 * (pairs + n)
    inverse_of_factor = 2 * pairs + triples
    inverse = n * (n + 1) * (n + 2) // 6
    return factor + solves + inverse_of_factor + inverse + pairs + n


def _root(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    signature = ir.FunctionType(x.type, [x.type])
    function = declared(builder.module, f"llvm.sqrt.v{x.type.count}f64", signature)
    return builder.call(function, [x])


def _reciprocal(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.fdiv(filled(x.type, 1.0), x)


def _multiplication(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    return builder.fsub(builder.fmul(x, filled(x.type, 0.9)), filled(x.type, 0.1))


OPERATIONS: dict[str, Step] = {
    "root": _root,
    "reciprocal": _reciprocal,
    "multiplication": _multiplication,
}


def timer(step: Step) -> Timer:
    """Return what takes the time of a loop of an operation, on a few vectors in turn."""
    native = compile_ir(_module(step), "run")
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_double)(native.address)

    def seconds(n: int, _alive: object = native) -> float:
        begin = seconds_now()
        run(n, 1.5)
        return seconds_now() - begin

    return seconds


def _module(step: Step) -> ir.Module:
    module = ir.Module("operation")
    function = ir.Function(module, ir.FunctionType(F64, [I64, F64]), "run")
    count, start = function.args
    entry, loop, done = (function.append_basic_block() for _ in range(3))
    vector = ir.VectorType(F64, default_width())
    builder = ir.IRBuilder(entry)
    one = builder.insert_element(filled(vector, 1.5), start, I64(0))
    # LLVM takes chains that start alike for one.
    starts = [builder.fadd(one, filled(vector, float(k))) for k in range(CHAINS)]
    builder.branch(loop)
    builder.position_at_end(loop)
    i, *chains = (builder.phi(kind) for kind in (I64, *[vector] * CHAINS))
    ends = [step(builder, x) for x in chains]
    following = builder.add(i, I64(1))
    for phi, first, last in zip((i, *chains), (I64(0), *starts), (following, *ends), strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(last, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    total = ends[0]
    for x in ends[1:]:
        total = builder.fadd(total, x)
    builder.ret(builder.extract_element(total, I64(0)))
    return module


def lane_seconds() -> dict[str, float]:
    """Return how long one lane of each operation takes."""
    timers = {name: timer(step) for name, step in OPERATIONS.items()}
    rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return {name: min(times) / (CHAINS * default_width()) for name, times in rounds.items()}


def main() -> None:
    """Print a row for each number of outcomes."""
    table = Table(
        *("outcomes", "off, ns a study", "on, ns", "bound, ns", "off : on", "on : bound"),
        title=machine()["cpu"],
    )
    callbacks = {
        n: {side: compile_side(meta_analysis(n), side) for side in ("off", "on")} for n in OUTCOMES
    }
    with pinned():
        lane = lane_seconds()
        for n, sides in callbacks.items():
            points = legal_points(sides["off"], seed=0)
            timers = {side: callback.timer(points) for side, callback in sides.items()}
            rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
            off, on = (1e9 * min(rounds[side]) / STUDIES for side in ("off", "on"))
            calls = n * (lane["root"] + lane["reciprocal"])
            bound = 1e9 * (calls + multiplications(n) * lane["multiplication"])
            cells = (
                f"{off:.0f}",
                f"{on:.1f}",
                f"{bound:.1f}",
                f"{off / on:.1f}",
                f"{on / bound:.2f}",
            )
            table.add_row(str(n), *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
