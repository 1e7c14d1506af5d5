"""Gain of each limit of the kernel compiler: time below and above the limit, by size.

``python -m benchmarks.limits [NAME ...]`` compiles small graphs with a limit of :mod:`pymc_fastlogp.kernel` at either of two
values, one by which it applies and one by which it does not, runs both in turn on one core, and prints how much longer
the second takes. A limit belongs about where that falls to 1, or before, where code takes long to compile.
"""

import ctypes
import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytensor
import pytensor.tensor as pt
from llvmlite import binding as llvm
from llvmlite import ir
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from pymc_fastlogp.benchmarking.native import Timer
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.machine_code import compile_program, engine_of
from pymc_fastlogp.kernel.native.target import target_machine
from pymc_fastlogp.kernel.passes import optimize

ROUNDS, SECONDS_PER_ROUND = 15, 2e-3
ROWS = 2_000
NONE, ALL = 0, 2**60
NAME = "pymc_fastlogp.benchmark"

Build = Callable[..., TensorVariable]


class Limit(NamedTuple):
    """A limit, and graphs that it decides about.

    Attributes
    ----------
    module : str
        Below :mod:`pymc_fastlogp.kernel`.
    build : callable
        Takes an input for each shape, returns the output.
    shapes : callable
        Takes a size, returns the shapes of the inputs.
    sizes : tuple of int
        About what the limit is.
    applied, lifted : float
        Values of the limit by which the special form is made, and by which it is not.
    """

    module: str
    name: str
    build: Build
    shapes: Callable[[int], list[tuple[int, ...]]]
    sizes: tuple[int, ...]
    applied: float = ALL
    lifted: float = NONE


def _counts(x: TensorVariable, c: TensorVariable, y: TensorVariable) -> TensorVariable:
    """Return the logp of counts, of which each row and column has a factor, and its gradient."""
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
    """Return all states of a recursion, 200 of them where there is no series."""
    n_steps = None if series else 200
    return pytensor.scan(step, [*series], [start], n_steps=n_steps, return_updates=False)


def _damped(start: TensorVariable, series: TensorVariable) -> TensorVariable:
    """Of which a multiplication and a sum, which are cheap, do not wait for the state."""
    return _recursion(lambda x, state: 0.9 * state * (1 - x * x), start, series)


def _of_series(
    start: TensorVariable, first: TensorVariable, second: TensorVariable
) -> TensorVariable:
    """Of many series, which read a difference."""
    return _recursion(lambda x, state: pt.tanh(state) + x, start, first - second)


LIMITS = (
    Limit(
        "passes.unroll_sequential",
        "LARGEST",
        lambda start, weights: _recursion(lambda state: pt.tanh(weights @ state), start),
        lambda n: [(n,), (n, n)],
        (2, 3, 4, 5, 6),
    ),
    Limit(
        "passes.hoist",
        "COSTLY",
        _damped,
        lambda n: [(), (n,)],
        (16, 200, ROWS),
        applied=8,
        lifted=1,
    ),
    Limit(
        "passes.rematerialize",
        "MOST_LOADS",
        _of_series,
        lambda n: [(n,), (200, n), (200, n)],
        (17, 100, 1000),
    ),
    Limit(
        "lower.linalg",
        "LARGEST_CHOLESKY",
        lambda a: pt.linalg.cholesky(a + 40 * pt.eye(a.type.shape[0])),
        lambda n: [(n, n)],
        (4, 8, 12, 16, 24),
    ),
    Limit(
        "lower.dense",
        "LARGEST",
        lambda a: pt.linalg.cholesky(a + 500 * pt.eye(a.type.shape[0])),
        lambda n: [(n, n)],
        (16, 64, 200, 400, 600),
    ),
    Limit(
        "lower.linalg",
        "LARGEST_SOLVE",
        lambda a, b: pt.linalg.solve_triangular(a, b, lower=True, b_ndim=1),
        lambda n: [(n, n), (n,)],
        (4, 8, 16, 32, 48),
    ),
    Limit(
        "lower.products",
        "LARGEST",
        pt.dot,
        lambda n: [(12, n // 480), (n // 480, 40)],
        (2**12, 2**14, 2**15, 2**16, 2**18),
    ),
    Limit("lower.products", "SHORT", pt.dot, lambda n: [(n, 40), (40, 40)], (4, 8, 12, 16, 20)),
    Limit(
        "lower.products",
        "LARGEST_WITH_VECTOR",
        lambda a, b: a @ b[:, None],
        lambda n: [(n, n), (n,)],
        (128, 256, 362, 512, 1024),
    ),
    Limit(
        "lower.unrolled_products",
        "LARGEST",
        lambda z, b: pt.tanh(z @ b).sum(axis=1),
        lambda n: [(ROWS, n), (n, n)],
        (2, 3, 4, 6, 8),
    ),
    Limit(
        "lower.unrolled_products",
        "LARGEST_WITH_ZEROS",
        _triangle,
        lambda n: [(ROWS, n), (n * (n + 1) // 2,)],
        (5, 8, 12, 16),
    ),
    Limit(
        "lower.reduction",
        "LONGEST",
        lambda x: pt.cumsum(pt.exp(x)),
        lambda n: [(n,)],
        (8, 32, 64, 128, 256),
    ),
    Limit(
        "passes.short_axes",
        "LONGEST",
        lambda x, c: pt.exp(x[:, None] - c).sum(axis=1),
        lambda n: [(ROWS,), (n,)],
        (2, 4, 8, 16, 32),
    ),
    Limit(
        "passes.short_axes",
        "LONG",
        lambda x, c: pt.exp(x[:, None] - c).sum(axis=1),
        lambda n: [(n,), (4,)],
        (16, 32, 64, 128, 1024),
        applied=5,
        lifted=ALL,
    ),
    Limit(
        "passes.short_axes",
        "LONGEST_GATHERED",
        lambda table, x: pt.exp(table[np.arange(ROWS) % 20] - x[:, None]).sum(axis=1),
        lambda n: [(20, n), (ROWS,)],
        (2, 4, 6, 8, 12),
    ),
    Limit(
        "passes.short_axes",
        "DEAR",
        lambda x, c: pt.exp(x[:, None] - c).sum(axis=1),
        lambda n: [(ROWS,), (n,)],
        (8, 12, 16),
    ),
    Limit(
        "passes.short_axes",
        "DEAR",
        _counts,
        lambda n: [(ROWS,), (n,), (ROWS, n)],
        (8, 12, 16),
    ),
    Limit(
        "passes.short_axes",
        "DEAR",
        lambda *args: _counts(*args[:2], pt.exp(args[2])),
        lambda n: [(ROWS,), (n,), (ROWS, n)],
        (8, 12, 16),
    ),
    Limit(
        "passes.reciprocal",
        "SHORT",
        lambda x: x / (1 + x[0] ** 2),
        lambda n: [(n,)],
        (4, 8, 16, 64, ROWS),
        applied=NONE,
        lifted=ALL,
    ),
    Limit(
        "passes.unswitch",
        "LEAST",
        lambda x, c: pt.switch(c > 0.5, pt.log(x), pt.sqrt(x)).sum(),
        lambda n: [(n,), ()],
        (8, 64, ROWS),
        applied=NONE,
        lifted=ALL,
    ),
    Limit(
        "passes.unswitch",
        "WORTH",
        lambda x, c: (pt.switch(c > 0.5, pt.exp(x), x) + pt.gammaln(x)).sum(),
        lambda n: [(n,), ()],
        (8, 64, ROWS),
        applied=NONE,
        lifted=1.0,
    ),
    Limit(
        "passes.interchange",
        "DISTANT",
        lambda x: pt.exp(x).T + 1,
        lambda n: [(n, n)],
        (16, 64, 256),
        applied=10.0,
        lifted=NONE,
    ),
    Limit(
        "emit.buffers",
        "STACK_BYTES",
        lambda x: pt.exp(x) / pt.exp(x).sum(),
        lambda n: [(n,)],
        (100, 1000, 8000, 30_000),
    ),
    *(
        Limit(
            "vecmath.vector",
            "FOUR_CHAINS",
            function,  # of 12 coefficients, 19 and 22
            lambda n: [(n,)],
            (4, 16, ROWS),
            applied=NONE,
            lifted=ALL,
        )
        for function in (lambda x: pt.arcsin(x / 2), pt.log, pt.erfcx)
    ),
    Limit("emit.scope", "CHEAP", _scattered, lambda n: [(n,)], (64, ROWS), applied=2),
    Limit(
        "native.target",
        "IN_FLIGHT",
        lambda x: pt.exp(x).sum(),
        lambda n: [(n,)],
        (16, 100, ROWS, 50_000),
        applied=2,
        lifted=1,
    ),
)


def _module(name: str) -> ModuleType:
    return import_module(f"pymc_fastlogp.kernel.{name}")


def ratio(limit: Limit, size: int) -> float:
    """Return how many times longer a kernel takes with the limit lifted than with it applied."""
    timers = {}
    for value in (limit.applied, limit.lifted):
        # What would be straight-line code is not what the limits of other products are about.
        others = (
            {"LARGEST": NONE, "LARGEST_WITH_ZEROS": NONE}
            if limit.module == "lower.products"
            else {}
        )
        with (
            mock.patch.dict(vars(_module("lower.unrolled_products")), others),
            mock.patch.dict(vars(_module(limit.module)), {limit.name: value}),
        ):
            timers[str(value)] = _timer(limit, size)
    rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return min(rounds[str(limit.lifted)]) / min(rounds[str(limit.applied)])


def _timer(limit: Limit, size: int) -> Timer:
    shapes = limit.shapes(size)
    inputs = [pt.tensor(f"x{i}", dtype="float64", shape=shape) for i, shape in enumerate(shapes)]
    graph = FunctionGraph(inputs, [limit.build(*inputs)], clone=True)
    rewrite_scan_inner_graphs(graph)
    program = optimize(lower(graph, [None] * len(inputs)))
    kernel = engine_of(program, compile_program(program, NAME))
    values = [np.random.default_rng(0).uniform(0.6, 1.4, shape) for shape in shapes]
    [output] = program.outputs
    result = np.empty(output.shape)
    numbers = [n for x in values for n in (x.ctypes.data, *x.shape, *x.strides)]
    loop = _loop(kernel.get_function_address(NAME), [*numbers, result.ctypes.data])
    repeat = ctypes.CFUNCTYPE(None, ctypes.c_int64)(loop.get_function_address(NAME))

    def seconds(n: int, _alive: tuple = (values, result, kernel, loop)) -> float:
        begin = perf_counter()
        repeat(n)
        return perf_counter() - begin

    return seconds


def _loop(address: int, arguments: list[int]) -> llvm.ExecutionEngine:
    """Return machine code that calls a function some times; Python takes longer for a call than small kernels."""
    module = ir.Module("loop")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), NAME)
    builder = ir.IRBuilder(function.append_basic_block())
    called = ir.FunctionType(I64, [I64] * len(arguments)).as_pointer()
    kernel = builder.inttoptr(I64(address), called)
    start, body, done = builder.block, *map(builder.append_basic_block, ("body", "done"))
    builder.branch(body)
    builder.position_at_end(body)
    i = builder.phi(I64)
    builder.call(kernel, list(map(I64, arguments)))
    following = builder.add(i, I64(1))
    i.add_incoming(I64(0), start)
    i.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, function.args[0]), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), target_machine())


def main(names: list[str]) -> None:
    """Print a row for each limit."""
    table = Table("limit", "value", "size: lifted / applied", title=machine()["cpu"])
    chosen = [limit for limit in LIMITS if not names or limit.name in names]
    with pinned():
        for limit in track(chosen, "measuring"):
            cells = [f"{size:,}: {ratio(limit, size):.2f}" for size in limit.sizes]
            value = getattr(_module(limit.module), limit.name)
            table.add_row(f"{limit.module}.{limit.name}", f"{value:,}", "   ".join(cells))
    Console(width=160).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
