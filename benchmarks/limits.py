"""What the limits of the kernel compiler are worth: time below a limit and beyond it, by size.

``python -m benchmarks.limits [NAME ...]`` compiles small graphs with a limit of :mod:`pymc_fastlogp.kernel` at either of two
values, one by which it applies and one by which it does not, runs both in turn on one core, and prints how much longer
the second takes. A limit belongs about where that falls to 1, or before, where code takes long to compile.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from pymc_fastlogp.benchmark.native import Timer
from pymc_fastlogp.benchmark.pairing import pinned, time_in_turn
from pymc_fastlogp.kernel.lower import lower
from tests.kernel.native_kernel import compile_native

ROUNDS, SECONDS_PER_ROUND = 15, 2e-3
ROWS = 2_000
NONE, ALL = 0, 2**60

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


def _triangle(z: TensorVariable, packed: TensorVariable) -> TensorVariable:
    n = z.type.shape[1]
    return z @ pt.zeros((n, n))[np.tril_indices(n)].set(packed).T


def _scattered(x: TensorVariable) -> TensorVariable:
    index = np.random.default_rng(0).integers(0, 50, x.type.shape[0])
    return pt.zeros(64)[pt.as_tensor(index) + pt.cast(pt.round(x[0]), "int64") * 2].inc(x)


LIMITS = (
    Limit(
        "lower.linalg",
        "LARGEST_CHOLESKY",
        lambda a: pt.linalg.cholesky(a + 40 * pt.eye(a.type.shape[0])),
        lambda n: [(n, n)],
        (4, 8, 12, 16, 24),
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
        "lower.unrolled_products", "LARGEST", pt.dot, lambda n: [(ROWS, n), (n, n)], (2, 3, 4, 6, 8)
    ),
    Limit(
        "lower.unrolled_products",
        "LARGEST_VOID",
        _triangle,
        lambda n: [(ROWS, n), (n * (n + 1) // 2,)],
        (5, 8, 12, 16),
    ),
    Limit(
        "lower.cumulative",
        "LONGEST",
        lambda x: pt.cumsum(pt.exp(x)),
        lambda n: [(n,)],
        (8, 32, 64, 128, 256),
    ),
    Limit(
        "passes.unroll",
        "LONGEST",
        lambda x, c: pt.exp(x[:, None] - c).sum(axis=1),
        lambda n: [(ROWS,), (n,)],
        (2, 4, 8, 16, 32),
    ),
    Limit(
        "passes.unroll",
        "LONG",
        lambda x, c: pt.exp(x[:, None] - c).sum(axis=1),
        lambda n: [(n,), (4,)],
        (16, 32, 64, 128, 1024),
        applied=5,
        lifted=ALL,
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
        "APART",
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
    Limit("emit.scatter_by_lane", "CHEAP", _scattered, lambda n: [(n,)], (64, ROWS)),
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
        others = {"LARGEST": NONE, "LARGEST_VOID": NONE} if limit.module == "lower.products" else {}
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
    kernel = compile_native(lower(graph, [None] * len(inputs)))
    values = [np.random.default_rng(0).uniform(0.6, 1.4, shape) for shape in shapes]
    outputs = kernel(*values)
    arguments = kernel.arguments(values, outputs)

    def seconds(n: int, _alive: tuple = (values, outputs)) -> float:
        begin = perf_counter()
        for _ in range(n):
            kernel.run(arguments)
        return perf_counter() - begin

    return seconds


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
