"""The axis of a graph along which entries depend on one row alone, and graphs without one."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scan import scan

from pymc_fastlogp.analysis.row_axis import NotByRowError, row_axis

N = 6


def shared(values, name):
    return pytensor.shared(np.asarray(values), name=name, shape=(None,))


g = shared(np.arange(N) % 3, "g")
x = shared(np.linspace(0.1, 0.9, N), "x")
y = shared(np.arange(N) % 2, "y")
flag = shared(np.arange(N) % 2 == 0, "flag")
n = shared(np.full(N, 5), "n")
COLUMNS = [g, x, y, flag, n]

a = pt.vector("a", shape=(3,))
b = pt.scalar("b")
c = pt.matrix("c", shape=(3, 4))
open_ = pt.vector("open_")

BY_ROW = {
    "elementwise": (lambda: pt.exp(x) * b + y, 0),
    "effects": (lambda: a[g], 0),
    "effects_of_two": (lambda: c[g, y], 0),
    "effects_of_one_and_a_number": (lambda: c[g, 1], 0),
    "rows_of_effects": (lambda: c[g], 0),
    "columns_of_effects": (lambda: c[:, g], 1),
    "design_matrix": (lambda: pt.stack([x, x**2, y], axis=1) @ a, 0),
    "transposed_design_matrix": (lambda: a @ pt.stack([x, x**2, y], axis=0), 0),
    "broadcast": (lambda: x[:, None] * a, 0),
    "broadcast_behind": (lambda: x[None, :] * a[:, None], 1),
    "sum_over_columns": (lambda: (x[:, None] * a).sum(axis=1), 0),
    "softmax_over_columns": (lambda: pm.math.softmax(c[g] + x[:, None], axis=1), 0),
    "logsumexp_over_columns": (lambda: pm.math.logsumexp(c[g] + x[:, None], axis=1), 0),
    "own_entry": (lambda: c[g][pt.arange(x.shape[0]), y], 0),
    "mask": (lambda: pt.switch(flag, x, b), 0),
    "filled": (lambda: pt.full((x.shape[0],), b), 0),
    "zeros_like": (lambda: pt.zeros_like(x) + b, 0),
    "joined_columns": (lambda: pt.concatenate([x[:, None], c[g]], axis=1)[:, 1:], 0),
    "largest_of_all_rows": (lambda: x / pt.max(x), 0),
    "parameters": (lambda: a * 2, None),
    "largest_row_alone": (lambda: pt.max(x), None),
}


@pytest.mark.parametrize("case", BY_ROW)
def test_axis_of_rows_is_found(case):
    build, axis = BY_ROW[case]
    assert row_axis(build(), COLUMNS) == axis


@pytest.mark.parametrize("case", [case for case, (_, axis) in BY_ROW.items() if axis is not None])
def test_rows_can_be_chosen(case):
    """The property that the axis stands for, checked by numbers."""
    build, axis = BY_ROW[case]
    out = build()
    point = {a: [0.3, -1.0, 2.0], b: 0.7, c: np.arange(12.0).reshape(3, 4) / 7}
    function = pytensor.function([*point], out, mode="FAST_COMPILE", on_unused_input="ignore")
    whole = function(*map(np.asarray, point.values()))
    values = [column.get_value() for column in COLUMNS]
    # With the row of the largest value.
    chosen = [5, 0, 0, 4]
    try:
        for column, value in zip(COLUMNS, values, strict=True):
            column.set_value(value[chosen])
        np.testing.assert_array_equal(
            function(*map(np.asarray, point.values())), np.take(whole, chosen, axis=axis)
        )
    finally:
        for column, value in zip(COLUMNS, values, strict=True):
            column.set_value(value)


SEVERAL_ROWS = {
    "mean": lambda: x - x.mean(),
    "sum": lambda: x.sum(),
    "sort": lambda: pt.sort(x),
    "cumsum": lambda: pt.cumsum(x),
    "differences": lambda: x[1:] - x[:-1],
    "reversed": lambda: x[::-1],
    "first_row": lambda: x - x[0],
    "dot_of_rows": lambda: pt.dot(x, x),
    "dot_with_parameters": lambda: pt.dot(x, open_),
    "known_length": lambda: pt.specify_shape(x, N),
    "filled_to_known_length": lambda: pt.alloc(x, N),
    "softmax_over_rows": lambda: pm.math.softmax(x),
    "number_of_rows": lambda: x / x.shape[0],
    "position": lambda: x + pt.arange(x.shape[0]),
    "effect_per_row": lambda: x + open_,
    "fixed_length": lambda: a[: x.shape[0]],
    "index_of_rows": lambda: x[g],
    "boolean_index": lambda: a[flag[:3]],
    "boolean_mask": lambda: x[flag],
    "matrix_of_rows": lambda: pt.stack([x, y], axis=1).T @ pt.stack([x, y], axis=1),
    "joined_rows": lambda: pt.concatenate([x, y]),
    "scan": lambda: scan(lambda v, s: s + v, x, outputs_info=pt.zeros(()), return_updates=False),
    "outer": lambda: x[:, None] * x[None, :],
    "argmax": lambda: pt.argmax(x),
}


@pytest.mark.parametrize("case", SEVERAL_ROWS)
def test_refuses_other_graphs(case):
    with pytest.raises(NotByRowError):
        row_axis(SEVERAL_ROWS[case](), COLUMNS)


def test_names_the_operation():
    with pytest.raises(NotByRowError, match="add reads several rows of the table at once"):
        row_axis(x - x.mean(), COLUMNS)
