"""Arithmetic on LLVM vectors that reads like arithmetic.

A value of LLVM type ``<W x double>``, ``<W x i64>`` or ``<W x i1>`` is wrapped as :class:`Floats`,
:class:`Integers` or :class:`Mask` together with the builder that appends instructions; an operator
appends one instruction and returns the wrapped result. Python numbers become constants in all lanes. A single
lane is ``<1 x double>``, so that no width is special.

No instruction that is written here carries a fast-math flag. In LLVM such flags belong to single
instructions, so compensated steps keep their meaning inside code whose own instructions have flags. What
may not happen is that flags are added afterwards: Numba does that to its own module (see
:mod:`pymc_fastlogp.kernel.vecmath.intrinsic`). Division, square root, ``fma`` and the conversions round
correctly, so a result does not depend on the width or on the CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

from llvmlite import ir

F64, I64, I1 = ir.DoubleType(), ir.IntType(64), ir.IntType(1)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A vector value and the builder that appends to its block.

    Attributes
    ----------
    builder : llvmlite.ir.IRBuilder
        Where instructions go.
    value : llvmlite.ir.Value
        The value, of a vector type.
    """

    builder: ir.IRBuilder
    value: ir.Value

    @property
    def width(self) -> int:
        """Number of lanes."""
        return self.value.type.count

    def _vector_of(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType(element, self.width)

    def _operand(self, other: "Lanes | float") -> ir.Value:
        """Return the LLVM value of the other operand, a number as a constant in all lanes."""
        if isinstance(other, Lanes):
            return other.value
        return ir.Constant(self.value.type, [other] * self.width)

    def _same(self, value: ir.Value) -> Self:
        return type(self)(self.builder, value)


class Mask(Lanes):
    """One truth value a lane."""

    def __and__(self, other: "Mask") -> "Mask":
        return self._same(self.builder.and_(self.value, other.value))

    def select(self, yes: "Floats | float", no: "Floats | float") -> "Floats":
        """Return ``yes`` where true and ``no`` elsewhere."""
        zeros = Floats(self.builder, ir.Constant(self._vector_of(F64), [0.0] * self.width))
        chosen = self.builder.select(self.value, zeros._operand(yes), zeros._operand(no))
        return Floats(self.builder, chosen)


class Integers(Lanes):
    """One 64-bit integer a lane, wrapping round; ``>>`` shifts zeros in."""

    def __add__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.add(self.value, self._operand(other)))

    def __sub__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.sub(self.value, self._operand(other)))

    def __rsub__(self, other: int) -> "Integers":
        return self._same(self.builder.sub(self._operand(other), self.value))

    def __and__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.and_(self.value, self._operand(other)))

    def __or__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.or_(self.value, self._operand(other)))

    def __lshift__(self, places: int) -> "Integers":
        return self._same(self.builder.shl(self.value, self._operand(places)))

    def __rshift__(self, places: int) -> "Integers":
        return self._same(self.builder.lshr(self.value, self._operand(places)))

    def as_floats(self) -> "Floats":
        """Return the doubles with these bits."""
        return Floats(self.builder, self.builder.bitcast(self.value, self._vector_of(F64)))


class Floats(Lanes):
    """One double a lane."""

    def __add__(self, other: "Floats | float") -> "Floats":
        return self._same(self.builder.fadd(self.value, self._operand(other)))

    def __sub__(self, other: "Floats | float") -> "Floats":
        return self._same(self.builder.fsub(self.value, self._operand(other)))

    def __rsub__(self, other: float) -> "Floats":
        return self._same(self.builder.fsub(self._operand(other), self.value))

    def __mul__(self, other: "Floats | float") -> "Floats":
        return self._same(self.builder.fmul(self.value, self._operand(other)))

    def __rtruediv__(self, other: float) -> "Floats":
        return self._same(self.builder.fdiv(self._operand(other), self.value))

    def __neg__(self) -> "Floats":
        return self._same(self.builder.fneg(self.value))

    def __lt__(self, other: "Floats | float") -> Mask:
        return self._ordered("<", other)

    def __ge__(self, other: "Floats | float") -> Mask:
        return self._ordered(">=", other)

    def __gt__(self, other: "Floats | float") -> Mask:
        return self._ordered(">", other)

    def equals(self, other: "Floats | float") -> Mask:
        """Return where both are equal, false where one is nan."""
        return self._ordered("==", other)

    def is_zero_or_nan(self) -> Mask:
        """Return where this is 0, -0 or nan."""
        zero = self._operand(0.0)
        return Mask(self.builder, self.builder.fcmp_unordered("==", self.value, zero))

    def _ordered(self, comparison: str, other: "Floats | float") -> Mask:
        truth = self.builder.fcmp_ordered(comparison, self.value, self._operand(other))
        return Mask(self.builder, truth)

    def at_least(self, low: float) -> "Floats":
        """Return the larger of both, nan where this is nan."""
        return (self < low).select(low, self)

    def at_most(self, high: float) -> "Floats":
        """Return the smaller of both, nan where this is nan."""
        return (self > high).select(high, self)

    def fma(self, factor: "Floats | float", addend: "Floats | float") -> "Floats":
        """Return ``self * factor + addend``, rounded once."""
        return self._intrinsic("fma", factor, addend)

    def magnitude(self) -> "Floats":
        """Return the absolute value."""
        return self._intrinsic("fabs")

    def with_sign_of(self, other: "Floats") -> "Floats":
        """Return this magnitude with the sign of the other."""
        return self._intrinsic("copysign", other)

    def nearest_integer(self) -> "Floats":
        """Return the nearest integer, the even one of two."""
        return self._intrinsic("rint")

    def _intrinsic(self, name: str, *others: "Floats | float") -> "Floats":
        """Call an LLVM intrinsic; ``Module.declare_intrinsic`` rejects vectors, so name it here."""
        module, vector = self.builder.module, self.value.type
        full_name = f"llvm.{name}.v{self.width}f64"
        signature = ir.FunctionType(vector, [vector] * (1 + len(others)))
        function = module.globals.get(full_name) or ir.Function(module, signature, full_name)
        operands = [self.value, *map(self._operand, others)]
        return self._same(self.builder.call(function, operands))

    def bits(self) -> Integers:
        """Return the bits of the doubles as integers."""
        return Integers(self.builder, self.builder.bitcast(self.value, self._vector_of(I64)))

    def polynomial(self, coefficients: Sequence[float]) -> "Floats":
        """Return the polynomial with these coefficients, constant term first.

        Even and odd powers are two independent chains of Horner's rule, which overlap.
        """
        square = self * self
        even, odd = square._horner(coefficients[::2]), square._horner(coefficients[1::2])
        return odd.fma(self, even)

    def _horner(self, coefficients: Sequence[float]) -> "Floats":
        *rest, second, first = coefficients
        return reduce(lambda p, c: p.fma(self, c), reversed(rest), self.fma(first, second))


@dataclass(frozen=True)
class Pair:
    """The unevaluated sum of two doubles a lane, ``low`` being a correction of ``high``.

    Attributes
    ----------
    high, low : Floats
        The terms.
    """

    high: Floats
    low: Floats

    def rounded(self) -> Floats:
        """Return the sum as one double a lane."""
        return self.high + self.low


def fast_two_sum(large: Floats | float, small: Floats) -> Pair:
    """Return the exact sum, where ``|large| >= |small|`` or ``large`` is zero (Dekker 1971)."""
    high = small + large
    return Pair(high, small - (high - large))


def two_sum(first: Floats | float, second: Floats) -> Pair:
    """Return the exact sum, whichever is larger (Knuth)."""
    high = second + first
    from_second = high - first
    return Pair(high, (first - (high - from_second)) + (second - from_second))


def quotient(numerator: Floats, denominator: Pair) -> Floats:
    """Return the quotient, with one correction step after the division by the leading term."""
    reciprocal = 1.0 / denominator.high
    estimate = numerator * reciprocal
    remainder = (-estimate).fma(denominator.high, numerator)
    remainder = (-estimate).fma(denominator.low, remainder)
    return remainder.fma(reciprocal, estimate)
