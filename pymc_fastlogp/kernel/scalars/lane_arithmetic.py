"""Arithmetic of scalar Ops on lanes: one function for each Op and register form.

Results equal those of NumPy's functions, as in PyTensor. Only the arithmetic of the model itself has the flag ``contract``, which lets
LLVM fuse a product and a sum into one multiply-add. Instructions within an elementary function have no flag.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import I1, filled
from pymc_fastlogp.kernel.vecmath.logarithm import INF
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes, Mask

CONTRACT = ("contract",)


def contracted(instruction: str) -> Callable[..., Floats]:
    """Return the emitter of ``fadd``, ``fsub`` or ``fmul``, with contraction allowed."""
    return lambda x, y: Floats(
        x.builder, getattr(x.builder, instruction)(x.value, y.value, flags=CONTRACT)
    )


def larger_or_smaller(symbol: str) -> Callable[[Floats, Floats], Floats]:
    """Return the emitter of the maximum, with ``>``, or the minimum, with ``<``.

    The result is nan if x or y is nan, and x if they are equal. The inner choice is one instruction, which gives x if either is nan. In a
    reduction y is the new element, so the nan test of y is off the critical path.
    """
    return lambda x, y: y.is_nan().choose(y, y.compare(symbol, x).choose(y, x))


def integer_larger_or_smaller(symbol: str) -> Callable[[Integers, Integers], Integers]:
    """Return the emitter of the integer maximum, with ``>=``, or minimum, with ``<=``."""
    return lambda x, y: x.compare(symbol, y).choose(x, y)


add, sub, mul = map(contracted, ("fadd", "fsub", "fmul"))
maximum, minimum = map(larger_or_smaller, (">", "<"))
integer_maximum, integer_minimum = map(integer_larger_or_smaller, (">=", "<="))


def sqr(x: Floats) -> Floats:
    """Return the square."""
    return mul(x, x)


def clip[N: (Floats, Integers)](x: N, low: N, high: N) -> N:
    """Return ``low`` where x is smaller, else ``high`` where x is larger, else x."""
    return x.compare("<", low).choose(low, x.compare(">", high).choose(high, x))


def sign(x: Floats) -> Floats:
    """Return 1, -1 or 0, and nan for nan."""
    zero_or_nan = x.equals(0.0).select(0.0, x)
    return (x > 0.0).select(1.0, (x < 0.0).select(-1.0, zero_or_nan))


def integer_sign(x: Integers) -> Integers:
    """Return 1, -1 or 0."""
    negative = x.compare("<", 0).choose(x.filled(-1), x.filled(0))
    return x.compare(">", 0).choose(x.filled(1), negative)


def integer_magnitude(x: Integers) -> Integers:
    """Return the absolute value; the smallest integer overflows to itself."""
    return x.compare("<", 0).choose(-x, x)


def floor_divide(x: Floats, y: Floats) -> Floats:
    """Return the floor of the rounded quotient."""
    return (x / y).floor()


def mod(x: Floats, y: Floats) -> Floats:
    """Return the remainder of floor division, with the sign of y."""
    rest = x.remainder(y)
    other_sign = rest.compare("!=", 0.0) & ((y < 0.0) ^ (rest < 0.0))
    return rest + other_sign.select(y, 0.0)


def integer_floor_divide(x: Integers, y: Integers) -> Integers:
    """Return the floor of the quotient, 0 where y is 0."""
    divisor = _without_minus_one_and_zero(y)
    quotient = x.truncated_division(divisor)
    rest = x - quotient * divisor
    quotient = _exceeds_floor(rest, divisor).choose(quotient - 1, quotient)
    return y.compare("==", 0).choose(y.filled(0), y.compare("==", -1).choose(-x, quotient))


def integer_mod(x: Integers, y: Integers) -> Integers:
    """Return the remainder of floor division, 0 where y is 0."""
    divisor = _without_minus_one_and_zero(y)
    rest = x - x.truncated_division(divisor) * divisor
    return _exceeds_floor(rest, divisor).choose(rest + divisor, rest)


def _without_minus_one_and_zero(y: Integers) -> Integers:
    """Return a divisor with 0 and -1 replaced by 1, because LLVM leaves these divisions undefined."""
    return (y.compare("==", 0) | y.compare("==", -1)).choose(y.filled(1), y)


def _exceeds_floor(rest: Integers, divisor: Integers) -> Mask:
    """Return where the truncated quotient is one more than its floor."""
    return rest.compare("!=", 0) & (rest ^ divisor).compare("<", 0)


def never(x: Lanes) -> Mask:
    """Return false in all lanes."""
    return Mask(x.builder, filled(ir.VectorType(I1, x.width), False))


def is_infinite(x: Floats) -> Mask:
    """Return where x is inf or -inf."""
    return x.magnitude().equals(INF)


def comparison(symbol: str) -> Callable[[Any, Any], Mask]:
    """Return the emitter of a comparison between two Floats or two Integers."""
    return lambda x, y: x.compare(symbol, y)


def identity(x: Lanes) -> Lanes:
    """Return the argument."""
    return x
