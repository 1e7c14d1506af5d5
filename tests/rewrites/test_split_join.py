"""A sum over joined rows is summed block by block: the sums that are split, the rows of each block, and the total."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join
from pytensor.tensor.math import Sum

from pymc_fastlogp import explain, verify
from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
    value_and_gradient,
)
from tests.slices import examples

RULE = "fastlogp_split_join"
A, B = 40, 50
RNG = np.random.default_rng(7)

a, b = pt.vector("a", shape=(A,)), pt.vector("b", shape=(B,))
c, d = pt.vector("c", shape=(A,)), pt.vector("d", shape=(B,))
M, N = pt.matrix("M", shape=(A, 3)), pt.matrix("N", shape=(B, 3))
wide, wider, widest = (pt.matrix(f"wide{n}", shape=(A, n)) for n in (33, 34, 67))
s, row = pt.scalar("s"), pt.vector("row", shape=(3,))
whole, open_ = pt.vector("whole", shape=(A + B,)), pt.vector("open_")
open_matrices = [pt.matrix(f"open{n}", shape=(n, None)) for n in (A, B)]
VALUES = {
    x: np.asarray(RNG.normal(size=tuple(A if n is None else n for n in x.type.shape)))
    for x in (a, b, c, d, M, N, wide, wider, widest, s, row, whole, open_)
}
y = pt.constant(RNG.normal(size=A + B))
Y = pt.constant(RNG.normal(size=(A + B, 3)))
rows, matrix = pt.join(0, a, b), pt.join(0, M, N)
g = pt.constant(RNG.integers(0, 3, A + B))

FIRES = {
    "a function": pt.sum(pt.exp(rows)),
    "of constants, too": pt.sum((rows - y) ** 2 / s),
    "of something whole": pt.sum(rows * pt.tanh(whole)),
    "of two joins": pt.sum(rows * pt.sin(pt.join(0, c, d))),
    "gathered": pt.sum(pt.exp(rows) * row[g]),
    "with columns": pt.sum(pt.exp(pt.expand_dims(rows, 1) * Y)),
    "matrices": pt.sum(pt.exp(matrix * row) * Y, axis=0),
    "columns, all axes": pt.sum(pt.cos(pt.join(1, wide, wider)) * pt.tanh(widest)),
    "matrices, all axes": pt.sum(pt.cos(matrix - s)),
    "all": pt.all(pt.lt(rows, 1.5)),
    "all of three": pt.all(pt.lt(pt.join(0, a, b, c), 1.5)),
}
REFUSES = {
    "other axis": pt.sum(pt.exp(matrix), axis=1),
    "other ends": pt.sum(rows * pt.join(0, b, a)),
    "short block": pt.sum(pt.exp(pt.join(0, a, c[:4]))),
    "too many": pt.sum(pt.exp(pt.join(0, *[a] * 9))),
    "unknown length": pt.sum(pt.exp(pt.join(0, a, open_))),
    "something else of unknown length": pt.sum(rows * pt.sin(open_)),
    "other axes of unknown length": pt.sum(pt.exp(pt.join(0, *open_matrices))),
    "not elementwise": pt.sum(pt.cumsum(pt.exp(rows)) * y),
    "no join": pt.sum(pt.exp(whole)),
    "joined columns": pt.sum(pt.exp(pt.join(1, wide, wider)), axis=0),
}


def joins(out):
    return [x for x in ancestors([out]) if isinstance(x.owner_op, Join)]


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    out = FIRES[name]
    found = pregrad(out, on=True)
    assert joins(pregrad(out, on=False))
    assert not joins(found)
    assert found.type == out.type
    again = pregrad(found, on=True)
    assert not joins(again)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name], VALUES, rtol=2e-13)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_rows_with_another_reader_are_refused():
    each = pt.exp(rows)
    assert_left_alone(pt.sum(each) + pt.join(0, each, each)[0], RULE)


def test_the_name_of_the_sum_is_kept_for_explain():
    total = pt.sum(pt.exp(rows))
    total.name = "y_logp"
    sums = {x for x in ancestors([pregrad(total, on=True)]) if isinstance(x.owner_op, Sum)}
    assert [x.name for x in sums] == ["y_logp"] * 2


def test_an_elementwise_function_of_several_outputs():
    """The derivative of the incomplete gamma function is a loop, which has several."""
    k = pt.scalar("k")
    out = pytensor.grad(pt.gammainc(k, pt.exp(rows)).sum(), k)
    with pytensor.config.change_flags(on_opt_error="raise"):
        on = pregrad(out, on=True)
    assert not joins(on)
    at = {k: np.array(1.3), a: VALUES[a], b: VALUES[b]}
    expected = pregrad(out, on=False).eval(at, mode=PYTHON)
    np.testing.assert_allclose(on.eval(at, mode=PYTHON), expected, rtol=1e-10)


@settings(max_examples=examples(12, 100))
@given(
    lengths=st.lists(st.integers(32, 45), min_size=2, max_size=8),
    seed=st.integers(0, 2**16),
    columns=st.integers(1, 3),
)
def test_blocks_of_any_number_and_length(lengths, seed, columns):
    rng = np.random.default_rng(seed)
    blocks = [pt.matrix(f"block{k}", shape=(n, columns)) for k, n in enumerate(lengths)]
    data = pt.constant(rng.normal(size=(sum(lengths), columns)))
    out = pt.sum(pt.tanh(pt.join(0, *blocks) * data) ** 2)
    values = {x: rng.normal(size=x.type.shape) for x in blocks}
    off, on = (value_and_gradient(out, inputs_of(out, values), on=on) for on in (False, True))
    assert not joins(pregrad(out, on=True))
    for expected, found in zip(off, on, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_two_arms_of_a_survey_have_cells_of_their_own():
    """Each block has its own cells, and what explain says is about the one likelihood."""
    rng = np.random.default_rng(1)
    n, groups = 400, 7
    g1, g2 = rng.integers(0, groups, (2, n))
    with pm.Model() as model:
        first, second = pm.Normal("first", shape=groups), pm.Normal("second", shape=groups)
        rate = pt.concatenate([pt.exp(first[g1]), pt.exp(second[g2]) * 2.0])
        pm.Poisson("y", rate, observed=rng.poisson(1.5, 2 * n))
    assert verify(model)
    said = explain(model)["y"]
    assert RULE in {outcome.rewrite for outcome in said}
    rows = {(outcome.rows_before, outcome.rows_after) for outcome in said if outcome.rows_before}
    assert rows == {(n, groups)}
