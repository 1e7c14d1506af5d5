"""LLVM vectors with Python's arithmetic operators.

:class:`Floats`, :class:`Integers` and :class:`Mask` wrap a value of LLVM type ``<W x double>``, ``<W x i64>`` or ``<W x i1>``, and the
builder that appends instructions. An operator appends one instruction and returns the wrapped result. Python numbers become constants
in all lanes. A single lane is ``<1 x double>``, so that no width is a special case.

Instructions from this module have no fast-math flags. In LLVM a flag belongs to a single instruction, so compensated arithmetic stays
correct inside code whose other instructions have flags. Flags must not be added afterwards, as Numba does to its own module (see
:mod:`tests.kernel.vecmath_intrinsic`). Division, square root, ``fma`` and conversions are correctly rounded, so a result does not depend on
the width or on the CPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Self

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I1, I64, declared, filled, once

# Number of coefficients from which a polynomial is evaluated in four chains. With 12 coefficients, joining four chains costs more than their
# overlap saves; with 19 coefficients it costs less (``python -m benchmarks.limits``).
FOUR_CHAINS = 16


@dataclass(frozen=True, eq=False)
class Lanes:
    """A vector value and the builder that appends to its block."""

    builder: ir.IRBuilder
    value: ir.Value

    @property
    def width(self) -> int:
        """Number of lanes."""
        return self.value.type.count

    def filled(self, number: float | int) -> Self:
        """Return lanes that all hold one number."""
        return self._same(filled(self.value.type, number))

    def _vector_of(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType(element, self.width)

    def _operand(self, other: "Lanes | float") -> ir.Value:
        """Return the LLVM value of an operand; a number becomes a constant in all lanes."""
        return other.value if isinstance(other, Lanes) else self.filled(other).value

    def _same(self, value: ir.Value) -> Self:
        return type(self)(self.builder, value)


# Types of methods.
type MaskOperator = Callable[[Mask, Mask], Mask]
type IntegersOperator = Callable[[Integers, Integers | int], Integers]
type FloatsOperator = Callable[[Floats, Floats | float], Floats]
type FloatsComparison = Callable[[Floats, Floats | float], Mask]
type FloatsFunction = Callable[[Floats], Floats]


def _operator(instruction: str) -> Callable[..., Any]:
    """Return a method that appends an instruction with one or two operands."""

    def method(self: Lanes, *others: "Lanes | float") -> Lanes:
        operands = [self.value, *map(self._operand, others)]
        return self._same(getattr(self.builder, instruction)(*operands))

    return method


def _with_number_first(instruction: str) -> Callable[..., Any]:
    """Return a reflected method, whose first operand is a number."""

    def method(self: Lanes, number: float) -> Lanes:
        operands = self._operand(number), self.value
        return self._same(getattr(self.builder, instruction)(*operands))

    return method


def _comparison(comparison: str) -> Callable[..., Any]:
    return lambda self, other: self.compare(comparison, other)


def _intrinsic(name: str) -> Callable[..., Any]:
    """Return a method that calls an LLVM intrinsic. It is declared by name, because ``Module.declare_intrinsic`` rejects vectors."""

    def method(self: "Floats", *others: "Floats | float") -> "Floats":
        vector = self.value.type
        signature = ir.FunctionType(vector, [vector] * (1 + len(others)))
        function = declared(self.builder.module, f"llvm.{name}.v{self.width}f64", signature)
        return self._same(self.builder.call(function, [self.value, *map(self._operand, others)]))

    return method


class Mask(Lanes):
    """One truth value per lane."""

    __and__: ClassVar[MaskOperator] = _operator("and_")
    __or__: ClassVar[MaskOperator] = _operator("or_")
    __xor__: ClassVar[MaskOperator] = _operator("xor")
    __invert__: ClassVar[Callable[["Mask"], "Mask"]] = _operator("not_")

    def choose[L: Lanes](self, yes: L, no: L) -> L:
        """Return ``yes`` where true and ``no`` elsewhere; both are lanes of the same type."""
        return yes._same(self.builder.select(self.value, yes.value, no.value))

    def select(self, yes: "Floats | float", no: "Floats | float") -> "Floats":
        """Return ``yes`` where true and ``no`` elsewhere."""
        zeros = Floats(self.builder, filled(self._vector_of(F64), 0.0))
        chosen = self.builder.select(self.value, zeros._operand(yes), zeros._operand(no))
        return Floats(self.builder, chosen)

    def where_any(
        self, usual: "Sequence[Floats]", rare: "Callable[[], Sequence[Floats]]"
    ) -> "tuple[Floats, ...]":
        """Return ``rare()`` where true and ``usual`` elsewhere.

        The instructions that ``rare`` appends are in a branch that runs only if some lane is true. The result of a lane does not depend
        on other lanes. The builder continues in a new block.
        """
        builder, before = self.builder, self.builder.block
        with builder.if_then(self.any(), likely=False):
            chosen = [self.select(yes, no) for yes, no in zip(rare(), usual, strict=True)]
            after = builder.block
        results = [Floats(builder, builder.phi(floats.value.type)) for floats in usual]
        for result, no, yes in zip(results, usual, chosen):
            result.value.add_incoming(no.value, before)
            result.value.add_incoming(yes.value, after)
        return tuple(results)

    def any(self) -> ir.Value:
        """Return whether a lane is true, as one truth value."""
        together = ir.IntType(self.width)
        return self.builder.icmp_unsigned(
            "!=", self.builder.bitcast(self.value, together), together(0)
        )


class Integers(Lanes):
    """One 64-bit integer per lane; overflow wraps, and ``>>`` is a logical shift."""

    __add__: ClassVar[IntegersOperator] = _operator("add")
    __sub__: ClassVar[IntegersOperator] = _operator("sub")
    __rsub__: ClassVar[IntegersOperator] = _with_number_first("sub")
    __mul__: ClassVar[IntegersOperator] = _operator("mul")
    __and__: ClassVar[IntegersOperator] = _operator("and_")
    __or__: ClassVar[IntegersOperator] = _operator("or_")
    __xor__: ClassVar[IntegersOperator] = _operator("xor")
    __lshift__: ClassVar[IntegersOperator] = _operator("shl")
    __rshift__: ClassVar[IntegersOperator] = _operator("lshr")
    __neg__: ClassVar[Callable[["Integers"], "Integers"]] = _operator("neg")
    __invert__: ClassVar[Callable[["Integers"], "Integers"]] = _operator("not_")
    # An arithmetic shift, which keeps the sign.
    shifted_right: ClassVar[IntegersOperator] = _operator("ashr")
    # The quotient truncated towards zero; the divisor must be neither 0 nor -1.
    truncated_division: ClassVar[IntegersOperator] = _operator("sdiv")

    def compare(self, comparison: str, other: "Integers | int") -> Mask:
        """Return where ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=`` holds."""
        truth = self.builder.icmp_signed(comparison, self.value, self._operand(other))
        return Mask(self.builder, truth)

    def is_odd(self) -> Mask:
        """Return where the lowest bit is 1."""
        return Mask(self.builder, self.builder.trunc(self.value, self._vector_of(I1)))

    def is_outside(self, low: int, high: int) -> Mask:
        """Return where ``low <= self < high`` does not hold."""
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
    """One double per lane."""

    __add__: ClassVar[FloatsOperator] = _operator("fadd")
    __sub__: ClassVar[FloatsOperator] = _operator("fsub")
    __rsub__: ClassVar[FloatsOperator] = _with_number_first("fsub")
    __mul__: ClassVar[FloatsOperator] = _operator("fmul")
    __truediv__: ClassVar[FloatsOperator] = _operator("fdiv")
    __rtruediv__: ClassVar[FloatsOperator] = _with_number_first("fdiv")
    __neg__: ClassVar[FloatsFunction] = _operator("fneg")
    # The remainder of the truncated quotient, with the sign of the dividend.
    remainder: ClassVar[FloatsOperator] = _operator("frem")

    __lt__: ClassVar[FloatsComparison] = _comparison("<")
    __ge__: ClassVar[FloatsComparison] = _comparison(">=")
    __gt__: ClassVar[FloatsComparison] = _comparison(">")
    equals: ClassVar[FloatsComparison] = _comparison("==")

    # In a tie, rint takes the even integer, and round the integer of larger magnitude.
    nearest_integer: ClassVar[FloatsFunction] = _intrinsic("rint")
    nearest_integer_away: ClassVar[FloatsFunction] = _intrinsic("round")
    floor: ClassVar[FloatsFunction] = _intrinsic("floor")
    ceil: ClassVar[FloatsFunction] = _intrinsic("ceil")
    trunc: ClassVar[FloatsFunction] = _intrinsic("trunc")
    magnitude: ClassVar[FloatsFunction] = _intrinsic("fabs")
    with_sign_of: ClassVar[FloatsOperator] = _intrinsic("copysign")
    # nan for negative numbers.
    sqrt: ClassVar[FloatsFunction] = _intrinsic("sqrt")
    # ``x.fma(y, z)`` is ``x * y + z``, rounded once.
    fma: ClassVar[Callable[["Floats", "Floats | float", "Floats | float"], "Floats"]] = _intrinsic(
        "fma"
    )

    def is_zero_or_nan(self) -> Mask:
        """Return where self is 0, -0 or nan."""
        zero = self._operand(0.0)
        return Mask(self.builder, self.builder.fcmp_unordered("==", self.value, zero))

    def compare(self, comparison: str, other: "Floats | float") -> Mask:
        """Return where ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=`` holds; for nan only ``!=`` holds."""
        is_ordered = comparison != "!="
        test = self.builder.fcmp_ordered if is_ordered else self.builder.fcmp_unordered
        return Mask(self.builder, test(comparison, self.value, self._operand(other)))

    def is_nan(self) -> Mask:
        """Return where self is nan."""
        return Mask(self.builder, self.builder.fcmp_unordered("uno", self.value, self.value))

    def at_least(self, low: float) -> "Floats":
        """Return the larger of self and ``low``, nan where self is nan."""
        return (self < low).select(low, self)

    def at_most(self, high: float) -> "Floats":
        """Return the smaller of self and ``high``, nan where self is nan."""
        return (self > high).select(high, self)

    def reciprocal(self) -> "Floats":
        """Return ``1 / self``."""
        return 1.0 / self

    def bits(self) -> Integers:
        """Return the bits of the doubles as integers."""
        return Integers(self.builder, self.builder.bitcast(self.value, self._vector_of(I64)))

    def polynomial(self, coefficients: Sequence[float]) -> "Floats":
        """Return the polynomial with these coefficients, constant term first.

        The powers are grouped by their remainder modulo two, or modulo four in a long polynomial. Each group is an independent chain of
        Horner's rule, and the chains overlap (W. S. Dorn 1962, Generalizations of Horner's rule for polynomial evaluation).
        """
        square = self * self
        if len(coefficients) < FOUR_CHAINS:
            even, odd = square.horner(coefficients[::2]), square.horner(coefficients[1::2])
            return odd.fma(self, even)
        fourth = square * square
        chains = [fourth.horner(coefficients[i::4]) for i in range(4)]
        low, high = chains[1].fma(self, chains[0]), chains[3].fma(self, chains[2])
        return high.fma(square, low)

    def horner(self, coefficients: Sequence[float]) -> "Floats":
        """Return the polynomial by Horner's rule, in one chain with one operation less than :meth:`polynomial`."""
        *rest, second, first = coefficients
        return reduce(lambda p, c: p.fma(self, c), reversed(rest), self.fma(first, second))


def call_outlined(name: str, f: Callable[..., Floats], x: Floats, *others: Floats) -> Floats:
    """Call ``f(x, *others)`` as a separate function, emitted once per module; the name is part of its symbol.

    Rare branches of :meth:`Mask.where_any` are outlined: the code is compiled once for all calls, and its constants do not occupy
    registers of the common case.
    """
    module, vector = x.builder.module, x.value.type
    symbol = f"pymc_fastlogp.outlined.{name}.v{x.width}"

    def body(builder: ir.IRBuilder, *arguments: ir.Value) -> ir.Value:
        return f(*(Floats(builder, argument) for argument in arguments)).value

    arguments = [argument.value for argument in (x, *others)]
    signature = ir.FunctionType(vector, [vector] * len(arguments))
    function = once(module, symbol, signature, body)
    return Floats(x.builder, x.builder.call(function, arguments))


@dataclass(frozen=True)
class Pair:
    """The unevaluated sum of two doubles per lane (double-double), where ``low`` is a correction of ``high``."""

    high: Floats
    low: Floats

    def rounded(self) -> Floats:
        """Return the sum rounded to one double per lane."""
        return self.high + self.low


def fast_two_sum(large: Floats | float, small: Floats) -> Pair:
    """Return the exact sum as a pair, if ``|large| >= |small|`` or ``large`` is zero (Dekker 1971)."""
    high = small + large
    return Pair(high, small - (high - large))


def two_sum(first: Floats | float, second: Floats) -> Pair:
    """Return the exact sum as a pair, for operands in any order (Knuth)."""
    high = second + first
    from_second = high - first
    return Pair(high, (first - (high - from_second)) + (second - from_second))


def quotient(numerator: Floats, denominator: Pair) -> Floats:
    """Return the quotient, with one correction step after the division by ``denominator.high``."""
    reciprocal = 1.0 / denominator.high
    estimate = numerator * reciprocal
    remainder = (-estimate).fma(denominator.high, numerator)
    remainder = (-estimate).fma(denominator.low, remainder)
    return remainder.fma(reciprocal, estimate)


def quotient_of_pairs(numerator: Pair, denominator: Pair) -> Pair:
    """Return the quotient of two pairs, more accurate than a double."""
    reciprocal = 1.0 / denominator.high
    estimate = numerator.high * reciprocal
    remainder = (-estimate).fma(denominator.high, numerator.high)
    remainder = (-estimate).fma(denominator.low, remainder + numerator.low)
    return Pair(estimate, remainder * reciprocal)


def select_pair(mask: Mask, yes: Pair, no: Pair) -> Pair:
    """Return ``yes`` where true and ``no`` elsewhere."""
    return Pair(mask.select(yes.high, no.high), mask.select(yes.low, no.low))
