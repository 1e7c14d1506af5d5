"""Gain of each limit that a constant of the package states: time below and above the limit, by size.

``python -m benchmarks.limits [NAME ...]`` compiles small graphs and models with a limit at either of two values, one by which the special form
is made and one by which it is not, runs both in turn on one core, and prints how many times as long the second takes. A limit belongs where that
ratio falls to 1, or before, where code takes long to compile.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import NamedTuple
from unittest import mock

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from llvmlite import ir
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.native_loop import timed, timer_of_code
from pymc_fastlogp import compile_pymc_model
from pymc_fastlogp.benchmarking.native import LogpCallback, Timer
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import legal_points
from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.machine_code import compile_program, engine_of
from pymc_fastlogp.kernel.passes import optimize
from pymc_fastlogp.model_cache.store import ENVIRONMENT_VARIABLE

ROUNDS, SECONDS_PER_ROUND = 15, 2e-3
ROWS = 2_000
NONE, ALL = 0, 2**60
NAME = "pymc_fastlogp.benchmark"

Build = Callable[..., TensorVariable]
# From a size to the timer of the code that is compiled now.
TimerOfSize = Callable[[int], Timer]


class Limit(NamedTuple):
    """A limit, and code that it decides about.

    Attributes
    ----------
    module : str
        Module below :mod:`pymc_fastlogp`.
    timer : callable
        Compiles the code of a size.
    sizes : tuple of int
        Sizes around the limit.
    applied, lifted : float
        Values of the limit by which the special form is made, and by which it is not.
    others : mapping of str to float
        Values of other limits on both sides, by module and name, that would decide first.
    """

    module: str
    name: str
    timer: TimerOfSize
    sizes: tuple[int, ...]
    applied: float = ALL
    lifted: float = NONE
    others: Mapping[str, float] = MappingProxyType({})

    @property
    def full_name(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"


def kernel(build: Build, shapes: Callable[[int], list[tuple[int, ...]]]) -> TimerOfSize:
    """Return the timer of a kernel: ``build`` takes an input of each shape and returns the output."""

    def timer(size: int) -> Timer:
        inputs = [
            pt.tensor(f"x{i}", dtype="float64", shape=shape) for i, shape in enumerate(shapes(size))
        ]
        graph = FunctionGraph(inputs, [build(*inputs)], clone=True)
        rewrite_scan_inner_graphs(graph)
        program = optimize(lower(graph, [None] * len(inputs)))
        engine = engine_of(program, compile_program(program, NAME))
        rng = np.random.default_rng(0)
        values = [rng.uniform(0.6, 1.4, shape) for shape in shapes(size)]
        [output] = program.outputs
        result = np.empty(output.shape)
        numbers = [n for x in values for n in (x.ctypes.data, *x.shape, *x.strides)]
        numbers.append(result.ctypes.data)

        def call(builder: ir.IRBuilder) -> None:
            pointer = ir.FunctionType(I64, [I64] * len(numbers)).as_pointer()
            callee = builder.inttoptr(I64(engine.get_function_address(NAME)), pointer)
            builder.call(callee, [*map(I64, numbers)])

        return timer_of_code(call, values, result, engine)

    return timer


def model(make: Callable[[int], pm.Model]) -> TimerOfSize:
    """Return the timer of logp and gradient of a model, compiled without models on disk, whose key has no limits."""

    def timer(size: int) -> Timer:
        with mock.patch.dict(os.environ, {ENVIRONMENT_VARIABLE: "0"}):
            callback = LogpCallback.from_compiled(compile_pymc_model(make(size)))
        return callback.timer(legal_points(callback, seed=0))

    return timer


def function(build: Callable[[int], tuple[TensorVariable, TensorVariable]]) -> TimerOfSize:
    """Return the timer of a compiled function; ``build`` returns a vector and the output."""

    def timer(size: int) -> Timer:
        x, output = build(size)
        compiled = pytensor.function([x], output, mode="NUMBA", trust_input=True)
        value = np.linspace(0.1, 1.0, x.type.shape[0])

        def repeat(n: int) -> None:
            for _ in range(n):
                compiled(value)

        return timed(repeat)

    return timer


def _counts(x: TensorVariable, c: TensorVariable, y: TensorVariable) -> TensorVariable:
    """Return the logp of counts with a factor for each row and column, and its gradient."""
    mean = x[:, None] * c
    error = y / mean - 1
    logp = (y * pt.log(mean) - mean).sum()
    return pt.join(0, (error * c).sum(axis=1), (error * x[:, None]).sum(axis=0), logp[None])


def _triangle(z: TensorVariable, packed: TensorVariable) -> TensorVariable:
    n = z.type.shape[1]
    return pt.tanh(z @ pt.zeros((n, n))[np.tril_indices(n)].set(packed).T).sum(axis=1)


def _scattered(x: TensorVariable) -> TensorVariable:
    index = np.random.default_rng(0).integers(0, 50, x.type.shape[0])
    return pt.zeros(64)[pt.as_tensor(index) + pt.cast(pt.round(x[0]), "int64") * 2].inc(x)


def _recursion(
    step: Callable[..., TensorVariable], start: TensorVariable, *series: TensorVariable
) -> TensorVariable:
    """Return all states of a recursion, of 200 steps if there is no series."""
    n_steps = None if series else 200
    return pytensor.scan(step, [*series], [start], n_steps=n_steps, return_updates=False)


def _damped(start: TensorVariable, series: TensorVariable) -> TensorVariable:
    """Return a recursion with cheap arithmetic that does not depend on the state."""
    return _recursion(lambda x, state: 0.9 * state * (1 - x * x), start, series)


def _of_series(
    start: TensorVariable, first: TensorVariable, second: TensorVariable
) -> TensorVariable:
    """Return recursions that read the difference of two series."""
    return _recursion(lambda x, state: pt.tanh(state) + x, start, first - second)


def _logistic(rows: int, columns: int) -> pm.Model:
    """Return a logistic regression on a dense design matrix."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    with pm.Model() as made:
        eta = x @ pm.Normal("beta", shape=columns)
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=rows))
    return made


def _ratings(rank: int, ratio: int, users: int = 100) -> pm.Model:
    """Return a factorization of a square matrix with as many times as many entries as ratings."""
    rng = np.random.default_rng(0)
    seen = np.zeros((users, users), dtype=bool)
    seen.flat[rng.choice(seen.size, seen.size // ratio, replace=False)] = True
    with pm.Model() as made:
        user, film = pm.Normal("user", shape=(users, rank)), pm.Normal("film", shape=(users, rank))
        observed = rng.normal(size=seen.size // ratio)
        pm.Normal("rating", (user @ film.T)[seen], 1.0, observed=observed)
    return made


def _filled(
    f: Callable[[TensorVariable], TensorVariable], entries: int, percent: int
) -> tuple[TensorVariable, TensorVariable]:
    """Return a vector, and a function of zeros in which some entries are set from the vector."""
    x = pt.vector("x", shape=(entries * percent // 100,))
    filled = pt.zeros(entries)[: x.type.shape[0]].set(x)
    return x, f(filled) * np.linspace(0.1, 1.0, entries)


# Products that become straight-line code are not what the limits of other products decide.
NOT_UNROLLED = {
    "kernel.lower.unrolled_products.LARGEST": NONE,
    "kernel.lower.unrolled_products.LARGEST_WITH_ZEROS": NONE,
}
TRANSPOSES, SCATTERED = "kernel.graph.arguments", "rewrites.after_gradient.dot_of_scattered"
BLOCKS, LIFT = "kernel.passes.row_blocks", "rewrites.packed_matrices.lift_cost"

LIMITS = (
    Limit(
        "kernel.passes.unroll_sequential",
        "LARGEST",
        kernel(
            lambda start, weights: _recursion(lambda state: pt.tanh(weights @ state), start),
            lambda n: [(n,), (n, n)],
        ),
        (2, 3, 4, 5, 6),
    ),
    Limit(
        "kernel.passes.hoist",
        "COSTLY",
        kernel(_damped, lambda n: [(), (n,)]),
        (16, 200, ROWS),
        applied=8,
        lifted=1,
    ),
    Limit(
        "kernel.passes.rematerialize",
        "MOST_LOADS",
        kernel(_of_series, lambda n: [(n,), (200, n), (200, n)]),
        (17, 100, 1000),
    ),
    Limit(
        "kernel.lower.linalg",
        "LARGEST_CHOLESKY",
        kernel(lambda a: pt.linalg.cholesky(a + 40 * pt.eye(a.type.shape[0])), lambda n: [(n, n)]),
        (4, 8, 12, 16, 24),
    ),
    Limit(
        "kernel.lower.dense",
        "LARGEST",
        kernel(lambda a: pt.linalg.cholesky(a + 500 * pt.eye(a.type.shape[0])), lambda n: [(n, n)]),
        (16, 64, 200, 400, 600),
    ),
    Limit(
        "kernel.lower.linalg",
        "LARGEST_SOLVE",
        kernel(
            lambda a, b: pt.linalg.solve_triangular(a, b, lower=True, b_ndim=1),
            lambda n: [(n, n), (n,)],
        ),
        (4, 8, 16, 32, 48),
    ),
    Limit(
        "kernel.lower.products",
        "LARGEST",
        kernel(pt.dot, lambda n: [(12, n // 480), (n // 480, 40)]),
        (2**12, 2**14, 2**15, 2**16, 2**18),
        others=NOT_UNROLLED,
    ),
    Limit(
        "kernel.lower.products",
        "SHORT",
        kernel(pt.dot, lambda n: [(n, 40), (40, 40)]),
        (4, 8, 12, 16, 20),
        others=NOT_UNROLLED,
    ),
    Limit(
        "kernel.lower.products",
        "LARGEST_WITH_VECTOR",
        kernel(lambda a, b: a @ b[:, None], lambda n: [(n, n), (n,)]),
        (128, 256, 362, 512, 1024),
        others=NOT_UNROLLED,
    ),
    Limit(
        "kernel.lower.unrolled_products",
        "LARGEST",
        kernel(lambda z, b: pt.tanh(z @ b).sum(axis=1), lambda n: [(ROWS, n), (n, n)]),
        (2, 3, 4, 6, 8),
    ),
    Limit(
        "kernel.lower.unrolled_products",
        "LARGEST_WITH_ZEROS",
        kernel(_triangle, lambda n: [(ROWS, n), (n * (n + 1) // 2,)]),
        (5, 8, 12, 16),
    ),
    Limit(
        "kernel.lower.reduction",
        "LONGEST",
        kernel(lambda x: pt.cumsum(pt.exp(x)), lambda n: [(n,)]),
        (8, 32, 64, 128, 256),
    ),
    Limit(
        "kernel.passes.short_axes",
        "LONGEST",
        kernel(lambda x, c: pt.exp(x[:, None] - c).sum(axis=1), lambda n: [(ROWS,), (n,)]),
        (2, 4, 8, 16, 32),
    ),
    Limit(
        "kernel.passes.short_axes",
        "LONG",
        kernel(lambda x, c: pt.exp(x[:, None] - c).sum(axis=1), lambda n: [(n,), (4,)]),
        (16, 32, 64, 128, 1024),
        applied=5,
        lifted=ALL,
    ),
    Limit(
        "kernel.passes.short_axes",
        "LONGEST_GATHERED",
        kernel(
            lambda table, x: pt.exp(table[np.arange(ROWS) % 20] - x[:, None]).sum(axis=1),
            lambda n: [(20, n), (ROWS,)],
        ),
        (2, 4, 6, 8, 12),
    ),
    Limit(
        "kernel.passes.short_axes",
        "DEAR",
        kernel(lambda x, c: pt.exp(x[:, None] - c).sum(axis=1), lambda n: [(ROWS,), (n,)]),
        (8, 12, 16),
    ),
    Limit(
        "kernel.passes.short_axes",
        "DEAR",
        kernel(_counts, lambda n: [(ROWS,), (n,), (ROWS, n)]),
        (8, 12, 16),
    ),
    Limit(
        "kernel.passes.short_axes",
        "DEAR",
        kernel(
            lambda *args: _counts(*args[:2], pt.exp(args[2])), lambda n: [(ROWS,), (n,), (ROWS, n)]
        ),
        (8, 12, 16),
    ),
    Limit(
        "kernel.passes.reciprocal",
        "SHORT",
        kernel(lambda x: x / (1 + x[0] ** 2), lambda n: [(n,)]),
        (4, 8, 16, 64, ROWS),
        applied=NONE,
        lifted=ALL,
    ),
    Limit(
        "kernel.passes.unswitch",
        "LEAST",
        kernel(lambda x, c: pt.switch(c > 0.5, pt.log(x), pt.sqrt(x)).sum(), lambda n: [(n,), ()]),
        (8, 64, ROWS),
        applied=NONE,
        lifted=ALL,
    ),
    Limit(
        "kernel.passes.unswitch",
        "WORTH",
        kernel(
            lambda x, c: (pt.switch(c > 0.5, pt.exp(x), x) + pt.gammaln(x)).sum(),
            lambda n: [(n,), ()],
        ),
        (8, 64, ROWS),
        applied=NONE,
        lifted=1.0,
    ),
    Limit(
        "kernel.passes.interchange",
        "DISTANT",
        kernel(lambda x: pt.exp(x).T + 1, lambda n: [(n, n)]),
        (16, 64, 256),
        applied=10.0,
        lifted=NONE,
    ),
    Limit(
        "kernel.emit.buffers",
        "STACK_BYTES",
        kernel(lambda x: pt.exp(x) / pt.exp(x).sum(), lambda n: [(n,)]),
        (100, 1000, 8000, 30_000),
    ),
    # Of 12, 19 and 22 coefficients.
    *(
        Limit(
            "kernel.vecmath.vector",
            "FOUR_CHAINS",
            kernel(f, lambda n: [(n,)]),
            (4, 16, ROWS),
            applied=NONE,
            lifted=ALL,
        )
        for f in (lambda x: pt.arcsin(x / 2), pt.log, pt.erfcx)
    ),
    Limit(
        "kernel.emit.scope", "CHEAP", kernel(_scattered, lambda n: [(n,)]), (64, ROWS), applied=2
    ),
    Limit(
        "kernel.native.target",
        "IN_FLIGHT",
        kernel(lambda x: pt.exp(x).sum(), lambda n: [(n,)]),
        (16, 100, ROWS, 50_000),
        applied=2,
        lifted=1,
    ),
    Limit(
        BLOCKS,
        "BLOCK_BYTES",
        model(lambda columns: _logistic(400_000 // columns, columns)),
        (4, 10, 50, 200),
        applied=2**14,
        lifted=2**18,
    ),
    Limit(
        BLOCKS,
        "MOST_BYTES",
        model(lambda columns: _logistic(400_000 // columns, columns)),
        (4, 10, 50, 200, 1000, 2000),
    ),
    Limit(
        BLOCKS,
        "FEWEST_COLUMNS",
        model(lambda columns: _logistic(400_000 // columns, columns)),
        (2, 3, 4, 5, 8),
        applied=NONE,
        lifted=ALL,
    ),
    Limit(
        "kernel.emit.row_products",
        "LONGEST_PREFETCHED",
        model(lambda columns: _logistic(400_000 // columns, columns)),
        (10, 50, 200, 400, 1000),
    ),
    Limit(
        TRANSPOSES,
        "LEAST_BYTES",
        model(lambda rows: _logistic(rows, 20)),
        (50, 200, 1000, 5000),
        applied=NONE,
        lifted=ALL,
        others={f"{TRANSPOSES}.LEAST_COLUMNS": NONE},
    ),
    Limit(
        TRANSPOSES,
        "LEAST_COLUMNS",
        model(lambda columns: _logistic(ROWS, columns)),
        (8, 16, 17, 32),
        applied=NONE,
        lifted=ALL,
        others={f"{TRANSPOSES}.LEAST_BYTES": NONE},
    ),
    Limit(
        SCATTERED,
        "LEAST_RATIO",
        model(lambda ratio: _ratings(8, ratio)),
        (2, 3, 4, 6),
        applied=1,
        lifted=ALL,
    ),
    Limit(
        SCATTERED,
        "LEAST_RATIO_OF_LONG",
        model(lambda ratio: _ratings(20, ratio)),
        (2, 3, 4, 6),
        applied=1,
        lifted=ALL,
    ),
    Limit(
        SCATTERED,
        "LEAST_RATIO_OF_ODD",
        model(lambda ratio: _ratings(9, ratio)),
        (3, 4, 5, 7),
        applied=1,
        lifted=ALL,
    ),
    Limit(
        SCATTERED,
        "LEAST_RATIO_OF_SHORT",
        model(lambda ratio: _ratings(4, ratio)),
        (5, 7, 10, 15),
        applied=1,
        lifted=ALL,
    ),
    Limit(
        SCATTERED,
        "FEWEST_TERMS",
        model(lambda users: _ratings(8, 10, users)),
        (10, 20, 25, 30, 50),
        applied=NONE,
        lifted=ALL,
    ),
    # Sizes of the next two are percentages of written entries.
    Limit(
        LIFT,
        "MOST_WRITTEN",
        function(lambda percent: _filled(pt.exp, 100_000, percent)),
        (25, 50, 75, 100),
        applied=1,
        lifted=-1,
    ),
    Limit(
        LIFT,
        "MOST_WRITTEN_BY_ARITHMETIC",
        function(lambda percent: _filled(lambda x: pt.exp(2 * x + 1), 100_000, percent)),
        (10, 25, 50, 75),
        applied=1,
        lifted=-1,
    ),
    Limit(
        LIFT,
        "FEW_ENTRIES",
        function(lambda entries: _filled(pt.exp, entries, 90)),
        (100, 1024, 10_000, 100_000),
    ),
)


def _module(name: str) -> ModuleType:
    return import_module(f"pymc_fastlogp.{name}")


def ratio(limit: Limit, size: int) -> float:
    """Return how many times as long the code takes with the limit lifted as with the limit applied."""
    timers = {}
    for side, value in (("applied", limit.applied), ("lifted", limit.lifted)):
        with ExitStack() as stack:
            for full_name, number in {**limit.others, limit.full_name: value}.items():
                module, _, name = full_name.rpartition(".")
                stack.enter_context(mock.patch.object(_module(module), name, number))
            timers[side] = limit.timer(size)
    rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return min(rounds["lifted"]) / min(rounds["applied"])


def main(names: list[str]) -> None:
    """Print a row for each limit."""
    if unknown := set(names) - {limit.name for limit in LIMITS}:
        sys.exit(f"No such limit: {', '.join(sorted(unknown))}.")
    table = Table("limit", "value", "size: lifted / applied", title=machine()["cpu"])
    chosen = [limit for limit in LIMITS if not names or limit.name in names]
    with pinned():
        for limit in track(chosen, "measuring"):
            cells = [f"{size:,}: {ratio(limit, size):.2f}" for size in limit.sizes]
            value = getattr(_module(limit.module), limit.name)
            table.add_row(limit.full_name, f"{value:,}", "   ".join(cells))
    Console(width=160).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
