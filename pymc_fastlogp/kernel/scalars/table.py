"""The table of scalar Ops: one row for each.

An Op that is a few instructions, or a call of upstream's function, is added here, one that is a vector function in
:mod:`pymc_fastlogp.kernel.vecmath.table`, whose rows with an Op are rows of this table, too.

What has no row stays with upstream:

- PolyGamma, which upstream calls in Python, Complex and the like;
- a ScalarLoop of Ops without a vector form (:mod:`pymc_fastlogp.kernel.scalars.loops` has the others);
- of Pow the form with an integer result.
"""

from operator import add, and_, inv, mul, neg, or_, sub, truediv, xor

from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.scalars import rules
from pymc_fastlogp.kernel.scalars.quotient import Quotient, emit_quotient
from pymc_fastlogp.kernel.scalars.row import (
    Row,
    comparison,
    condition_first,
    folded,
    function,
    instructions,
    of_any_form,
    of_inputs,
    of_upstream,
    widest,
)
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from pymc_fastlogp.kernel.vecmath.vector import Floats, Mask

_ARITHMETIC = (
    instructions(ps.Add, floats=folded(rules.add), integers=folded(add), masks=folded(or_)),
    instructions(ps.Mul, floats=folded(rules.mul), integers=folded(mul), masks=folded(and_)),
    instructions(ps.Sub, floats=rules.sub, integers=sub),
    instructions(ps.TrueDiv, floats=truediv),
    instructions(Quotient, floats=emit_quotient),
    instructions(ps.IntDiv, floats=rules.floor_divide, integers=rules.integer_floor_divide),
    instructions(ps.Mod, floats=rules.mod, integers=rules.integer_mod),
    instructions(ps.Neg, floats=neg, integers=neg),
    instructions(ps.Reciprocal, floats=Floats.reciprocal),
    instructions(ps.Sqr, floats=rules.sqr, integers=lambda x: x * x, masks=rules.identity),
    instructions(
        ps.Abs,
        floats=Floats.magnitude,
        integers=rules.integer_magnitude,
        masks=rules.identity,
    ),
    instructions(ps.Sign, floats=rules.sign, integers=rules.integer_sign),
    instructions(ps.Maximum, floats=rules.maximum, integers=rules.integer_maximum, masks=or_),
    instructions(ps.Minimum, floats=rules.minimum, integers=rules.integer_minimum, masks=and_),
    instructions(ps.Clip, floats=rules.clip, integers=rules.clip),
    instructions(ps.Floor, floats=Floats.floor),
    instructions(ps.Ceil, floats=Floats.ceil),
    instructions(ps.Trunc, floats=Floats.trunc),
    instructions(ps.RoundHalfToEven, floats=Floats.nearest_integer),
    instructions(ps.RoundHalfAwayFromZero, floats=Floats.nearest_integer_away),
)

_LOGIC = (
    comparison(ps.LT, "<"),
    comparison(ps.GT, ">"),
    comparison(ps.LE, "<="),
    comparison(ps.GE, ">="),
    comparison(ps.EQ, "=="),
    comparison(ps.NEQ, "!="),
    instructions(ps.IsNan, floats=Floats.is_nan, integers=rules.never, domain=widest),
    instructions(ps.IsInf, floats=rules.is_infinite, integers=rules.never, domain=widest),
    instructions(ps.AND, integers=and_, masks=and_),
    instructions(ps.OR, integers=or_, masks=or_),
    instructions(ps.XOR, integers=xor, masks=xor),
    instructions(ps.Invert, integers=inv, masks=inv),
    of_any_form(ps.Switch, Mask.choose, condition_first),
    of_any_form(ps.Second, lambda _, value: value),
    of_any_form(ps.Identity, rules.identity),
    of_any_form(ps.Cast, rules.identity, of_inputs),
)

_UPSTREAM = (
    of_upstream(psm.NdtriExp),
    of_upstream(psm.Owens_t),
    of_upstream(psm.Gamma),
    of_upstream(psm.GammaInc),
    of_upstream(psm.GammaIncC),
    of_upstream(psm.GammaIncInv),
    of_upstream(psm.GammaIncCInv),
    of_upstream(psm.BetaInc),
    of_upstream(psm.BetaIncInv),
    of_upstream(psm.Hyp2F1),
    of_upstream(psm.J0),
    of_upstream(psm.J1),
    of_upstream(psm.Jv),
    of_upstream(psm.I0),
    of_upstream(psm.I1),
    of_upstream(psm.Ive),
    of_upstream(psm.Kve),
)

_FUNCTIONS = {name: function(row) for name, row in FUNCTIONS.items() if row.op is not None}

ROWS: dict[type[ScalarOp], Row] = {
    row.op: row for row in (*_ARITHMETIC, *_LOGIC, *_FUNCTIONS.values(), *_UPSTREAM)
}

# From the classes of Ops of one argument to the vector function that computes all, in the same order.
SHARED_OPS: dict[tuple[type[ScalarOp], ...], str] = {
    tuple(_FUNCTIONS[name].op for name in shared.results): shared.name
    for shared in SHARED.values()
    if {*shared.results} <= _FUNCTIONS.keys()
}
