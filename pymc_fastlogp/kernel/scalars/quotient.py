r"""Division by a divisor whose reciprocal is known.

:math:`x / y` is computed as :math:`x \cdot (1 / y)`, with two roundings and an error of at most 3/2 ulp, if the reciprocal is a
normal number. Where the reciprocal overflows or is subnormal, :math:`x / y` is divided.
"""

from pytensor.scalar.basic import ScalarOp, upgrade_to_float

from pymc_fastlogp.kernel.vecmath.vector import Floats

# The reciprocal of a number between these magnitudes is normal.
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
    # The negation makes nan unsafe, too.
    is_unsafe = ~((size >= SMALLEST) & size.compare("<=", LARGEST))
    [result] = is_unsafe.where_any([x * reciprocal], lambda: [x / y])
    return result
