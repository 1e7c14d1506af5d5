"""Table of facts about scalar Ops, shared by the rewrites and the kernel compiler.

An Op without a row has the cost of a function, no traits and no range. Vector code of scalar Ops is in the table of the kernels.
"""

from collections.abc import Callable
from enum import Flag, IntEnum, auto
from typing import NamedTuple

import pytensor.scalar as ps
import pytensor.scalar.math as psm

from pymc_fastlogp.analysis import intervals
from pymc_fastlogp.analysis.intervals import Interval, IntervalFunction, monotone


class Cost(IntEnum):
    """Cost of one evaluation in a vectorized loop."""

    ARITHMETIC = auto()  # one instruction or a few
    DIVISION = auto()  # a division or a root
    FUNCTION = auto()  # an exponential or a logarithm
    SPECIAL = auto()  # a special function, several times the cost of an exponential


class Trait(Flag):
    """Property of a scalar Op."""

    NOTHING = 0
    NAN_OF_NAN = auto()  # the result is nan if an operand is nan
    EXACT = auto()  # the result is not rounded
    CONSTANT_DERIVATIVE = auto()  # with respect to each operand, inf and nan included
    # f(constant, w) has a finite derivative with respect to w for every finite constant and every nonzero w.
    FINITE_DERIVATIVE_BY_OTHERS = auto()


class Facts(NamedTuple):
    """Row of the table: the facts about one scalar Op.

    Attributes
    ----------
    cost : Cost
        Cost of one evaluation.
    traits : Trait
        Properties of the Op.
    range : callable, optional
        Function from the intervals of numbers to the interval of the result.
    """

    cost: Cost = Cost.FUNCTION
    traits: Trait = Trait.NOTHING
    range: IntervalFunction | None = None


def facts_of(op: ps.ScalarOp | None) -> Facts:
    """Return the row of a scalar Op, the default row if it has none."""
    return FACTS.get(type(op), Facts())


def ops_where(holds: Callable[[Facts], bool]) -> tuple[type[ps.ScalarOp], ...]:
    """Return the classes of all Ops whose row satisfies a predicate."""
    return tuple(op for op, facts in FACTS.items() if holds(facts))


_ARITHMETIC, _DIVISION, _FUNCTION, _SPECIAL = Cost
_NAN, _EXACT = Trait.NAN_OF_NAN, Trait.EXACT
_CONSTANT, _BY_OTHERS = Trait.CONSTANT_DERIVATIVE, Trait.FINITE_DERIVATIVE_BY_OTHERS

# Comparisons, logic and step functions are exact and piecewise constant.
_STEP = Facts(_ARITHMETIC, _EXACT | _CONSTANT)

FACTS: dict[type[ps.ScalarOp], Facts] = {
    ps.Add: Facts(_ARITHMETIC, _NAN | _CONSTANT, intervals.add),
    ps.Sub: Facts(
        _ARITHMETIC, _NAN | _CONSTANT, lambda xs: intervals.add([xs[0], intervals.negate(xs[1])])
    ),
    ps.Mul: Facts(_ARITHMETIC, _NAN | _BY_OTHERS, intervals.multiply),
    ps.TrueDiv: Facts(_DIVISION, _NAN, lambda xs: intervals.divide(*xs)),
    ps.Reciprocal: Facts(_DIVISION, _NAN, lambda xs: intervals.divide(Interval(1.0, 1.0), xs[0])),
    ps.IntDiv: Facts(_DIVISION),
    ps.Mod: Facts(_DIVISION),
    ps.Neg: Facts(_ARITHMETIC, _NAN | _EXACT | _CONSTANT, lambda xs: intervals.negate(xs[0])),
    ps.Abs: Facts(_ARITHMETIC, _NAN | _EXACT, intervals.absolute),
    ps.Sqr: Facts(_ARITHMETIC, _NAN, intervals.square),
    ps.Sqrt: Facts(_DIVISION, _NAN, intervals.square_root),
    ps.Identity: Facts(_ARITHMETIC, _NAN | _EXACT | _CONSTANT, lambda xs: xs[0]),
    ps.Cast: Facts(_ARITHMETIC, _EXACT | _CONSTANT, lambda xs: xs[0]),
    ps.Second: Facts(_ARITHMETIC, _EXACT, lambda xs: xs[1]),
    ps.Switch: Facts(_ARITHMETIC, _EXACT, lambda xs: intervals.hull(xs[1:])),
    ps.ScalarMaximum: Facts(_ARITHMETIC, _EXACT | _BY_OTHERS, intervals.maximum),
    ps.ScalarMinimum: Facts(_ARITHMETIC, _EXACT | _BY_OTHERS, intervals.minimum),
    ps.Clip: Facts(_ARITHMETIC, _EXACT, intervals.clip),
    **dict.fromkeys((ps.LT, ps.GT, ps.LE, ps.GE, ps.EQ, ps.NEQ, ps.IsNan, ps.IsInf), _STEP),
    **dict.fromkeys((ps.AND, ps.OR, ps.XOR, ps.Invert), _STEP),
    **dict.fromkeys((ps.Sign, ps.Ceil, ps.Floor, ps.Trunc), _STEP),
    **dict.fromkeys((ps.RoundHalfToEven, ps.RoundHalfAwayFromZero), _STEP),
    ps.Pow: Facts(range=intervals.power),
    ps.Exp: Facts(_FUNCTION, _NAN, monotone(ps.exp, 0.0)),
    ps.Exp2: Facts(_FUNCTION, _NAN, monotone(ps.exp2, 0.0)),
    ps.Expm1: Facts(_FUNCTION, _NAN, monotone(ps.expm1, -1.0)),
    ps.Log: Facts(_FUNCTION, _NAN, monotone(ps.log, domain=0.0)),
    ps.Log2: Facts(_FUNCTION, _NAN, monotone(ps.log2, domain=0.0)),
    ps.Log10: Facts(_FUNCTION, _NAN, monotone(ps.log10, domain=0.0)),
    ps.Log1p: Facts(_FUNCTION, _NAN, monotone(ps.log1p, domain=-1.0)),
    psm.Sigmoid: Facts(_FUNCTION, _NAN, monotone(ps.sigmoid, 0.0, 1.0)),
    psm.Softplus: Facts(_FUNCTION, _NAN, monotone(ps.softplus, 0.0)),
    ps.Tanh: Facts(_FUNCTION, _NAN, monotone(ps.tanh, -1.0, 1.0)),
    ps.ArcTan: Facts(_FUNCTION, _NAN, monotone(ps.arctan)),
    psm.Erf: Facts(_FUNCTION, _NAN, monotone(ps.erf, -1.0, 1.0)),
    psm.Erfc: Facts(_FUNCTION, _NAN, monotone(ps.erfc, 0.0, 2.0)),
    ps.Sin: Facts(_FUNCTION, _NAN, intervals.periodic),
    ps.Cos: Facts(_FUNCTION, _NAN, intervals.periodic),
    **dict.fromkeys((psm.Gamma, psm.GammaLn, psm.Psi, psm.TriGamma), Facts(_SPECIAL)),
    **dict.fromkeys((psm.GammaInc, psm.GammaIncC, psm.BetaInc), Facts(_SPECIAL)),
    **dict.fromkeys((psm.GammaIncInv, psm.GammaIncCInv, psm.BetaIncInv), Facts(_SPECIAL)),
    **dict.fromkeys((psm.Owens_t, psm.Jv, psm.Ive, psm.Kve, psm.Hyp2F1), Facts(_SPECIAL)),
}
