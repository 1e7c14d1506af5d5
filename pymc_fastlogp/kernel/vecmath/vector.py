"""Arithmetic on LLVM vectors that reads like arithmetic.

A value of LLVM type ``<W x double>``, ``<W x i64>`` or ``<W x i1>`` is wrapped as :class:`Floats`,
:class:`Integers` or :class:`Mask` together with the builder that appends instructions; an operator
appends one instruction and returns the wrapped result. Python numbers become constants in all lanes. A single
lane is ``<1 x double>``, so that no width is special.

No instruction that is written here carries a fast-math flag. In LLVM such flags belong to single
instructions, so compensated steps keep their meaning inside code whose own instructions have flags. What
may not happen is that flags are added afterwards: Numba does that to its own module (see
:mod:`tests.kernel.vecmath_intrinsic`). Division, square root, ``fma`` and the conversions round
correctly, so a result does not depend on the width or on the CPU.
"""

from collections.abc import Callable, Sequence
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

    def filled(self, number: float | int) -> Self:
        """Return a number in all lanes."""
        return self._same(ir.Constant(self.value.type, [number] * self.width))

    def _same(self, value: ir.Value) -> Self:
        return type(self)(self.builder, value)


class Mask(Lanes):
    """One truth value a lane."""

    def __and__(self, other: "Mask") -> "Mask":
        return self._same(self.builder.and_(self.value, other.value))

    def __or__(self, other: "Mask") -> "Mask":
        return self._same(self.builder.or_(self.value, other.value))

    def __xor__(self, other: "Mask") -> "Mask":
        return self._same(self.builder.xor(self.value, other.value))

    def __invert__(self) -> "Mask":
        return self._same(self.builder.not_(self.value))

    def choose[L: Lanes](self, yes: L, no: L) -> L:
        """Return ``yes`` where true and ``no`` elsewhere, of any type."""
        return yes._same(self.builder.select(self.value, yes.value, no.value))

    def select(self, yes: "Floats | float", no: "Floats | float") -> "Floats":
        """Return ``yes`` where true and ``no`` elsewhere."""
        zeros = Floats(self.builder, ir.Constant(self._vector_of(F64), [0.0] * self.width))
        chosen = self.builder.select(self.value, zeros._operand(yes), zeros._operand(no))
        return Floats(self.builder, chosen)

    def where_any(
        self, usual: "Sequence[Floats]", rare: "Callable[[], Sequence[Floats]]"
    ) -> "tuple[Floats, ...]":
        """Return ``usual``, and ``rare()`` in the lanes where true.

        The instructions that ``rare`` appends run only if a lane is true, so this is a branch; but what
        comes out of a lane does not depend on the others. The builder goes on in a new block.
        """
        builder, before = self.builder, self.builder.block
        with builder.if_then(self._any(), likely=False):
            chosen = [self.select(yes, no) for yes, no in zip(rare(), usual, strict=True)]
            after = builder.block
        results = [Floats(builder, builder.phi(floats.value.type)) for floats in usual]
        for result, no, yes in zip(results, usual, chosen):
            result.value.add_incoming(no.value, before)
            result.value.add_incoming(yes.value, after)
        return tuple(results)

    def _any(self) -> ir.Value:
        """Return whether a lane is true, as one truth value."""
        together = ir.IntType(self.width)
        return self.builder.icmp_unsigned(
            "!=", self.builder.bitcast(self.value, together), together(0)
        )


class Integers(Lanes):
    """One 64-bit integer a lane, wrapping round; ``>>`` shifts zeros in."""

    def __add__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.add(self.value, self._operand(other)))

    def __sub__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.sub(self.value, self._operand(other)))

    def __rsub__(self, other: int) -> "Integers":
        return self._same(self.builder.sub(self._operand(other), self.value))

    def __mul__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.mul(self.value, self._operand(other)))

    def __neg__(self) -> "Integers":
        return self._same(self.builder.neg(self.value))

    def __invert__(self) -> "Integers":
        return self._same(self.builder.not_(self.value))

    def compare(self, comparison: str, other: "Integers | int") -> Mask:
        """Return where ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=`` holds."""
        truth = self.builder.icmp_signed(comparison, self.value, self._operand(other))
        return Mask(self.builder, truth)

    def truncated_division(self, divisor: "Integers") -> "Integers":
        """Return the quotient, towards zero; the divisor is neither 0 nor -1."""
        return self._same(self.builder.sdiv(self.value, divisor.value))

    def __and__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.and_(self.value, self._operand(other)))

    def __or__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.or_(self.value, self._operand(other)))

    def __xor__(self, other: "Integers | int") -> "Integers":
        return self._same(self.builder.xor(self.value, self._operand(other)))

    def __lshift__(self, places: int) -> "Integers":
        return self._same(self.builder.shl(self.value, self._operand(places)))

    def __rshift__(self, places: int) -> "Integers":
        return self._same(self.builder.lshr(self.value, self._operand(places)))

    def shifted_right(self, places: int) -> "Integers":
        """Return this shifted right with copies of the sign coming in."""
        return self._same(self.builder.ashr(self.value, self._operand(places)))

    def is_odd(self) -> Mask:
        """Return where the lowest bit is 1."""
        return Mask(self.builder, self.builder.trunc(self.value, self._vector_of(I1)))

    def is_outside(self, low: int, high: int) -> Mask:
        """Return where not ``low <= self < high``."""
        above_low = self - low
        outside = self.builder.icmp_unsigned(">=", above_low.value, above_low._operand(high - low))
        return Mask(self.builder, outside)

    def to_floats(self) -> "Floats":
        """Return the nearest doubles."""
        return Floats(self.builder, self.builder.sitofp(self.value, self._vector_of(F64)))

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

    def __truediv__(self, other: "Floats | float") -> "Floats":
        return self._same(self.builder.fdiv(self.value, self._operand(other)))

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

    def compare(self, comparison: str, other: "Floats | float") -> Mask:
        """Return where ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=`` holds; of nan only the last."""
        if comparison != "!=":
            return self._ordered(comparison, other)
        return Mask(
            self.builder, self.builder.fcmp_unordered("!=", self.value, self._operand(other))
        )

    def is_nan(self) -> Mask:
        """Return where this is nan."""
        return Mask(self.builder, self.builder.fcmp_unordered("uno", self.value, self.value))

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

    def floor(self) -> "Floats":
        """Return the largest integer that is not larger."""
        return self._intrinsic("floor")

    def ceil(self) -> "Floats":
        """Return the smallest integer that is not smaller."""
        return self._intrinsic("ceil")

    def trunc(self) -> "Floats":
        """Return the integer next to this, towards zero."""
        return self._intrinsic("trunc")

    def nearest_integer_away(self) -> "Floats":
        """Return the nearest integer, the larger magnitude of two."""
        return self._intrinsic("round")

    def remainder(self, divisor: "Floats") -> "Floats":
        """Return the remainder of the truncated quotient, with the sign of this."""
        return self._same(self.builder.frem(self.value, divisor.value))

    def reciprocal(self) -> "Floats":
        """Return one divided by this."""
        return 1.0 / self

    def sqrt(self) -> "Floats":
        """Return the square root, nan where this is negative."""
        return self._intrinsic("sqrt")

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
        even, odd = square.horner(coefficients[::2]), square.horner(coefficients[1::2])
        return odd.fma(self, even)

    def horner(self, coefficients: Sequence[float]) -> "Floats":
        """Return the polynomial by Horner's rule: one operation less, one chain."""
        *rest, second, first = coefficients
        return reduce(lambda p, c: p.fma(self, c), reversed(rest), self.fma(first, second))


def apart(name: str, f: Callable[[Floats], Floats], x: Floats) -> Floats:
    """Return ``f(x)`` from a function of its own, which a module has once.

    For what :meth:`Mask.where_any` skips: it is compiled once for all calls, and its constants do not
    take registers from the usual case.

    Parameters
    ----------
    name : str
        A name for f, part of the symbol.
    f : callable
        Appends the instructions.
    x : Floats
        The argument.
    """
    module, vector = x.builder.module, x.value.type
    symbol = f"pymc_fastlogp.apart.{name}.v{x.width}"
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(vector, [vector]), symbol)
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(f(Floats(builder, function.args[0])).value)
    return Floats(x.builder, x.builder.call(function, [x.value]))


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


def quotient_of_pairs(numerator: Pair, denominator: Pair) -> Pair:
    """Return the quotient of two pairs, good to some digits more than a double."""
    reciprocal = 1.0 / denominator.high
    estimate = numerator.high * reciprocal
    remainder = (-estimate).fma(denominator.high, numerator.high)
    remainder = (-estimate).fma(denominator.low, remainder + numerator.low)
    return Pair(estimate, remainder * reciprocal)


def select_pair(mask: Mask, yes: Pair, no: Pair) -> Pair:
    """Return ``yes`` where true and ``no`` elsewhere."""
    return Pair(mask.select(yes.high, no.high), mask.select(yes.low, no.low))
