"""The affine form of integer expressions, and the arithmetic that it is made with."""

import pytest
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir import affine as affine_forms
from pymc_fastlogp.kernel.ir import arithmetic
from pymc_fastlogp.kernel.ir.affine import Affine, affine, coefficient
from pymc_fastlogp.kernel.ir.arithmetic import (
    ZERO,
    cast,
    const,
    int64,
    is_not_negative,
    minus,
    plus,
    times,
)
from pymc_fastlogp.kernel.ir.expressions import Compute, Index, Length, Load
from tests.kernel.emitted import I0, I1, compute, given

INT = "int64"
N, M = Length(0, 0), Length(0, 1)
GROUP = given("g", 20, dtype=INT)


def integer(op, *args):
    return compute(op, *args, dtype=INT)


ROW_TIMES_N = integer(ps.mul, I0, N)
FORMS = {
    "an index": (I0, ZERO, {I0: 1}),
    "a constant": (int64(3), int64(3), {}),
    "a length": (N, N, {}),
    "a sum": (plus(I0, int64(3)), int64(3), {I0: 1}),
    "a sum of many": (integer(ps.add, I0, int64(2), I1, N, I0), plus(N, int64(2)), {I0: 2, I1: 1}),
    "from the end": (integer(ps.sub, N, I0), N, {I0: -1}),
    "a difference of sums": (
        integer(ps.sub, plus(I0, int64(7)), plus(times(I1, int64(2)), int64(4))),
        int64(3),
        {I0: 1, I1: -2},
    ),
    "what cancels": (integer(ps.sub, plus(I0, N), I0), N, {}),
    "a product": (integer(ps.mul, int64(5), plus(I0, int64(2))), int64(10), {I0: 5}),
    "a product of products": (integer(ps.mul, int64(2), I0, int64(3)), ZERO, {I0: 6}),
    "a product with zero": (integer(ps.mul, plus(I0, N), ZERO), ZERO, {}),
    "a product with what became a constant": (
        integer(ps.mul, I1, integer(ps.sub, plus(I0, int64(4)), I0)),
        ZERO,
        {I1: 4},
    ),
    "rows of open length": (ROW_TIMES_N, None, None),
    "a square": (integer(ps.mul, I0, I0), None, None),
    "a quotient": (integer(ps.int_div, I0, int64(2)), None, None),
    "a gather": (Load(GROUP, (I0,)), None, None),
    "a sum with a gather": (plus(I1, Load(GROUP, (I0,))), None, None),
    "a cast": (cast(I0, "int32"), None, None),
    "what is cast inside": (Compute(ps.add, (cast(I0, "int32"), I1), INT), None, None),
}


@pytest.mark.parametrize(("expr", "rest", "coefficients"), FORMS.values(), ids=FORMS)
def test_affine_form_is_recognized(expr, rest, coefficients):
    expected = None if rest is None else Affine(rest, coefficients)
    assert affine(expr, [I0, I1]) == expected


def test_other_indices_belong_to_the_remainder():
    gathered = Load(GROUP, (I0,))
    index = plus(times(I1, int64(3)), gathered)
    assert affine(index, [I1]) == Affine(gathered, {I1: 3})
    assert affine(ROW_TIMES_N, [I1]) == Affine(ROW_TIMES_N)
    assert affine(index, [I0, I1]) is None


@pytest.mark.parametrize(
    ("expr", "expected"),
    [(I1, 1), (I0, 0), (plus(I1, ROW_TIMES_N), 1), (integer(ps.mul, I1, M), None)],
)
def test_coefficient_is_read(expr, expected):
    assert coefficient(expr, Index(1)) == expected


def test_a_difference_keeps_all_terms():
    """A sum may have more than two."""
    total = integer(ps.add, N, int64(2), M)
    assert minus(total, int64(1)) == plus(total, int64(-1))
    assert minus(plus(N, int64(2)), int64(2)) is N


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(-1, "uint8", 255), (300, "int8", 44), (-1, "bool", True), (2, "float32", 2.0)],
)
def test_constant_wraps_to_its_dtype(value, dtype, expected):
    found = const(value, dtype).value
    assert found == expected
    assert type(found) is type(expected)


def doubled(expr, times):
    """Return an expression to which there are ``2**times`` paths."""
    for _ in range(times):
        expr = integer(ps.add, expr, expr)
    return expr


@pytest.mark.parametrize("levels", [6, 12])
def test_shared_subexpressions_are_analyzed_once(levels, monkeypatch):
    made = []

    def counted(*args):
        made.append(args)
        return Affine(*args)

    monkeypatch.setattr(affine_forms, "Affine", counted)
    found = affine(doubled(plus(I0, N), levels), [I0])
    assert found.coefficients == {I0: 2**levels}
    assert len(made) <= levels + 3


@pytest.mark.parametrize("levels", [6, 12])
def test_sign_of_shared_lengths_is_analyzed_once(levels, monkeypatch):
    asked = []

    def counted(expr):
        asked.append(expr)
        return is_not_negative(expr)

    monkeypatch.setattr(arithmetic, "is_not_negative", counted)
    assert counted(doubled(Length(7, levels), levels))
    assert len(asked) <= 2 * levels + 1
