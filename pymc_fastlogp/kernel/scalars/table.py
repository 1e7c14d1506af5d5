"""The table of scalar Ops: one row per Op says how vectors of its arguments are computed.

An Op is computed in one of three ways:

- a few instructions, with a row here;
- a vector function, with a row in :mod:`pymc_fastlogp.kernel.vecmath.table`, which is included here;
- a call of PyTensor's scalar function for each lane, with a row here.

Ops without a row are left to PyTensor:

- PolyGamma, which PyTensor calls in Python, Complex and the like;
- a ScalarLoop with an Op that has no vector form (:mod:`pymc_fastlogp.kernel.scalars.loops` emits other loops);
- Pow with an integer result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, and_, inv, mul, neg, or_, sub, truediv, xor
from typing import Any

from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.scalars import arithmetic, upstream
from pymc_fastlogp.kernel.scalars.forms import FORMS
from pymc_fastlogp.kernel.scalars.quotient import Quotient, emit_quotient
from pymc_fastlogp.kernel.scalars.softplus_sum import SoftplusSum
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED, Function
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes, Mask

Conversion = Callable[[Sequence[str], str], Sequence[str]]
Emitter = Callable[..., Lanes]
INSTRUCTIONS, UPSTREAM = "instructions", "upstream"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    computed_by : str
        ``INSTRUCTIONS``, the name of a vector function, or ``UPSTREAM``.
    converted : callable
        Function from the dtypes of inputs and output to the dtypes to which the arguments are converted.
    emitters : mapping
        Function that appends the instructions, by the register form of the last argument.
    """

    op: type[ScalarOp]
    computed_by: str
    converted: Conversion
    emitters: Mapping[type[Lanes], Emitter]

    def emitter(self, input_dtypes: Sequence[str], output_dtype: str) -> Emitter | None:
        """Return the function that appends the instructions for these dtypes, None if they are not supported."""
        return self.emitters.get(FORMS[self.converted(input_dtypes, output_dtype)[-1]])


def of_output(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Convert all arguments to the dtype of the output."""
    return [output_dtype] * len(input_dtypes)


def of_inputs(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Keep the dtypes of the arguments."""
    return input_dtypes


def widest(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Convert all arguments to float64 if one is a float, else to int64."""
    has_float = any(FORMS[dtype] is Floats for dtype in input_dtypes)
    return ["float64" if has_float else "int64"] * len(input_dtypes)


def condition_first(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Convert the first argument to bool and the others to the dtype of the output."""
    return ["bool", *[output_dtype] * (len(input_dtypes) - 1)]


def instructions(
    op: type[ScalarOp],
    *,
    floats: Emitter | None = None,
    integers: Emitter | None = None,
    masks: Emitter | None = None,
    converted: Conversion = of_output,
) -> Row:
    """Return the row of an Op that is a few instructions."""
    emitters = {Floats: floats, Integers: integers, Mask: masks}
    return Row(op, INSTRUCTIONS, converted, {form: f for form, f in emitters.items() if f})


def of_any_form(op: type[ScalarOp], f: Emitter, converted: Conversion = of_output) -> Row:
    """Return the row of an Op with the same instructions for every register form."""
    return instructions(op, floats=f, integers=f, masks=f, converted=converted)


def comparison(op: type[ScalarOp], symbol: str) -> Row:
    """Return the row of a comparison."""
    compare = arithmetic.comparison(symbol)
    return instructions(op, floats=compare, integers=compare, converted=widest)


def function(row: Function, op: type[ScalarOp]) -> Row:
    """Return the row of an Op that a vector function computes."""
    return Row(op, row.name, of_output, {Floats: row.emit})


def of_upstream(op: type[ScalarOp]) -> Row:
    """Return the row of an Op that calls PyTensor's scalar function for each lane."""
    return Row(op, UPSTREAM, of_output, {Floats: upstream.by_lane(op)})


def folded(f: Callable[[Any, Any], Lanes]) -> Emitter:
    """Return a function of two arguments as a left fold over any number of arguments."""
    return lambda *args: reduce(f, args)


_ARITHMETIC = (
    instructions(ps.Add, floats=folded(arithmetic.add), integers=folded(add), masks=folded(or_)),
    instructions(ps.Mul, floats=folded(arithmetic.mul), integers=folded(mul), masks=folded(and_)),
    instructions(ps.Sub, floats=arithmetic.sub, integers=sub),
    instructions(ps.TrueDiv, floats=truediv),
    instructions(Quotient, floats=emit_quotient),
    instructions(
        ps.IntDiv, floats=arithmetic.floor_divide, integers=arithmetic.integer_floor_divide
    ),
    instructions(ps.Mod, floats=arithmetic.mod, integers=arithmetic.integer_mod),
    instructions(ps.Neg, floats=neg, integers=neg),
    instructions(ps.Reciprocal, floats=Floats.reciprocal),
    instructions(
        ps.Sqr, floats=arithmetic.sqr, integers=lambda x: x * x, masks=arithmetic.identity
    ),
    instructions(
        ps.Abs,
        floats=Floats.magnitude,
        integers=arithmetic.integer_magnitude,
        masks=arithmetic.identity,
    ),
    instructions(ps.Sign, floats=arithmetic.sign, integers=arithmetic.integer_sign),
    instructions(
        ps.Maximum, floats=arithmetic.maximum, integers=arithmetic.integer_maximum, masks=or_
    ),
    instructions(
        ps.Minimum, floats=arithmetic.minimum, integers=arithmetic.integer_minimum, masks=and_
    ),
    instructions(ps.Clip, floats=arithmetic.clip, integers=arithmetic.clip),
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
    instructions(ps.IsNan, floats=Floats.is_nan, integers=arithmetic.never, converted=widest),
    instructions(
        ps.IsInf, floats=arithmetic.is_infinite, integers=arithmetic.never, converted=widest
    ),
    instructions(ps.AND, integers=and_, masks=and_),
    instructions(ps.OR, integers=or_, masks=or_),
    instructions(ps.XOR, integers=xor, masks=xor),
    instructions(ps.Invert, integers=inv, masks=inv),
    of_any_form(ps.Switch, Mask.choose, condition_first),
    of_any_form(ps.Second, lambda _, value: value),
    of_any_form(ps.Identity, arithmetic.identity),
    of_any_form(ps.Cast, arithmetic.identity, of_inputs),
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

_FUNCTIONS = {name: function(row, row.op) for name, row in FUNCTIONS.items() if row.op is not None}
# The vector function of an Op of kernels alone.
_SOFTPLUS_SUM = function(FUNCTIONS["softplus_sum"], SoftplusSum)

ROWS: dict[type[ScalarOp], Row] = {
    row.op: row for row in (*_ARITHMETIC, *_LOGIC, *_FUNCTIONS.values(), _SOFTPLUS_SUM, *_UPSTREAM)
}

# Vector functions with several results, by the classes of the Ops that compute the results, in order.
SHARED_OPS: dict[tuple[type[ScalarOp], ...], str] = {
    tuple(_FUNCTIONS[name].op for name in shared.results): shared.name
    for shared in SHARED.values()
    if {*shared.results} <= _FUNCTIONS.keys()
}
