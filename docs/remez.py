r"""Remez exchange: the polynomial, or quotient of polynomials, with the smallest largest error.

It makes the largest :math:`|w(t) (g(t) - p(t))|` as small as it can be, with 60 digits (E. Ya. Remez 1934; J.-M. Muller, Elementary
Functions, 3rd ed., chapter 3), on a dense grid of Chebyshev points in place of the continuum.

A row may have a denominator :math:`q` with :math:`q(0) = 1`. The equations of the exchange,
:math:`p(t_i) - g(t_i) q(t_i) = \pm e\,q(t_i) / w(t_i)`, are then made linear by taking the last :math:`q` from the
step before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import mpmath as mp

DIGITS = 60
GRID_POINTS_PER_COEFFICIENT = 24
# The largest error of the exchange over its leveled error at which it has converged.
LEVEL = 1.001

Real = Callable[[mp.mpf], mp.mpf]

mp.mp.dps = DIGITS
HALF = mp.mpf(1) / 2


@dataclass(frozen=True)
class Polynomial:
    """Polynomial of minimal maximal error for a function.

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
    denominator : int
        Number of coefficients of the denominator beside the constant one, which is 1.
    """

    name: str
    formula: str
    function: Real
    weight: Real
    low: mp.mpf
    high: mp.mpf
    n: int
    denominator: int = 0


@dataclass(frozen=True)
class Quotient:
    """A polynomial, or a quotient of two.

    Attributes
    ----------
    numerator, denominator : tuple
        The coefficients, constant term first; the constant term of the denominator is 1.
    """

    numerator: tuple[mp.mpf | float, ...]
    denominator: tuple[mp.mpf | float, ...]

    def __call__(self, t: mp.mpf) -> mp.mpf:
        """Return the value."""
        return _horner(self.numerator, t) / _horner(self.denominator, t)

    def rounded(self) -> "Quotient":
        """Return the one with doubles as coefficients."""
        return Quotient(tuple(map(float, self.numerator)), tuple(map(float, self.denominator)))


def minimax(row: Polynomial) -> Quotient:
    """Return the minimax approximation, with doubles as coefficients."""
    n_nodes = row.n + row.denominator + 1
    grid = _chebyshev_points(row, GRID_POINTS_PER_COEFFICIENT * (n_nodes - 1))
    values = [row.function(t) for t in grid]
    weights = [row.weight(t) for t in grid]
    nodes = [round(i * (len(grid) - 1) / (n_nodes - 1)) for i in range(n_nodes)]
    denominator: tuple[mp.mpf, ...] = (mp.mpf(1),)
    while True:
        scales = [abs(_horner(denominator, grid[i])) / weights[i] for i in nodes]
        *exact, level = _leveled(row, [grid[i] for i in nodes], [values[i] for i in nodes], scales)
        denominator = (mp.mpf(1), *exact[row.n :])
        quotient = Quotient(tuple(exact[: row.n]), denominator)
        errors = [w * (v - quotient(t)) for t, v, w in zip(grid, values, weights)]
        if max(map(abs, errors)) <= LEVEL * abs(level):
            return quotient.rounded()
        extrema = _alternation(errors, n_nodes)
        nodes = extrema if len(extrema) == n_nodes else nodes


def largest_error(row: Polynomial, quotient: Quotient, points: int) -> mp.mpf:
    """Return the largest weighted error on a grid of Chebyshev points."""
    return max(
        abs(row.weight(t) * (row.function(t) - quotient(t))) for t in _chebyshev_points(row, points)
    )


def _horner(coefficients: Sequence[mp.mpf | float], t: mp.mpf) -> mp.mpf:
    return reduce(lambda value, c: value * t + c, reversed(coefficients), mp.mpf(0))


def _chebyshev_points(row: Polynomial, n: int) -> list[mp.mpf]:
    """Return an even number of points, so that none is the middle, where g may be 0/0."""
    middle, radius = (row.high + row.low) / 2, (row.high - row.low) / 2
    n += n % 2
    return [middle - radius * mp.cos(mp.pi * (i + HALF) / n) for i in range(n)]


def _leveled(
    row: Polynomial, nodes: list[mp.mpf], values: list[mp.mpf], scales: list[mp.mpf]
) -> list[mp.mpf]:
    """Solve for the approximation whose errors at the nodes are +e, -e, +e, ... times the scales, and e."""
    n = len(nodes)
    system = mp.matrix(n, n)
    for i, (t, v, scale) in enumerate(zip(nodes, values, scales)):
        for j in range(row.n):
            system[i, j] = t**j
        for j in range(row.denominator):
            system[i, row.n + j] = -v * t ** (j + 1)
        system[i, n - 1] = (-1) ** i * scale
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
