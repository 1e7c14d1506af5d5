"""Lengths of slices with a step."""

import pytest
from pytensor import scalar as ps
from pytensor.scalar.basic import Cast

from pymc_fastlogp.kernel.ir.arithmetic import cast, const, int64, plus, switch, times, truth
from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Length, Load, Role
from pymc_fastlogp.kernel.lower import linear_lengths
from pymc_fastlogp.kernel.lower.linear_lengths import Linear, bounds_in_a_step, difference, linear

N = Load(Buffer("x0", "int64", (), Role.INPUT), ())
SMALL = Load(Buffer("x1", "int8", (), Role.INPUT), ())
ROWS = Length(2, 0)


def at_most(a, b):
    return Compute(ps.minimum, (a, b), "int64")


def at_least(a, b):
    return Compute(ps.maximum, (a, b), "int64")


def guarded(n):
    """Return the length of one value as PyTensor writes it, for n steps."""
    smaller = at_most(int64(1), plus(n, int64(1)))
    one = Compute(ps.int_div, (Compute(ps.sub, (smaller, int64(1)), "int64"), int64(1)), "int64")
    return switch(truth(ps.lt, int64(0), smaller), plus(one, int64(1)), int64(0))


KNOWN = {
    "a sum": (plus(N, int64(2)), N, 2),
    "a difference": (Compute(ps.sub, (N, int64(2)), "int64"), N, -2),
    "in another order": (Compute(ps.add, (int64(3), ROWS, N), "int64"), plus(N, ROWS), 3),
    "a product": (plus(times(N, int64(2)), int64(1)), plus(N, N), 1),
    "a maximum": (at_least(plus(N, int64(-1)), int64(0)), N, -1),
    "a minimum": (at_most(int64(1), plus(N, int64(1))), int64(1), 0),
    "a length that is not negative": (at_least(ROWS, int64(0)), ROWS, 0),
    "a guarded length": (guarded(N), int64(1), 0),
    "a cast": (cast(SMALL, "int64"), cast(SMALL, "int64"), 0),
}
UNKNOWN = {
    "two inputs": (N, ROWS),
    "a maximum": (at_least(plus(N, int64(-2)), int64(0)), N),
    "a product of lengths": (times(N, ROWS), N),
    "a quotient": (Compute(ps.int_div, (N, int64(2)), "int64"), N),
    "what may wrap around": (
        cast(Compute(ps.add, (SMALL, const(1, "int8")), "int8"), "int64"),
        cast(SMALL, "int64"),
    ),
    "a condition that is not known": (switch(truth(ps.lt, ROWS, N), N, ROWS), N),
}


@pytest.mark.parametrize("name", KNOWN)
def test_difference_is_known(name):
    a, b, expected = KNOWN[name]
    assert difference(a, b, bounds_in_a_step(N)) == expected


@pytest.mark.parametrize("name", UNKNOWN)
def test_difference_is_unknown(name):
    a, b = UNKNOWN[name]
    assert difference(a, b, bounds_in_a_step(N)) is None


def test_clamped_lengths_without_a_step_are_unknown():
    assert difference(guarded(N), int64(1), {}) is None
    assert difference(at_least(plus(N, int64(-1)), int64(0)), N, {}) is None


def test_sum_as_number_of_steps_bounds_its_atom():
    assert bounds_in_a_step(plus(ROWS, int64(-1))) == {ROWS: 2}
    assert bounds_in_a_step(times(ROWS, int64(2))) == {}
    assert bounds_in_a_step(int64(5)) == {}


def test_sum_is_folded_to_one_expression():
    assert linear(Compute(ps.add, (int64(3), N, int64(-1)), "int64"), {}).expr is plus(N, int64(2))
    assert linear(int64(4), {}).expr is int64(4)


@pytest.mark.parametrize("levels", [6, 12])
def test_shared_subexpressions_are_analyzed_once(levels, monkeypatch):
    made = []

    def counted(*args):
        made.append(args)
        return Linear(*args)

    monkeypatch.setattr(linear_lengths, "Linear", counted)
    length = ROWS
    for _ in range(levels):
        length = Compute(ps.add, (length, length), "int64")
    assert linear(length, {}) == Linear(0, {ROWS: 2**levels})
    assert len(made) <= levels + 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.5])
def test_non_integer_is_no_length(value):
    number = Compute(Cast(ps.int64), (const(value, "float64"),), "int64")
    assert linear(plus(number, int64(1)), {}) == Linear(1, {number: 1})
