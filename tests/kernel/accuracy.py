"""Measure the errors of the vector functions against mpmath with 40 digits.

``python -m tests.kernel.accuracy`` writes the table of maxima into ``docs/vecmath.md``; with names, such as
``python -m tests.kernel.accuracy erf``, it prints the rows of these functions.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp
import numpy as np
import scipy.special
from rich.progress import track

from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, LARGEST, Function
from tests.kernel.vecmath_intrinsic import apply

PAGE = Path(__file__).parents[2] / "docs" / "vecmath.md"
BEGIN, END = "<!-- maxima -->\n", "<!-- end of maxima -->\n"
DIGITS = 40
NEIGHBORS = 3
# About half of the points of a function; the rest is in windows and at thresholds.
POINTS = 12_000
EXPONENTS = np.arange(-1074, 1024)
WINDOWS = ((-0.5, 0.5), (-3.0, 3.0), (-40.0, 40.0), (-750.0, 750.0))

POLES = {"log1p": [-1.0], "arctanh": [-1.0, 1.0], "erfinv": [-1.0, 1.0], "erfcinv": [2.0]}

# Where the functions change their formula, their sign or their kind of result.
THRESHOLDS = (
    *(0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 8.0, 20.0, 22.0, 27.0, 37.0, 40.0, 44.0, 171.0),
    *(2.0**-60, 2.0**-54, 2.0**-53, 2.0**-27, 2.0**52, 2.0**53, 2.0**60, 2.0**-1022, 2.0**1023),
    *(1.125, 1.25, 1.375, 1.625, 1.75, 1.875, 2.0**100),
    *(0.5**0.5, 2.0**0.5, 0.5**0.5 - 1, 2.0**0.5 - 1, 1.4616321449683623),
    *(0.34657359027997264, 0.6931471805599453, 1.0397207708399179, 1.2279471772995163),
    *(708.3964185322641, 709.782712893384, 744.4400719213812, 745.1332191019411, 1022.0, 1074.0),
    *(0.41421356237309503, 2.414213562373095, 710.4758600739439, 2.0**28, 2.0**30),
    *(0.7853981633974483, 1.5707963267948966, 3.141592653589793, 4.71238898038469, 355.0),
    *(2.4570247382208006, 2.7476826467274127, 3.1435808883499799, 4.0, 5.0, 19.0, 1e6),
    *(6.0, 8.3, 26.62873571375149, 27.226, 28.0, 38.48, 1.8961503816218352e154),
)


def _softplus(x: mp.mpf) -> mp.mpf:
    return max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def _log1mexp(x: mp.mpf) -> mp.mpf:
    return mp.log(-mp.expm1(x)) if x > -1 else mp.log1p(-mp.exp(x))


def _erfcx(x: mp.mpf) -> mp.mpf:
    # Beyond, mpmath would need as many digits as the exponential has; the series has 40.
    if x < 1e16:
        return mp.exp(x * x) * mp.erfc(x)
    return (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * mp.sqrt(mp.pi))


def _log_ndtr(x: mp.mpf) -> mp.mpf:
    z = x / mp.sqrt(2)
    return mp.log1p(-mp.erfc(z) / 2) if x > 0 else mp.log(_erfcx(-z) / 2) - z * z


def _erfinv(x: mp.mpf, tail: mp.mpf) -> mp.mpf:
    """Return erfinv(x) for the exact tail 1 - abs(x): two steps of Newton's method from SciPy's digits."""
    y = mp.mpf(float(scipy.special.erfinv(float(abs(x)))))
    if tail < 0.5:
        # Smaller ones would be infinite.
        y = mp.mpf(float(-scipy.special.ndtri_exp(float(mp.log(tail / 2))))) / mp.sqrt(2)
    for _ in range(2):
        error = mp.erfc(y) - tail if tail < 0.5 else abs(x) - mp.erf(y)
        y += error * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
    return mp.sign(x) * y


def _erfcinv(x: mp.mpf) -> mp.mpf:
    return _erfinv(1 - x, min(x, 2 - x))


def _logaddexp(a: mp.mpf, b: mp.mpf) -> mp.mpf:
    return max(a, b) + mp.log1p(mp.exp(-abs(a - b)))


def _trigamma(x: mp.mpf) -> mp.mpf:
    # mpmath's own reflection sums from x upwards, which takes long for large negative x.
    return mp.psi(1, x) if x > 0 else (mp.pi / mp.sinpi(x)) ** 2 - mp.psi(1, 1 - x)


def _scaled_bessel(n: int) -> Callable[[mp.mpf], mp.mpf]:
    def scaled(x: mp.mpf) -> mp.mpf:
        sign, x = mp.sign(x) ** n, abs(x)
        if x < 1e4:
            return sign * mp.exp(-x) * mp.besseli(n, x)
        half = mp.mpf(1) / 2
        return sign * mp.hyp2f0(half - n, half + n, 1 / (2 * x)) / mp.sqrt(2 * mp.pi * x)

    return scaled


REFERENCES = {
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "expm1": mp.expm1,
    "log": mp.log,
    "log1p": mp.log1p,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": mp.log10,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": _softplus,
    "log_sigmoid": lambda x: -_softplus(-x),
    "log1mexp": _log1mexp,
    "tanh": mp.tanh,
    "reciprocal": lambda x: 1 / x,
    "sqrt": mp.sqrt,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "arcsin": mp.asin,
    "arccos": mp.acos,
    "arctan": mp.atan,
    "arctan2": mp.atan2,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "arcsinh": mp.asinh,
    "arccosh": mp.acosh,
    "arctanh": mp.atanh,
    "gammaln": lambda x: mp.loggamma(x).real,
    "psi": lambda x: mp.psi(0, x),
    "trigamma": _trigamma,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "erfcx": _erfcx,
    "erfinv": lambda x: _erfinv(x, 1 - abs(x)),
    "erfcinv": _erfcinv,
    "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "log_ndtr": _log_ndtr,
    "i0e": _scaled_bessel(0),
    "i1e": _scaled_bessel(1),
    "pow": mp.power,
    "logaddexp": _logaddexp,
    "softplus_sum": lambda x, y: _softplus(x) + _softplus(y),
}


def _exponents(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return exponents of x for all sizes of the power, whole where x < 0 and for a quarter."""
    with np.errstate(divide="ignore"):
        y = rng.uniform(-746, 710, x.size) / np.log(np.abs(x))
    y = np.clip(np.where(rng.random(x.size) < 0.1, rng.uniform(-5, 5, x.size), y), -1e17, 1e17)
    return np.where((x < 0) | (rng.random(x.size) < 0.25), np.rint(y), y)


def _summands(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return second arguments: near the first, near where the result is 0, and any."""
    near = x + rng.uniform(-1, 1, x.size) * rng.choice([1.0, 40.0, 750.0], x.size)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        zero = np.where((x < 0) & (x > -700), np.log(-np.expm1(x)), near)
    return np.choose(rng.integers(3, size=x.size), [near, zero, rng.permutation(x)])


def _predictors(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return second arguments: near the first, near its negative, and any."""
    near = x + rng.uniform(-1, 1, x.size) * rng.choice([1.0, 40.0, 750.0], x.size)
    return np.choose(rng.integers(3, size=x.size), [near, -near, rng.permutation(x)])


def _lengths(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return coordinates x for angles of all sizes: like y in magnitude, and any."""
    with np.errstate(over="ignore", under="ignore"):
        near = y * np.exp(rng.normal(size=y.size) * rng.choice([1.0, 40.0], y.size))
    near = np.clip(near, -LARGEST, LARGEST) * rng.choice([-1.0, 1.0], y.size)
    return np.where(rng.random(y.size) < 0.7, near, rng.permutation(y))


# The second argument of functions of two, from the first.
SECOND = {
    "pow": _exponents,
    "logaddexp": _summands,
    "arctan2": _lengths,
    "softplus_sum": _predictors,
}


@dataclass(frozen=True)
class Maximum:
    """The largest error of a function over its points, in ulp.

    Attributes
    ----------
    row : Function
        The function.
    n_points : int
        Number of points.
    ulp : float
        The largest error.
    x : tuple of float
        Where it is.
    """

    row: Function
    n_points: int
    ulp: float
    x: tuple[float, ...]


def evaluate(name: str, x: np.ndarray, width: int | None = None) -> np.ndarray:
    """Return the vector function of an array, of several arguments one in each row."""
    x = np.ascontiguousarray(x, dtype=float)
    out = np.empty(x.shape[-1])
    apply(name, width)(x, out)
    return out


def points(row: Function, n: int, seed: int = 0) -> np.ndarray:
    """Return distinct points of the domain: about n of all exponents and n in windows, and neighbors."""
    low, high = row.domain
    rng = np.random.default_rng(seed)
    exponents = np.resize(EXPONENTS, n)
    spread = np.ldexp(rng.uniform(1, 2, n), exponents) * rng.choice([-1.0, 1.0], n)
    dense = [
        rng.uniform(max(low, a), min(high, b), n // len(WINDOWS))
        for a, b in WINDOWS
        if max(low, a) < min(high, b)
    ]
    at = np.concatenate([THRESHOLDS, np.negative(THRESHOLDS), row.domain])
    x = np.unique(np.concatenate([spread, *dense, *neighbors(at, NEIGHBORS)]))
    return x[(low <= x) & (x <= high) & (x != 0) & ~_poles(row, x)]


def arguments(row: Function, n: int, seed: int = 0) -> np.ndarray:
    """Return the points, and the second argument of functions of two in a second row."""
    first = points(row, n, seed)
    if row.n_arguments == 1:
        return first[np.newaxis]
    return np.stack([first, SECOND[row.name](first, np.random.default_rng(seed))])


def neighbors(x: np.ndarray, n: int) -> list[np.ndarray]:
    """Return x, and the n next doubles on both sides."""
    found = [x]
    up = down = x
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(n):
            up, down = np.nextafter(up, np.inf), np.nextafter(down, -np.inf)
            found += [up, down]
    return found


def _poles(row: Function, x: np.ndarray) -> np.ndarray:
    if row.name in ("gammaln", "psi", "trigamma"):
        return (x <= 0) & (x == np.floor(x))
    return np.isin(x, POLES.get(row.name, []))


def errors(row: Function, x: np.ndarray, results: np.ndarray) -> np.ndarray:
    """Return the error of the result at each column of x, in ulp of the larger of result and ``row.unit``.

    The exact value is split in the nearest double and the rest, so the error is itself exact to many digits.
    """
    nearest, rests = np.empty_like(results), np.empty_like(results)
    with mp.workdps(DIGITS):
        for i, column in enumerate(x.T):
            exact = REFERENCES[row.name](*map(mp.mpf, column.tolist()))
            nearest[i] = float(exact)
            if np.isfinite(nearest[i]):
                rests[i] = (exact - mp.mpf(nearest[i])) / float(_ulp(nearest[i], row.unit))
    with np.errstate(invalid="ignore"):
        error = np.abs((results - nearest) / _ulp(nearest, row.unit) - rests)
    return np.where(np.isinf(nearest), np.where(results == nearest, 0.0, np.inf), error)


def _ulp(x: np.ndarray, unit: float) -> np.ndarray:
    """Return the unit in the last place of the larger of ``abs(x)`` and ``unit``."""
    return np.spacing(np.clip(np.abs(x), unit, np.nextafter(LARGEST, 0)))


def measure(row: Function, n: int, seed: int = 0) -> Maximum:
    """Return the largest error over the points."""
    x = arguments(row, n, seed)
    error = errors(row, x, evaluate(row.name, x))
    worst = int(np.argmax(np.nan_to_num(error, nan=np.inf)))
    return Maximum(row, error.size, float(error[worst]), tuple(x[:, worst].tolist()))


def as_markdown(maxima: list[Maximum]) -> str:
    """Return the table of maxima."""
    lines = ["| function | points | largest error (ulp) | at | bound |", "|---|---|---|---|---|"]
    for maximum in maxima:
        unit = f" of max(abs, {maximum.row.unit:g})" if maximum.row.unit else ""
        at = ", ".join(f"{x:.6g}" for x in maximum.x)
        lines.append(
            f"| {maximum.row.name} | {maximum.n_points} | {maximum.ulp:.2f} | {at} | "
            f"{maximum.row.ulp:g}{unit} |"
        )
    return "\n".join(lines) + "\n"


def table_of(page: str) -> str:
    """Return the table of maxima that stands in a page."""
    return page.split(BEGIN)[1].split(END)[0]


def main(names: list[str]) -> None:
    """Measure the named functions and print the table, or measure all and write the table into the page."""
    if names:
        print(as_markdown([measure(FUNCTIONS[name], POINTS) for name in names]))
        return
    maxima = [measure(row, POINTS) for row in track(FUNCTIONS.values(), "measuring")]
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + as_markdown(maxima) + END + after)


if __name__ == "__main__":
    main(sys.argv[1:])
