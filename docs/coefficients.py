r"""Derive the polynomials of ``pymc_fastlogp.kernel.vecmath`` and print them as its module.

``python docs/coefficients.py > pymc_fastlogp/kernel/vecmath/polynomials.py``

Each polynomial is the minimax approximation of a smooth function :math:`g` on the range that is left
after range reduction: it makes the largest :math:`|w(t) (g(t) - p(t))|` as small as it can be. The weight
:math:`w` turns an error of :math:`p` into the error of the result, relative or absolute as the
row says. The method is Remez exchange (``docs/remez.py``). The
coefficients are then rounded to doubles, and the error that is printed is that of the rounded polynomial.
"""

import mpmath as mp
from remez import DIGITS, HALF, Polynomial, Real, largest_error, minimax

# What a double may differ from an entry of the table of logarithms, in units of their spacing.
TABLE_TOLERANCE = mp.mpf(1) / 256

Coefficients = tuple[float, ...]

SQRT2 = mp.sqrt(2)


def _binet(t: mp.mpf) -> mp.mpf:
    x = 1 / t
    return (mp.loggamma(x) - (x - 0.5) * (mp.log(x) - 1) - (mp.log(2 * mp.pi) - 1) / 2) / t


def _log_minus_psi(t: mp.mpf) -> mp.mpf:
    x = 1 / t
    return (mp.log(x) - mp.psi(0, x)) / t


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


def _scaled_bessel(n: int) -> Real:
    """Return exp(-x) I_n(x); where that would take many digits, by its expansion at infinity."""

    def scaled(x: mp.mpf) -> mp.mpf:
        if x < 1e4:
            return mp.exp(-x) * mp.besseli(n, x)
        return mp.hyp2f0(HALF - n, HALF + n, 1 / (2 * x)) / mp.sqrt(2 * mp.pi * x)

    return scaled


def _bessel_far(n: int) -> Real:
    """Return sqrt(x) exp(-x) I_n(x) in t = 12/x - 1."""
    at_infinity = 1 / mp.sqrt(2 * mp.pi)
    return lambda t: (
        _scaled_bessel(n)(12 / (t + 1)) * mp.sqrt(12 / (t + 1)) if t > -1 else at_infinity
    )


def _i0e_near(x: mp.mpf) -> mp.mpf:
    return (_i0e(x) - 1 + x) / x**2 if x else mp.mpf(3) / 4


def _i1e_near(x: mp.mpf) -> mp.mpf:
    return (_i1e(x) / x - HALF) / x if x else -HALF


_i0e, _i1e = _scaled_bessel(0), _scaled_bessel(1)
HALF_LN2 = mp.log(2) / 2
QUARTER = mp.mpf(1) / 4
# Stirling's series of trigamma is used from 5/2 on: 1/x^2 <= 4/25.
STIRLING = mp.mpf(4) / 25
CELL = mp.mpf(1) / 17 + mp.mpf(2) ** -20

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
        "LOG_CELL",
        "(log(1 + f) - f) / f**2 for |f| <= 1/17 + 2**-20; absolute in log(1 + f)",
        lambda f: (mp.log1p(f) - f) / f**2,
        lambda f: f**2,
        -CELL,
        CELL,
        9,
    ),
    Polynomial(
        "GAMMALN_BELOW_HALF",
        "log(gamma(1 + x)) / x for 0 <= x <= 1/2; absolute in log(gamma(1 + x))",
        lambda x: mp.loggamma(1 + x) / x,
        lambda x: x,
        mp.mpf(0),
        HALF,
        15,
    ),
    Polynomial(
        "BINET",
        "x (log(gamma(x)) - (x - 1/2) (log(x) - 1) - (log(2 pi) - 1) / 2) in 1/x for x >= 1/2; absolute in log(gamma(x))",
        _binet,
        lambda t: t,
        mp.mpf(0),
        mp.mpf(2),
        9,
        9,
    ),
    Polynomial(
        "PSI_BELOW_HALF",
        "psi(1 + x) for 0 <= x <= 1/2; absolute",
        lambda x: mp.psi(0, 1 + x),
        lambda x: mp.mpf(1),
        mp.mpf(0),
        HALF,
        17,
    ),
    Polynomial(
        "LOG_MINUS_PSI",
        "x (log(x) - psi(x)) in 1/x for x >= 1/2; absolute in psi(x)",
        _log_minus_psi,
        lambda t: t,
        mp.mpf(0),
        mp.mpf(2),
        10,
        10,
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
        "I0E_NEAR",
        "(i0e(x) - 1 + x) / x**2 for 0 <= x <= 1/2; relative to i0e(x)",
        _i0e_near,
        lambda x: x**2 / _i0e(x),
        mp.mpf(0),
        HALF,
        13,
    ),
    Polynomial(
        "I1E_NEAR",
        "(i1e(x) - x/2) / x**2 for 0 <= x <= 1/2; relative to i1e(x)",
        _i1e_near,
        lambda x: x**2 / _i1e(x) if x else mp.mpf(0),
        mp.mpf(0),
        HALF,
        13,
    ),
    Polynomial(
        "I0E_MIDDLE",
        "i0e(x) - 1/4 in x - 4 for 1/2 <= x <= 6; relative to i0e(x)",
        lambda u: _i0e(4 + u) - mp.mpf(1) / 4,
        lambda u: 1 / _i0e(4 + u),
        HALF - 4,
        mp.mpf(2),
        28,
    ),
    Polynomial(
        "I0E_FAR",
        "sqrt(x) i0e(x) - 103/256 in t = 12/x - 1 for 6 <= x; relative to i0e(x)",
        lambda t: _bessel_far(0)(t) - mp.mpf(103) / 256,
        lambda t: 1 / _bessel_far(0)(t),
        mp.mpf(-1),
        mp.mpf(1),
        30,
    ),
    Polynomial(
        "I1E_MIDDLE",
        "i1e(x) - 3/16 in x - 4 for 1/2 <= x <= 6; relative to i1e(x)",
        lambda u: _i1e(4 + u) - mp.mpf(3) / 16,
        lambda u: 1 / _i1e(4 + u),
        HALF - 4,
        mp.mpf(2),
        28,
    ),
    Polynomial(
        "I1E_FAR",
        "sqrt(x) i1e(x) - 99/256 in t = 12/x - 1 for 6 <= x; relative to i1e(x)",
        lambda t: _bessel_far(1)(t) - mp.mpf(99) / 256,
        lambda t: 1 / _bessel_far(1)(t),
        mp.mpf(-1),
        mp.mpf(1),
        30,
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


def log_table() -> tuple[Coefficients, Coefficients]:
    """Return c next to 1/m for the middles m of the eighths of [1, 2), and -log(2 c).

    Every c is the first double, from 1/m on, whose -log(2 c) is nearly a multiple of 2**-52 (S. Gal
    1986, Computing elementary functions: a new approach for achieving high accuracy and good performance).
    Multiples of the double next to log(2) will be added to it: two of them for 2 <= x < 4, and
    there the sum is right.
    """
    next_to_log2 = float(mp.log(2))
    reciprocals, logs = [], []
    for i in range(8):
        c = float(1 / (1 + (i + HALF) / 8))
        while True:
            exact = (mp.log(2 / mp.mpf(c)) - 2 * mp.mpf(next_to_log2)) * 2**52
            if abs(exact - mp.nint(exact)) < TABLE_TOLERANCE:
                break
            c += 2.0**-40
        reciprocals.append(c)
        logs.append(float(mp.nint(exact) / 2**52))
    return tuple(reciprocals), tuple(logs)


def as_module() -> str:
    """Return the source of ``polynomials.py``; quotients of polynomials in 1/x as those in x."""
    blocks = ['"""The polynomials, constant term first; written by docs/coefficients.py."""\n']
    for row in POLYNOMIALS:
        quotient = minimax(row)
        error = largest_error(row, quotient, 200)
        block = f"# {row.formula}\n# largest error 2**{float(mp.log(error, 2)):.1f}\n"
        if row.denominator:
            block += _assignment(f"{row.name}_NUMERATOR", quotient.numerator[::-1])
            block += _assignment(f"{row.name}_DENOMINATOR", quotient.denominator[::-1])
        else:
            block += _assignment(row.name, quotient.numerator)
        blocks.append(block)
    reciprocals, logs = log_table()
    comment = "# c next to 1/m for the middles m of the eighths of [1, 2), and -log(2 c)\n"
    table = _assignment("CELL_RECIPROCALS", reciprocals) + _assignment("CELL_LOGS", logs)
    return "\n".join([*blocks, comment + table])


def _assignment(name: str, coefficients: Coefficients) -> str:
    return f"{name} = (\n" + "".join(f"    {c!r},\n" for c in coefficients) + ")\n"


if __name__ == "__main__":
    print(as_module(), end="")
