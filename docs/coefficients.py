r"""Derive the polynomials of ``pymc_fastlogp.kernel.vecmath`` and print them as its module.

``python docs/coefficients.py > pymc_fastlogp/kernel/vecmath/polynomials.py``

Each polynomial is the minimax approximation of a smooth function :math:`g` on the range that is left
after range reduction: it makes the largest :math:`|w(t) (g(t) - p(t))|` as small as it can be. The weight
:math:`w` turns an error of :math:`p` into the error of the result, relative or absolute as the
row says. The method is Remez exchange with 60 digits (E. Ya. Remez 1934; J.-M. Muller, Elementary
Functions, 3rd ed., chapter 3) on a dense grid of Chebyshev points in place of the continuum. The
coefficients are then rounded to doubles, and the error that is printed is that of the rounded polynomial.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import mpmath as mp

DIGITS = 60
GRID_POINTS_PER_COEFFICIENT = 24
# The largest error of the exchange over its levelled error at which it has converged.
LEVEL = 1.001

Real = Callable[[mp.mpf], mp.mpf]
Coefficients = tuple[float, ...]

mp.mp.dps = DIGITS
SQRT2 = mp.sqrt(2)


@dataclass(frozen=True)
class Polynomial:
    """What a polynomial approximates.

    Attributes
    ----------
    name : str
        Its name in ``polynomials.py``.
    formula : str
        The function, its variable and its range, for the reader.
    function : callable
        The function.
    weight : callable
        What an error of the polynomial is multiplied by.
    low, high : mpf
        The range.
    n : int
        Number of coefficients.
    """

    name: str
    formula: str
    function: Real
    weight: Real
    low: mp.mpf
    high: mp.mpf
    n: int


def _stirling(z: mp.mpf) -> mp.mpf:
    x = 1 / mp.sqrt(z)
    return x * (mp.loggamma(x) - (x - 0.5) * (mp.log(x) - 1) - (mp.log(2 * mp.pi) - 1) / 2)


def _psi_tail(z: mp.mpf) -> mp.mpf:
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - 1 / (2 * x) - mp.psi(0, x)) / z


def _trigamma_tail(z: mp.mpf) -> mp.mpf:
    x = 1 / mp.sqrt(z)
    return (mp.psi(1, x) - 1 / x - z / 2) * x / z


def _sinpi(z: mp.mpf) -> mp.mpf:
    t = mp.pi * mp.sqrt(z)
    return (mp.sin(t) / t - 1) / z + 1.5


def _cotpi(z: mp.mpf) -> mp.mpf:
    f = mp.sqrt(z)
    return (1 / f - mp.pi * mp.cot(mp.pi * f)) / f - 4


def _odd(f: Real) -> Real:
    """Return what is left of an odd function, ``(f(t)/t - 1) / t**2``, in ``t**2``."""

    def rest(z: mp.mpf) -> mp.mpf:
        t = mp.sqrt(z)
        return (f(t) / t - 1) / z

    return rest


def _relative_to_odd(f: Real) -> Real:
    """Return the weight of :func:`_odd` for an error relative to the function."""
    return lambda z: z * mp.sqrt(z) / f(mp.sqrt(z))


def _cos(z: mp.mpf) -> mp.mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _erfcx(x: mp.mpf) -> mp.mpf:
    return mp.exp(x * x) * mp.erfc(x)


def _erfcx_factor(t: mp.mpf) -> mp.mpf:
    w, a = (1 - t) / 6, 1 / mp.sqrt(mp.pi)
    return ((_erfcx(1 / w - 3) / w - a) / w - (9 - 3 * a)) / (1 + t) + 4


def _inverse_of_tail(s: mp.mpf) -> mp.mpf:
    """Return y with erfc(y) = exp(-s**2), by Newton's method for s**2 + log(erfc(y)) = 0."""
    y, step = s, mp.mpf(1)
    while abs(step) > mp.mpf(10) ** (5 - DIGITS) * y:
        tail = mp.erfc(y)
        step = (s * s + mp.log(tail)) * tail * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y += step
    return y


def _tail_of(t: mp.mpf) -> mp.mpf:
    return (32 * t + 48) / (11 - 8 * t)


def _erfcinv_tail(t: mp.mpf) -> mp.mpf:
    s = _tail_of(t)
    return _inverse_of_tail(s) - s + mp.mpf(3) / 8


HALF_LN2 = mp.log(2) / 2
HALF = mp.mpf(1) / 2
QUARTER = mp.mpf(1) / 4
# Stirling's series is used from 5/2 on: 1/x^2 <= 4/25.
STIRLING = mp.mpf(4) / 25

POLYNOMIALS = (
    Polynomial(
        "EXP",
        "(exp(r) - 1 - r) / r**2 for |r| <= log(2)/2; relative to exp(r)",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.exp(r),
        -HALF_LN2,
        HALF_LN2,
        10,
    ),
    Polynomial(
        "EXP2",
        "(2**r - 1) / r for |r| <= 1/2; relative to 2**r",
        lambda r: mp.expm1(r * mp.log(2)) / r,
        lambda r: r / 2**r,
        -HALF,
        HALF,
        12,
    ),
    Polynomial(
        "LOG",
        "(log(1 + f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2); relative to log(1 + f)",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        1 / SQRT2 - 1,
        SQRT2 - 1,
        19,
    ),
    Polynomial(
        "GAMMALN",
        "log(gamma(2 + d)) / d for |d| <= 1/2; relative",
        lambda d: mp.loggamma(2 + d) / d,
        lambda d: d / mp.loggamma(2 + d),
        -HALF,
        HALF,
        18,
    ),
    Polynomial(
        "GAMMALN_STIRLING",
        "x (log(gamma(x)) - (x - 1/2) (log(x) - 1) - (log(2 pi) - 1) / 2) in 1/x**2 for x >= 5/2; absolute",
        _stirling,
        mp.sqrt,
        mp.mpf(0),
        STIRLING,
        12,
    ),
    Polynomial(
        "PSI",
        "psi(2 + d) for |d| <= 1/2; absolute",
        lambda d: mp.psi(0, 2 + d),
        lambda d: mp.mpf(1),
        -HALF,
        HALF,
        19,
    ),
    Polynomial(
        "PSI_STIRLING",
        "x**2 (log(x) - 1/(2 x) - psi(x)) in 1/x**2 for x >= 5/2; absolute",
        _psi_tail,
        lambda z: z,
        mp.mpf(0),
        STIRLING,
        13,
    ),
    Polynomial(
        "TRIGAMMA",
        "psi'(2 + d) - 1/2 for |d| <= 1/2; relative to psi'(2 + d)",
        lambda d: mp.psi(1, 2 + d) - HALF,
        lambda d: 1 / mp.psi(1, 2 + d),
        -HALF,
        HALF,
        20,
    ),
    Polynomial(
        "TRIGAMMA_STIRLING",
        "x**3 (psi'(x) - 1/x - 1/(2 x**2)) in 1/x**2 for x >= 5/2; relative to psi'(x)",
        _trigamma_tail,
        lambda z: z ** mp.mpf("1.5") / mp.psi(1, 1 / mp.sqrt(z)),
        mp.mpf(0),
        STIRLING,
        14,
    ),
    Polynomial(
        "SINPI",
        "(sin(pi f) / (pi f) - 1) / f**2 + 3/2 in f**2 for |f| <= 1/2; relative to sin(pi f) / (pi f)",
        _sinpi,
        lambda z: z / (1 + z * (_sinpi(z) - 1.5)),
        mp.mpf(0),
        QUARTER,
        8,
    ),
    Polynomial(
        "COTPI",
        "(1/f - pi cot(pi f)) / f - 4 in f**2 for |f| <= 1/2; absolute",
        _cotpi,
        mp.sqrt,
        mp.mpf(0),
        QUARTER,
        16,
    ),
    Polynomial(
        "SIN",
        "(sin(r) / r - 1) / r**2 in r**2 for |r| <= pi/4; relative to sin(r)",
        _odd(mp.sin),
        _relative_to_odd(mp.sin),
        mp.mpf(0),
        (mp.pi / 4) ** 2,
        6,
    ),
    Polynomial(
        "COS",
        "(cos(r) - 1 + r**2/2) / r**4 in r**2 for |r| <= pi/4; relative to cos(r)",
        _cos,
        lambda z: z**2 / mp.cos(mp.sqrt(z)),
        mp.mpf(0),
        (mp.pi / 4) ** 2,
        6,
    ),
    Polynomial(
        "SINH",
        "(sinh(r) / r - 1) / r**2 in r**2 for |r| <= log(2)/2; relative to sinh(r)",
        _odd(mp.sinh),
        _relative_to_odd(mp.sinh),
        mp.mpf(0),
        HALF_LN2**2,
        5,
    ),
    Polynomial(
        "COSH",
        "(cosh(r) - 1) / r**2 in r**2 for |r| <= log(2)/2; absolute",
        lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z,
        lambda z: z,
        mp.mpf(0),
        HALF_LN2**2,
        5,
    ),
    Polynomial(
        "ASIN",
        "(arcsin(s) / s - 1) / s**2 in s**2 for |s| <= 1/2; relative to arcsin(s)",
        _odd(mp.asin),
        _relative_to_odd(mp.asin),
        mp.mpf(0),
        QUARTER,
        12,
    ),
    Polynomial(
        "ATAN",
        "(arctan(y) / y - 1) / y**2 in y**2 for |y| <= tan(pi/8); relative to arctan(y)",
        _odd(mp.atan),
        _relative_to_odd(mp.atan),
        mp.mpf(0),
        mp.tan(mp.pi / 8) ** 2,
        11,
    ),
    Polynomial(
        "ERF",
        "erf(x) / x - 1 in x**2 for |x| <= 1; relative to erf(x)",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
        mp.mpf(0),
        mp.mpf(1),
        12,
    ),
    Polynomial(
        "LOG_ERFC",
        "log(erfc(x)) for 1 <= x <= 6; absolute in erfc(x)",
        lambda x: mp.log(mp.erfc(x)),
        mp.erfc,
        mp.mpf(1),
        mp.mpf(6),
        18,
    ),
    Polynomial(
        "ERFCX",
        "((erfcx(x) / w - a) / w - 9 + 3 a) / (1 + t) + 4 in t = 1 - 6 w with w = 1/(x + 3), a = 1/sqrt(pi); relative to erfcx(x)",
        _erfcx_factor,
        lambda t: ((1 - t) / 6) ** 2 * (1 + t) / _erfcx(6 / (1 - t) - 3),
        mp.mpf(-1),
        mp.mpf(1),
        22,
    ),
    Polynomial(
        "ERFINV",
        "erfinv(x) / x - 1 in x**2 for |x| <= 1/2; relative to erfinv(x)",
        lambda z: mp.erfinv(mp.sqrt(z)) / mp.sqrt(z) - 1,
        lambda z: mp.sqrt(z) / mp.erfinv(mp.sqrt(z)),
        mp.mpf(0),
        QUARTER,
        14,
    ),
    Polynomial(
        "ERFCINV",
        "erfcinv(exp(-s**2)) - s + 3/8 in t = (11 s / 8 - 6) / (s + 4) for |t| <= 1.01; relative to erfcinv",
        _erfcinv_tail,
        lambda t: 1 / _inverse_of_tail(_tail_of(t)),
        mp.mpf("-1.01"),
        mp.mpf("1.01"),
        34,
    ),
    Polynomial(
        "ATANH",
        "(arctanh(s) / s - 1 - s**2/3) / s**4 in s**2 for (1 + s) / (1 - s) <= sqrt(2); relative to arctanh(s)",
        lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1 - z / 3) / z**2,
        lambda z: z**2 * mp.sqrt(z) / mp.atanh(mp.sqrt(z)),
        mp.mpf(0),
        (3 - 2 * SQRT2) ** 2,
        8,
    ),
)


def minimax(row: Polynomial) -> Coefficients:
    """Return the coefficients of the minimax polynomial as doubles, constant term first."""
    grid = _chebyshev_points(row, GRID_POINTS_PER_COEFFICIENT * row.n)
    values = [row.function(t) for t in grid]
    weights = [row.weight(t) for t in grid]
    nodes = [round(i * (len(grid) - 1) / row.n) for i in range(row.n + 1)]
    while True:
        *exact, level = _levelled(
            [grid[i] for i in nodes], [values[i] for i in nodes], [weights[i] for i in nodes]
        )
        errors = [w * (v - _horner(exact, t)) for t, v, w in zip(grid, values, weights)]
        if max(map(abs, errors)) <= LEVEL * abs(level):
            return tuple(map(float, exact))
        nodes = _alternation(errors, row.n + 1)


def largest_error(row: Polynomial, coefficients: Coefficients, points: int) -> mp.mpf:
    """Return the largest weighted error of a polynomial on a grid of Chebyshev points."""
    return max(
        abs(row.weight(t) * (row.function(t) - _horner(coefficients, t)))
        for t in _chebyshev_points(row, points)
    )


def _horner(coefficients: Sequence[mp.mpf | float], t: mp.mpf) -> mp.mpf:
    return reduce(lambda value, c: value * t + c, reversed(coefficients), mp.mpf(0))


def _chebyshev_points(row: Polynomial, n: int) -> list[mp.mpf]:
    """Return an even number of points, so that none is the middle, where g may be 0/0."""
    middle, radius = (row.high + row.low) / 2, (row.high - row.low) / 2
    n += n % 2
    return [middle - radius * mp.cos(mp.pi * (i + HALF) / n) for i in range(n)]


def _levelled(nodes: list[mp.mpf], values: list[mp.mpf], weights: list[mp.mpf]) -> list[mp.mpf]:
    """Solve for the polynomial whose weighted errors at the nodes are +e, -e, +e, ..., and for e."""
    n = len(nodes)
    system = mp.matrix(n, n)
    for i, (t, w) in enumerate(zip(nodes, weights)):
        for j in range(n - 1):
            system[i, j] = t**j
        system[i, n - 1] = (-1) ** i / w
    return list(mp.lu_solve(system, mp.matrix(values)))


def _alternation(errors: list[mp.mpf], n: int) -> list[int]:
    """Return where the error has its n largest extrema of alternating sign."""
    extrema: list[int] = []
    for i, error in enumerate(errors):
        if extrema and (errors[extrema[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[extrema[-1]]):
                extrema[-1] = i
        else:
            extrema.append(i)
    while len(extrema) > n:
        extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
    return extrema


def as_module() -> str:
    """Return the source of ``polynomials.py``."""
    blocks = ['"""The polynomials, constant term first; written by docs/coefficients.py."""\n']
    for row in POLYNOMIALS:
        coefficients = minimax(row)
        error = largest_error(row, coefficients, 200)
        lines = "".join(f"    {c!r},\n" for c in coefficients)
        blocks.append(
            f"# {row.formula}\n# largest error 2**{float(mp.log(error, 2)):.1f}\n"
            f"{row.name} = (\n{lines})\n"
        )
    return "\n".join(blocks)


if __name__ == "__main__":
    print(as_module(), end="")
