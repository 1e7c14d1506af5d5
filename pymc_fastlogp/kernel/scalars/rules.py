"""Arithmetic of scalar Ops on lanes: one function for each Op and register form.

Results are those of NumPy's functions, which PyTensor compiles. Only the arithmetic of the model itself
carries the flag ``contract``, so that a product and a sum become one fused multiply-add; the instructions
within an elementary function carry none.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import I1, filled
from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes, Mask

CONTRACT = ("contract",)


def contracted(instruction: str) -> Callable[..., Floats]:
    """Return the rule of ``fadd``, ``fsub`` or ``fmul``."""
    return lambda x, y: Floats(
        x.builder, getattr(x.builder, instruction)(x.value, y.value, flags=CONTRACT)
    )


def larger_or_smaller(symbol: str) -> Callable[[Floats, Floats], Floats]:
    """Return the rule of the maximum, of ``>``, or of the minimum; nan where one is nan, the first of equal ones.

    The inner choice is one instruction, which gives x where one is nan. Whether y is nan is known before, as a rule: y is the
    new one where the largest of many is sought.
    """
    return lambda x, y: y.is_nan().choose(y, y.compare(symbol, x).choose(y, x))


def integer_larger_or_smaller(symbol: str) -> Callable[[Integers, Integers], Integers]:
    """Return the same of integers."""
    return lambda x, y: x.compare(symbol, y).choose(x, y)


add, sub, mul = map(contracted, ("fadd", "fsub", "fmul"))
maximum, minimum = map(larger_or_smaller, (">", "<"))
integer_maximum, integer_minimum = map(integer_larger_or_smaller, (">=", "<="))


def sqr(x: Floats) -> Floats:
    """Return the square."""
    return mul(x, x)


def clip[N: (Floats, Integers)](x: N, low: N, high: N) -> N:
    """Return ``low`` where x is less, else ``high`` where x is more, else x."""
    return x.compare("<", low).choose(low, x.compare(">", high).choose(high, x))


def sign(x: Floats) -> Floats:
    """Return 1, -1 or 0, and nan of nan."""
    zero_or_nan = x.equals(0.0).select(0.0, x)
    return (x > 0.0).select(1.0, (x < 0.0).select(-1.0, zero_or_nan))


def integer_sign(x: Integers) -> Integers:
    """Return 1, -1 or 0."""
    negative = x.compare("<", 0).choose(x.filled(-1), x.filled(0))
    return x.compare(">", 0).choose(x.filled(1), negative)


def integer_magnitude(x: Integers) -> Integers:
    """Return the absolute value, which of the least integer is itself."""
    return x.compare("<", 0).choose(-x, x)


def floor_divide(x: Floats, y: Floats) -> Floats:
    """Return the quotient, rounded down after the division."""
    return (x / y).floor()


def mod(x: Floats, y: Floats) -> Floats:
    """Return the remainder of the quotient rounded down, with the sign of y."""
    rest = x.remainder(y)
    other_sign = rest.compare("!=", 0.0) & ((y < 0.0) ^ (rest < 0.0))
    return rest + other_sign.select(y, 0.0)


def integer_floor_divide(x: Integers, y: Integers) -> Integers:
    """Return the quotient rounded down, 0 where y is 0."""
    divisor = _without_minus_one_and_zero(y)
    quotient = x.truncated_division(divisor)
    rest = x - quotient * divisor
    quotient = _down(rest, divisor).choose(quotient - 1, quotient)
    return y.compare("==", 0).choose(y.filled(0), y.compare("==", -1).choose(-x, quotient))


def integer_mod(x: Integers, y: Integers) -> Integers:
    """Return the remainder of the quotient rounded down, 0 where y is 0."""
    divisor = _without_minus_one_and_zero(y)
    rest = x - x.truncated_division(divisor) * divisor
    return _down(rest, divisor).choose(rest + divisor, rest)


def _without_minus_one_and_zero(y: Integers) -> Integers:
    """Return a divisor with 1 in place of 0 and -1, which LLVM does not define."""
    return (y.compare("==", 0) | y.compare("==", -1)).choose(y.filled(1), y)


def _down(rest: Integers, divisor: Integers) -> Mask:
    """Return where a truncated quotient is one more than the one rounded down."""
    return rest.compare("!=", 0) & (rest ^ divisor).compare("<", 0)


def never(x: Lanes) -> Mask:
    """Return false."""
    return Mask(x.builder, filled(ir.VectorType(I1, x.width), False))


def is_infinite(x: Floats) -> Mask:
    """Return where x is inf or -inf."""
    return x.magnitude().equals(INF)


def comparison(symbol: str) -> Callable[[Any, Any], Mask]:
    """Return the rule of a comparison between two Floats or two Integers."""
    return lambda x, y: x.compare(symbol, y)


def identity(x: Lanes) -> Lanes:
    """Return the argument."""
    return x
