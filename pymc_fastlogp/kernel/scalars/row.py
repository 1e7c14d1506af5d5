"""A row of the table of scalar Ops, and how rows are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.scalars import rules, upstream
from pymc_fastlogp.kernel.scalars.forms import FORMS
from pymc_fastlogp.kernel.vecmath.table import Function
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Lanes, Mask

Domain = Callable[[Sequence[str], str], Sequence[str]]
Rule = Callable[..., Lanes]
INSTRUCTIONS, UPSTREAM = "instructions", "upstream"


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    form : str
        How the Op is computed: ``INSTRUCTIONS``, the name of a vector function, or ``UPSTREAM``.
    domain : callable
        From the dtypes of inputs and output to those in which the arguments are given to the rule.
    rules : mapping
        From the register form of the last argument to a function of lanes.
    """

    op: type[ScalarOp]
    form: str
    domain: Domain
    rules: Mapping[type[Lanes], Rule]

    def rule(self, input_dtypes: Sequence[str], output_dtype: str) -> Rule | None:
        """Return the function of lanes for these dtypes, if there is one."""
        return self.rules.get(FORMS[self.domain(input_dtypes, output_dtype)[-1]])


def of_output(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Convert all arguments to the dtype of the output."""
    return [output_dtype] * len(input_dtypes)


def of_inputs(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Leave the arguments as they are."""
    return input_dtypes


def widest(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Convert all to float64 if one is a float, else to int64."""
    has_float = any(FORMS[dtype] is Floats for dtype in input_dtypes)
    return ["float64" if has_float else "int64"] * len(input_dtypes)


def condition_first(input_dtypes: Sequence[str], output_dtype: str) -> Sequence[str]:
    """Make the first a condition and convert the others to the dtype of the output."""
    return ["bool", *[output_dtype] * (len(input_dtypes) - 1)]


def instructions(
    op: type[ScalarOp],
    *,
    floats: Rule | None = None,
    integers: Rule | None = None,
    masks: Rule | None = None,
    domain: Domain = of_output,
) -> Row:
    """Return the row of an Op that is a few instructions."""
    given = {Floats: floats, Integers: integers, Mask: masks}
    return Row(op, INSTRUCTIONS, domain, {form: rule for form, rule in given.items() if rule})


def of_any_form(op: type[ScalarOp], rule: Rule, domain: Domain = of_output) -> Row:
    """Return the row of an Op whose rule does not depend on the form."""
    return instructions(op, floats=rule, integers=rule, masks=rule, domain=domain)


def comparison(op: type[ScalarOp], symbol: str) -> Row:
    """Return the row of a comparison."""
    rule = rules.comparison(symbol)
    return instructions(op, floats=rule, integers=rule, domain=widest)


def function(row: Function) -> Row:
    """Return the row of the Op that is a vector function."""
    assert row.op is not None
    return Row(row.op, row.name, of_output, {Floats: row.emit})


def of_upstream(op: type[ScalarOp]) -> Row:
    """Return the row of an Op that calls upstream's scalar function."""
    return Row(op, UPSTREAM, of_output, {Floats: upstream.by_lane(op)})


def folded(rule: Callable[[Any, Any], Lanes]) -> Rule:
    """Return the rule of two arguments as a rule of any number, from the left."""
    return lambda *args: reduce(rule, args)
