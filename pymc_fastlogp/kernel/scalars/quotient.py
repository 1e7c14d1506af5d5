r"""Division where the reciprocal of the divisor is at hand.

:math:`x / y` as :math:`x \cdot (1 / y)`: two roundings in place of one, so at most 3/2 ulp off. That holds while the
reciprocal neither overflows nor is subnormal, and where it would, the division is made.
"""

from pytensor.scalar.basic import ScalarOp, upgrade_to_float

from pymc_fastlogp.kernel.vecmath.vector import Floats

# Within these the reciprocal is a normal number.
SMALLEST, LARGEST = 2.0**-1000, 2.0**1000


class Quotient(ScalarOp):
    """x / y, given x, y and 1 / y."""

    nin = 3

    def impl(self, x: float, y: float, reciprocal: float) -> float:
        """Return the quotient."""
        return x / y


quotient = Quotient(upgrade_to_float, name="quotient")


def emit_quotient(x: Floats, y: Floats, reciprocal: Floats) -> Floats:
    """Return x / y."""
    size = y.magnitude()
    # Also where y is nan.
    is_unsafe = ~((size >= SMALLEST) & size.compare("<=", LARGEST))
    [result] = is_unsafe.where_any([x * reciprocal], lambda: [x / y])
    return result
