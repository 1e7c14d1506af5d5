"""Functions of repeated constants become constants before the gradient."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc

from pymc_fastlogp import explain
from pymc_fastlogp.rewrites.shapes import fold_alloc
from tests.conftest import PYTHON
from tests.rewrites.conftest import (
    assert_left_alone,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
)

RULE = "fastlogp_fold_alloc"
ROWS, COLUMNS = 4, 3

w = pt.vector("w", shape=(COLUMNS,))
v = pt.vector("v", shape=(ROWS,))
n = pt.lscalar("n")
VALUES = {w: np.array([0.3, -1.2, 2.0]), v: np.linspace(-1.0, 1.0, ROWS), n: np.array(ROWS)}

rows = np.linspace(-2.0, 2.0, ROWS)
columns = np.arange(1.0, COLUMNS + 1)
repeated = pt.alloc(rows[:, None], ROWS, COLUMNS)
single = pt.alloc(rows[:, None].astype("float32"), ROWS, COLUMNS)

# What is constant, and its value.
KNOWN = {
    "columns beside": (pt.sin(repeated * columns), np.sin(rows[:, None] * columns)),
    "ones beside": (pt.ones((ROWS, COLUMNS)) * pt.exp(repeated + columns),) * 2,
    "other axes": (pt.sin(repeated.T + rows), np.sin(rows + rows * np.ones((COLUMNS, 1)))),
    "axes of length one": (
        pt.sin(pt.alloc(rows[None, :, None, None], 1, ROWS, COLUMNS, 1)[0, :, :, 0] * columns),
        np.sin(rows[:, None] * columns),
    ),
    "two of them": (pt.sin(repeated + pt.alloc(columns, ROWS, COLUMNS)),) * 2,
    "joined": (
        pt.concatenate([pt.zeros((2, COLUMNS)), columns[None]]),
        np.array([[0.0] * 3, [0.0] * 3, columns]),
    ),
    "float32": (pt.cos(single + columns.astype("float32")),) * 2,
    "nan and infinity": (
        pt.alloc(np.array([[np.nan], [np.inf]]), 2, COLUMNS) * columns,
        np.array([[np.nan] * 3, [np.inf] * 3]),
    ),
    "no rows": (pt.alloc(np.zeros((0, 1)), 0, COLUMNS) + columns, np.zeros((0, COLUMNS))),
}
LEFT_ALONE = {
    "one value": pt.exp(pt.zeros((ROWS, COLUMNS)) + 1.0) * w,
    "a length that is not known": pt.sin(pt.alloc(rows[0], n) + n) * 2,
    "a variable is repeated": pt.sin(pt.alloc(w, ROWS, COLUMNS) + columns),
    "a variable beside": pt.sin(repeated * w),
    "set into zeros": pt.zeros((ROWS, COLUMNS))[1].set(columns) * w,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_arrays_become_constants(name):
    known, expected = KNOWN[name]
    if expected is known:
        expected = known.eval(mode=PYTHON)
    found = pregrad(known, on=True)
    assert isinstance(found, Constant)
    assert not isinstance(pregrad(known, on=False), Constant)
    assert found.type.dtype == known.type.dtype
    np.testing.assert_array_equal(found.data, expected)


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "no rows"])
def test_value_and_gradient(name):
    known, _ = KNOWN[name]
    out = (known[..., :1] * pt.exp(w[0])) if name != "other axes" else known * pt.exp(w[0])
    assert_same_value_and_gradient(out, {w: VALUES[w]}, rtol=1e-15)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_arrays_are_left_alone(name):
    out = LEFT_ALONE[name]
    assert_left_alone(out, RULE)
    assert inputs_of(out, VALUES)


def test_the_basis_of_an_hsgp_is_a_constant_so_that_rows_are_those_of_a_triangle():
    x, y = np.linspace(0, 1, 100), np.linspace(-1, 1, 100) ** 2
    with pm.Model() as model:
        cov = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls"))
        f = pm.gp.HSGP(m=[8], c=1.5, cov_func=cov).prior("f", X=x[:, None])
        pm.Normal("y", f, pm.HalfNormal("sigma"), observed=y)
    [row] = [r for r in explain(model)["y"] if r.rewrite == "fastlogp_gaussian_rows"]
    assert (row.fired, row.rows_before, row.rows_after) == (True, 100, 8 + 1)
    matrices = [x for x in ancestors([pregrad(model.logp(), on=True)]) if x.owner]
    assert not any(isinstance(x.owner.op, Alloc) and x.type.ndim > 1 for x in matrices)


def test_large_arrays_are_left_alone(monkeypatch):
    small = pt.sin(pt.alloc(pt.as_tensor([[1.0], [2.0]]), 2, 30) + np.arange(30.0))
    assert isinstance(pregrad(small, on=True), Constant)
    monkeypatch.setattr(fold_alloc, "MOST_ENTRIES", 59)
    assert not isinstance(pregrad(small, on=True), Constant)
