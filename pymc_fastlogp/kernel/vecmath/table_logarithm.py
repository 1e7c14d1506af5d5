r"""The logarithm by a table of eight entries, with the absolute accuracy that the gamma family needs.

Write :math:`x = 2^k m` with :math:`1 \le m < 2`. The three leading bits of the mantissa select an eighth of :math:`[1, 2)`, a *cell*. Each
cell has a constant :math:`c` close to :math:`1/m` in its middle. With :math:`f = m c - 1`, so :math:`|f| < 1/17`,

.. math:: \log x = (k \log 2 - \log c) + f + f^2 p(f)

with the minimax polynomial ``LOG_CELL``, which has half the length of the polynomial in :mod:`.logarithm`. The relative error near 1 is
larger than there.

The entries :math:`c` are chosen so that :math:`-\log 2c` is very close to a multiple of :math:`2^{-52}` (S. Gal 1986,
Computing elementary functions: a new approach for achieving high accuracy and good performance). The table adds no error, nor does a
small integer that is added to an entry. For :math:`k = 1` the entries also absorb the rounding error of :math:`\log 2`.

:math:`k` is counted from the exponent of 1/2. The bits of the argument minus the bits of 1/2 are needed anyway to find the lanes below 1/2.

**Error budget**, absolute: the rounding of the leading part 1/2 ulp of that part, the rounding of :math:`\log 2`
:math:`2^{-55} |k - 1|`, :math:`f` and the polynomial :math:`2^{-57}` each.
"""

from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath.exponential import BIAS, LN2, MANTISSA_BITS
from pymc_fastlogp.kernel.vecmath.lane_groups import look_up
from pymc_fastlogp.kernel.vecmath.logarithm import MANTISSA_MASK
from pymc_fastlogp.kernel.vecmath.polynomials import CELL_LOGS, CELL_RECIPROCALS, LOG_CELL
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers

HALF_BITS = 0x3FE0_0000_0000_0000
CELL_BITS = 3


@dataclass(frozen=True)
class TableLogarithm:
    """The parts of log(x) for x from 2**-1022 to inf.

    Attributes
    ----------
    from_half : Integers
        The bits of x minus the bits of 1/2.
    k : Floats
        The exponent of x, counted from the exponent of 1/2.
    cell : Integers
        The three leading bits of the mantissa.
    low : Floats
        log(1 + f).
    """

    from_half: Integers
    k: Floats
    cell: Integers
    low: Floats

    @classmethod
    def of(cls, x: Floats) -> "TableLogarithm":
        """Split x and compute the polynomial."""
        bits = x.bits()
        from_half = bits - HALF_BITS
        m = ((bits & MANTISSA_MASK) | (BIAS << MANTISSA_BITS)).as_floats()
        cell = (bits >> (MANTISSA_BITS - CELL_BITS)) & (2**CELL_BITS - 1)
        f = m.fma(look_up(cell, "reciprocals", CELL_RECIPROCALS), -1.0)
        return cls(
            from_half=from_half,
            k=from_half.shifted_right(MANTISSA_BITS).to_floats(),
            cell=cell,
            low=(f * f).fma(f.polynomial(LOG_CELL), f),
        )

    def high(self, shift: float = 0.0) -> Floats:
        """Return the leading part of ``log(x) + shift`` for a small integer shift; adding ``low`` completes the logarithm."""
        logs = look_up(self.cell, f"logs{shift:+}", [entry + shift for entry in CELL_LOGS])
        return self.k.fma(LN2, logs)
