"""Time of matrix models relative to bounds by BLAS and LAPACK.

A bound is the time of the factorizations, inverses and products that the mathematics requires, each once at its size, by the fastest functions of BLAS and LAPACK, called
from machine code on one core. A ratio below 1 means that our own functions are faster than LAPACK's. The last column adds the time of elementwise functions to the
bound, each in a loop of its own, for models that need many.
"""

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.gallery import MODELS
from benchmarks.machine import machine
from benchmarks.native_loop import timer_of_code
from benchmarks.suite import SUITE
from pymc_fastlogp._upstream.scipy import address
from pymc_fastlogp.benchmarking.native import Timer
from pymc_fastlogp.benchmarking.pairing import time_in_turn
from pymc_fastlogp.benchmarking.run import compile_side, legal_points
from pymc_fastlogp.kernel.llvm import I64, POINTER
from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS
from tests.kernel.vecmath_loop import emit_loop, n_arguments

ROUNDS, SECONDS_PER_ROUND = 9, 0.02
Matrix = NDArray[np.float64]
# Name and arguments of a function, "memcpy" with two arrays, or an elementwise function with its input and output.
LibraryCall = tuple[str, tuple[Any, ...]]


class Bound(NamedTuple):
    """Least work of a model.

    Attributes
    ----------
    needs : str
        Description in the table.
    ways : list of list
        Alternative lists of calls that do the work.
    elementwise : mapping of str to int
        Numbers of arguments of elementwise functions.
    """

    needs: str
    ways: list[list[LibraryCall]]
    elementwise: Mapping[str, int] = MappingProxyType({})


def covariance(n: int) -> Matrix:
    """Return the matrix of a smooth process with noise."""
    x = np.linspace(0, 10, n)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + 0.1 * np.eye(n)


def factor(n: int) -> list[list[LibraryCall]]:
    """Return the ways to factor a matrix, which is copied first."""
    given = covariance(n)
    ways = (("dpotrf", "U"), ("dpotrf", "L"), ("dpotf2", "U"), ("dpotf2", "L"))
    return [
        [("memcpy", (a := given.copy(), given)), (function, (triangle, n, a, n, 0))]
        for function, triangle in ways
    ]


def factor_and_inverse(n: int) -> list[list[LibraryCall]]:
    """Return the ways to a factor, and from it to the inverse."""
    return [[*way, ("dpotri", (way[1][1][0], n, way[1][1][2], n, 0))] for way in factor(n)]


def eigenvectors(*lengths: int) -> list[list[LibraryCall]]:
    """Return the ways to all eigenvectors of matrices of these sizes."""
    ways: list[list[LibraryCall]] = [[], []]
    for n in lengths:
        given, w, work = covariance(n), np.empty(n), np.empty(10 * n * n + 100)
        integers = np.empty(10 * n, dtype=np.int32)
        for way, function in zip(ways, ("dsyev", "dsyevd"), strict=True):
            a = given.copy()
            whole = (integers, integers.size) if function == "dsyevd" else ()
            arguments = ("V", "L", n, a, n, w, work, work.size, *whole, 0)
            way += [("memcpy", (a, given)), (function, arguments)]
    return ways


def products(*shapes: tuple[int, int]) -> list[list[LibraryCall]]:
    """Return the products of constant matrices and a vector, and of their transposes."""
    calls: list[LibraryCall] = []
    for rows, columns in shapes:
        a, x, y = np.ones((columns, rows)), np.ones(columns), np.ones(rows)
        calls += [
            ("dgemv", ("N", rows, columns, 1.0, a, rows, x, 1, 0.0, y, 1)),
            ("dgemv", ("T", rows, columns, 1.0, a, rows, y, 1, 0.0, x, 1)),
        ]
    return [calls]


def factors_of_ratings(rows: int, columns: int, rank: int) -> list[list[LibraryCall]]:
    """Return the product of two factors and the two of its gradient."""
    u, v, r = np.ones((rows, rank)), np.ones((columns, rank)), np.ones((rows, columns))
    return [
        [
            ("dgemm", ("T", "N", columns, rows, rank, 1.0, v, rank, u, rank, 0.0, r, columns)),
            ("dgemm", ("N", "N", rank, rows, columns, 1.0, v, rank, r, columns, 0.0, u, rank)),
            ("dgemm", ("N", "T", rank, columns, rows, 1.0, u, rank, r, columns, 0.0, v, rank)),
        ]
    ]


def sparse_process(n: int, inducing: int) -> list[list[LibraryCall]]:
    """Return two factors, and the products of a long matrix: solved, its square, and two for the gradient."""
    long, small = np.ones((n, inducing)), covariance(inducing)
    factor, square = np.linalg.cholesky(small), np.empty((inducing, inducing))
    m = inducing
    calls: list[LibraryCall] = []
    for way in (factor_and_inverse(m)[0], factor_and_inverse(m)[0]):
        calls += way
    other = long.copy()
    calls += [
        ("dtrsm", ("L", "U", "T", "N", m, n, 1.0, factor, m, long, m)),
        ("dsyrk", ("U", "N", m, n, 1.0, long, m, 0.0, square, m)),
        ("dgemm", ("N", "N", m, n, m, 1.0, factor, m, long, m, 0.0, other, m)),
        ("dgemm", ("N", "T", m, m, n, 1.0, other, m, long, m, 0.0, square, m)),
    ]
    return [calls]


def functions(numbers: Mapping[str, int]) -> list[LibraryCall]:
    """Return loops of elementwise functions, with numbers of arguments between 0.1 and 2."""
    rng = np.random.default_rng(0)
    return [
        (name, (rng.uniform(0.1, 2.0, (n_arguments(name), n)), np.empty(n)))
        for name, n in numbers.items()
    ]


INVERSE = "a factor and an inverse of"
BOUNDS: dict[str, Bound] = {
    "marginal_gp": Bound(f"{INVERSE} 200 rows", factor_and_inverse(200)),
    "motorcycle": Bound(f"{INVERSE} 133 rows", factor_and_inverse(133)),
    "gp_marginal": Bound(f"{INVERSE} 100 rows", factor_and_inverse(100)),
    "gp_additive_mauna_loa": Bound(
        f"{INVERSE} 80 rows",
        factor_and_inverse(80),
        {"sqrt": 3240, "exp": 6480, "pow": 3240, "log1p": 3240},
    ),
    "gp_coregion": Bound(f"{INVERSE} 90 rows", factor_and_inverse(90)),
    "gp_latent": Bound(f"{INVERSE} 50 rows", factor_and_inverse(50)),
    "gp_sparse": Bound(
        f"two times {INVERSE} 15 rows, 150 x 15 products",
        sparse_process(150, 15),
        {"sqrt": 2475, "exp": 2475},
    ),
    "gp_kronecker": Bound("eigenvectors of 8 and of 12 rows", eigenvectors(8, 12)),
    "gp_hsgp_birthdays": Bound(
        "730 x 20, 20 and 19 matrices times vectors, both ways",
        products((730, 20), (730, 20), (730, 19)),
        {"log1p": 730},
    ),
    "probabilistic_matrix_factorization": Bound(
        "100 x 10 x 100 products, three", factors_of_ratings(100, 100, 10)
    ),
}


def timer(calls: list[LibraryCall]) -> Timer:
    """Return the timer of some calls from machine code."""
    alive: list[Any] = []

    def emit(builder: ir.IRBuilder) -> None:
        for name, arguments in calls:
            if name in FUNCTIONS:
                _call_elementwise(builder, name, *arguments)
                alive.extend(arguments)
                continue
            places = [builder.inttoptr(I64(_place(a, alive)), POINTER) for a in arguments]
            last = [I64(arguments[0].nbytes)] if name == "memcpy" else []
            type_ = ir.FunctionType(ir.VoidType(), [x.type for x in (*places, *last)])
            callee = builder.inttoptr(I64(_address(name)), type_.as_pointer())
            builder.call(callee, [*places, *last])

    return timer_of_code(emit, alive)


def _call_elementwise(builder: ir.IRBuilder, name: str, x: Matrix, out: Matrix) -> None:
    loop = emit_loop(builder.module, name, default_width(), f"bound_{name}")
    doubles = loop.args[0].type
    places = [builder.inttoptr(I64(a.ctypes.data), doubles) for a in (x, out)]
    builder.call(loop, [*places, I64(out.size)])


def _address(name: str) -> int:
    if name == "memcpy":
        return ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
    return address(name)


def _place(argument: Any, alive: list[Any]) -> int:
    """Return the address of an argument, whose memory is kept alive."""
    if isinstance(argument, str):
        argument = np.frombuffer(argument.encode(), dtype=np.uint8)
    elif isinstance(argument, int):
        argument = np.array([argument], dtype=np.int32)
    elif isinstance(argument, float):
        argument = np.array([argument])
    alive.append(argument)
    return argument.ctypes.data


def model_of(name: str) -> Callable[[], Any]:
    """Return the builder of a model of the gallery or of the suite."""
    return MODELS[name].make if name in MODELS else next(c.make for c in SUITE if c.name == name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("models", nargs="*", metavar="model", help="all by default")


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield a table with a row for each model."""
    if unknown := set(arguments.models) - {*BOUNDS}:
        sys.exit(f"No bound of {', '.join(sorted(unknown))}. There are: {', '.join(BOUNDS)}.")
    columns = ("model", "needs", "bound, µs", "on, µs", "on / bound", "with functions")
    table = Table(*columns, title=machine()["cpu"])
    for name in arguments.models or BOUNDS:
        bound, callback = BOUNDS[name], compile_side(model_of(name)(), "on")
        timers = {f"way {k}": timer(way) for k, way in enumerate(bound.ways)}
        if bound.elementwise:
            timers["elementwise"] = timer(functions(bound.elementwise))
        timers["on"] = callback.timer(legal_points(callback, seed=0))
        seconds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
        medians = {side: float(np.median(times)) for side, times in seconds.items()}
        on, elementwise = medians.pop("on"), medians.pop("elementwise", 0.0)
        least = min(medians.values())
        whole = f"{on / (least + elementwise):.2f}" if bound.elementwise else ""
        cells = (f"{1e6 * least:.3g}", f"{1e6 * on:.3g}", f"{on / least:.2f}", whole)
        table.add_row(name, bound.needs, *cells)
    yield table
