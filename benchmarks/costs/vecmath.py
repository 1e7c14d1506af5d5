"""Nanoseconds per element of the vector functions, beside NumPy, Numba's scalar call and XLA.

Arrays have a few thousand elements, which stay in the first-level cache. Numba, XLA and the vector functions repeat in native code; NumPy and SciPy
are called from Python, one call for all elements. All sides take turns in many short rounds, and the fastest round of each side is printed,
which other processes disturb least. All arrays begin at a cache line, as XLA's arrays do.
Arguments are uniform in a range that is usual for log densities; ``--range`` sets another.

"scalar" is the scalar function that PyTensor compiles for Numba, in a loop with PyTensor's fast-math flags. The last
columns are the times of "scalar" and XLA, divided by the time at the default width.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial

import numba
import numpy as np
import pytensor.scalar as ps
import scipy.special
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit
from rich.progress import track
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.native_loop import timed
from pymc_fastlogp.benchmarking.native import Timer
from pymc_fastlogp.benchmarking.pairing import time_in_turn
from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from tests.kernel.vecmath_intrinsic import apply
from tests.kernel.vecmath_loop import n_arguments, n_results

SIZE = 2048
CACHE_LINE = 64
WIDTHS = (1, 2, 4, 8, 16)
ROUNDS = 120
SECONDS_PER_ROUND = 0.001

POSITIVE, NEGATIVE, BOTH = (0.1, 20.0), (-20.0, -0.1), (-10.0, 10.0)
RANGES = dict.fromkeys(["log", "log1p", "log2", "log10", "gammaln", "psi", "trigamma"], POSITIVE)
RANGES |= dict.fromkeys(["gammaln_psi", "sqrt", "log_reciprocal"], POSITIVE)
RANGES |= dict.fromkeys(["arcsin", "arccos", "arctanh"], (-1.0, 1.0)) | {"arccosh": (1.0, 20.0)}
RANGES |= {"log1mexp": NEGATIVE, "pow": POSITIVE, "erfinv": (-1.0, 1.0), "erfcinv": (0.0, 2.0)}

# NumPy, PyTensor and JAX have these functions by the same names.
ELEMENTARY = ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "tanh")
TRIGONOMETRIC = ("reciprocal", "sqrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2")
HYPERBOLIC = ("sinh", "cosh", "arcsinh", "arccosh", "arctanh")
# So have SciPy, JAX and, the first of them, PyTensor.
ERROR, NORMAL = ("erf", "erfc", "erfcx", "erfinv", "erfcinv"), ("ndtr", "log_ndtr")

NUMPY: dict[str, Callable] = {
    **{f: getattr(np, f) for f in (*ELEMENTARY, *TRIGONOMETRIC, *HYPERBOLIC)},
    **{f: getattr(scipy.special, f) for f in (*ERROR, *NORMAL)},
    "pow": np.power,
    "logaddexp": np.logaddexp,
    "sigmoid": scipy.special.expit,
    "softplus": partial(np.logaddexp, 0.0),
    "log_sigmoid": scipy.special.log_expit,
    "gammaln": scipy.special.gammaln,
    "psi": scipy.special.psi,
}
SCALAR = {
    **{f: getattr(ps, f) for f in (*ERROR, "pow")},
    **{f: getattr(ps, f) for f in (*ELEMENTARY, *TRIGONOMETRIC, *HYPERBOLIC)},
    **{f: getattr(ps, f) for f in ("sigmoid", "softplus", "log1mexp", "gammaln", "psi")},
}
XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Return an empty array of doubles that begins at a cache line."""
    n_bytes = 8 * math.prod(shape)
    memory = np.empty(n_bytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + n_bytes].view(np.float64).reshape(shape)


def vector_timer(name: str, width: int, x: np.ndarray) -> Timer:
    """Return the timer of a vector function; its arguments are the rows of x."""
    out = aligned((n_results(name), SIZE))
    return timed(partial(_repeat_loop(apply(name, width)), x, out))


def scalar_timer(name: str, x: np.ndarray) -> Timer:
    """Return the timer of PyTensor's scalar function, applied element by element."""
    op = SCALAR[name]
    scalar = numba_funcify(op, node=op.make_node(*[ps.float64() for _ in x]))

    @numba_njit(final_function=True)
    def apply_to_one(x, out):
        for i in range(out.size):
            out[i] = scalar(x[0, i])

    @numba_njit(final_function=True)
    def apply_to_two(x, out):
        for i in range(out.size):
            out[i] = scalar(x[0, i], x[1, i])

    apply_scalar = apply_to_one if len(x) == 1 else apply_to_two
    return timed(partial(_repeat_loop(apply_scalar), x, aligned((SIZE,))))


def numpy_timer(name: str, x: np.ndarray) -> Timer:
    """Return the timer of NumPy or SciPy."""
    out = aligned((SIZE,))

    def repeat(n: int) -> None:
        for _ in range(n):
            NUMPY[name](*x, out=out)

    return timed(repeat)


@cache
def xla_functions() -> dict[str, Callable]:
    """Return the functions of JAX, which is imported for one core and double precision."""
    os.environ["XLA_FLAGS"] = XLA_FLAGS
    import jax
    import jax.numpy as jnp
    import jax.scipy.special

    jax.config.update("jax_enable_x64", True)
    return {
        **{f: getattr(jax.scipy.special, f) for f in (*ERROR, *NORMAL)},
        "pow": jnp.power,
        "logaddexp": jnp.logaddexp,
        **{f: getattr(jnp, f) for f in (*ELEMENTARY, *TRIGONOMETRIC, *HYPERBOLIC)},
        **{f: getattr(jax.nn, f) for f in ("sigmoid", "softplus", "log_sigmoid")},
        "log1mexp": lambda x: jax.nn.log1mexp(-x),
        "gammaln": jax.scipy.special.gammaln,
        "psi": jax.scipy.special.digamma,
        "trigamma": partial(jax.scipy.special.polygamma, 1),
    }


def xla_timer(name: str, x: np.ndarray) -> Timer:
    """Return the timer of XLA; the barrier keeps it from doing the work once for all repeats."""
    function = xla_functions()[name]
    import jax
    import jax.numpy as jnp

    @jax.jit
    def repeat(x: list[jax.Array], n: int) -> jax.Array:
        def once(_: int, state: tuple[list[jax.Array], jax.Array]) -> tuple:
            return jax.lax.optimization_barrier((state[0], function(*state[0])))

        return jax.lax.fori_loop(0, n, once, (x, jnp.zeros(SIZE)))[1]

    rows = [jnp.asarray(row) for row in x]
    return timed(lambda n: repeat(rows, n).block_until_ready())


def times(name: str, low: float, high: float) -> dict[str, float]:
    """Return nanoseconds per element of each side that has the function, for arguments in a range."""
    x = aligned((n_arguments(name), SIZE))
    x[:] = np.random.default_rng(0).uniform(low, high, x.shape)
    timers = {f"width {w}": vector_timer(name, w, x) for w in {*WIDTHS, default_width()}}
    others: tuple[tuple[str, Collection[str], Callable[[str, np.ndarray], Timer]], ...] = (
        ("NumPy", NUMPY, numpy_timer),
        ("scalar", SCALAR, scalar_timer),
        ("XLA", xla_functions(), xla_timer),
    )
    timers |= {side: make(name, x) for side, has, make in others if name in has}
    rounds = time_in_turn(timers, rounds=ROUNDS, seconds_per_round=SECONDS_PER_ROUND)
    return {side: min(seconds) / SIZE * 1e9 for side, seconds in rounds.items()}


def as_table(measured: dict[str, dict[str, float]]) -> Table:
    """Return the table of nanoseconds per element and of ratios."""
    columns = [*(f"width {w}" for w in WIDTHS), "NumPy", "scalar", "XLA"]
    ratios = ["scalar", "XLA"]
    headers = [*columns, *(f"{side} / width {default_width()}" for side in ratios)]
    table = Table("function", title=f"ns per element, {machine()['cpu']}")
    for header in headers:
        table.add_column(header, justify="right")
    for name, of in measured.items():
        default = of[f"width {default_width()}"]
        cells = [f"{of[side]:.2f}" if side in of else "" for side in columns]
        cells += [f"{of[side] / default:.1f}" if side in of else "" for side in ratios]
        table.add_row(name, *cells)
    return table


@cache
def _repeat_loop(f: Callable) -> Callable:
    @numba.njit
    def repeat(x, out, n):
        for _ in range(n):
            f(x, out)

    return repeat


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("functions", nargs="*", metavar="function", help="all by default")
    parser.add_argument(
        "--range", nargs=2, type=float, metavar=("low", "high"), help="of arguments"
    )


def tables(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yield the table of the functions."""
    names = arguments.functions or [*FUNCTIONS, *SHARED]
    if unknown := set(names) - {*FUNCTIONS, *SHARED}:
        sys.exit(f"No vector function {', '.join(sorted(unknown))}.")
    yield as_table(
        {
            name: times(name, *(arguments.range or RANGES.get(name, BOTH)))
            for name in track(names, "measuring")
        }
    )
