r"""Payne and Hanek's reduction of one huge argument by :math:`\pi/2`, in integers.

A double is :math:`x = m 2^e` with an integer :math:`|m| < 2^{53}`, and

.. math:: 2x/\pi = m \cdot (2^e \cdot 2/\pi)

is needed only modulo 4. The binary digits of :math:`2/\pi` before :math:`2^{1-e}` contribute multiples of 4 and are skipped. The following 192
digits are loaded as one integer, two before the binary point and 190 after. Its product with :math:`m` modulo :math:`2^{192}` is
:math:`2x/\pi` modulo 4, with an error of at most :math:`m 2^{-190} < 2^{-137}`. No double is closer to a multiple of :math:`\pi/2` than about
:math:`2^{-62}`, so more than 70 binary digits remain (M. Payne and R. Hanek 1983, Radian reduction for trigonometric functions; Muller,
Elementary Functions, 3rd ed., section 11.4).

The function is called, not inlined, because it is rarely used and one copy per module is enough.
"""

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I8, I64, once, private_constant
from pymc_fastlogp.kernel.vecmath.exponential import BIAS, MANTISSA_BITS

WINDOW = ir.IntType(192)
FRACTION_BITS = 190
# The window and up to 7 bits before it in the same byte; a load has a power of two of bits.
LOADED = ir.IntType(256)
# Width of pieces of the window that convert to double exactly.
PIECE_BITS = 48

# The largest exponent e of a double. The smallest exponent that is reduced here is the exponent of 2**30.
LARGEST_EXPONENT = 1023 - MANTISSA_BITS
# 2/pi times 2**TWO_OVER_PI_BITS, rounded down.
TWO_OVER_PI_BITS = FRACTION_BITS + LARGEST_EXPONENT
TWO_OVER_PI = int(
    "145f306dc9c882a53f84eafa3ea69bb81b6c52b3278872083fca2c757bd778ac36e48dc74849ba5c"
    "00c925dd413a32439fc3bd63962534e7dd1046bea5d768909d338e04d68befc827323ac7306a673e"
    "93908bf177bf250763ff12fffbc0b301fde5e2316b414da3eda6cfd9e4f96136e9e8c7ecd3cbfd45"
    "aea4f758fd7cbe2f67a0e73ef14a525d4d7f6bf623f1aba10ac",
    16,
)
# Leading zeros serve the windows of the smallest exponents.
DIGITS = ir.IntType(1280)

SYMBOL = "pymc_fastlogp.payne_hanek"
SIGNATURE = ir.FunctionType(ir.LiteralStructType([F64] * 3), [F64])


def declare(module: ir.Module) -> ir.Function:
    """Return the function that reduces one finite double x with ``|x| >= 2**30``.

    Its results are k, 0 to 3 as a double, and a fraction f as a pair, ``|f| <= 1/2``, such that ``x = (k + f) pi/2`` up to
    multiples of ``2 pi``.
    """
    return once(module, SYMBOL, SIGNATURE, _reduced)


def _reduced(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    bits = builder.bitcast(x, I64)
    biased = builder.and_(builder.lshr(bits, I64(MANTISSA_BITS)), I64(2 * BIAS + 1))
    skipped = builder.sub(I64(LARGEST_EXPONENT + BIAS + MANTISSA_BITS), biased)
    product = builder.mul(
        _window(builder, skipped), builder.sext(_significand(builder, bits), WINDOW)
    )
    half = WINDOW(1 << (FRACTION_BITS - 1))
    k = builder.lshr(builder.add(product, half), WINDOW(FRACTION_BITS))
    high, low = _fraction(builder, product)
    result: ir.Value = ir.Constant(SIGNATURE.return_type, ir.Undefined)
    for i, value in enumerate((builder.uitofp(builder.trunc(k, I64), F64), high, low)):
        result = builder.insert_value(result, value, i)
    return result


def _significand(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return m with the sign of x."""
    m = builder.or_(builder.and_(bits, I64(2**MANTISSA_BITS - 1)), I64(2**MANTISSA_BITS))
    return builder.select(builder.icmp_signed("<", bits, I64(0)), builder.neg(m), m)


def _window(builder: ir.IRBuilder, skipped: ir.Value) -> ir.Value:
    """Return the 192 bits of 2/pi above the lowest ``skipped`` bits; the bytes are little-endian."""
    digits = private_constant(builder.module, f"{SYMBOL}.digits", DIGITS(TWO_OVER_PI))
    first = builder.bitcast(digits, I8.as_pointer())
    address = builder.gep(first, [builder.lshr(skipped, I64(3))])
    loaded = builder.load(builder.bitcast(address, LOADED.as_pointer()), align=1)
    rest = builder.zext(builder.and_(skipped, I64(7)), LOADED)
    return builder.trunc(builder.lshr(loaded, rest), WINDOW)


def _fraction(builder: ir.IRBuilder, product: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the last 190 bits, a signed fraction, as a pair of doubles."""
    fraction = builder.shl(product, WINDOW(2))
    mask = I64(2**PIECE_BITS - 1)
    pieces = []
    for i in range(1, 5):
        shifted = builder.ashr(fraction, WINDOW(WINDOW.width - i * PIECE_BITS))
        piece = builder.trunc(shifted, I64)
        piece = piece if i == 1 else builder.and_(piece, mask)
        pieces.append(builder.fmul(builder.sitofp(piece, F64), F64(2.0 ** (-i * PIECE_BITS))))
    first, second, third, fourth = pieces
    high = builder.fadd(first, second)
    lost = builder.fsub(second, builder.fsub(high, first))
    return high, builder.fadd(lost, builder.fadd(third, fourth))
