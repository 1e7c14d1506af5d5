"""Sums of a filled matrix come from the vectors that it was filled from."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors

from tests.rewrites.conftest import (
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    pregrad,
)
from tests.slices import examples

RULE = "fastlogp_sum_of_filled"
N = 4
ROWS, COLS = np.tril_indices(N, -1)
DIAG = np.arange(N)

low = pt.vector("low", shape=(len(ROWS),))
diag = pt.vector("diag", shape=(N,))
packed = pt.vector("packed", shape=(N * (N + 1) // 2,))
f32 = pt.vector("f32", shape=(len(ROWS),), dtype="float32")
i64 = pt.vector("i64", shape=(len(ROWS),), dtype="int64")
s = pt.scalar("s")
index = pt.lvector("index", shape=(len(ROWS),))
full = pt.matrix("full", shape=(N, N))
unknown = pt.vector("unknown")
lows = pt.matrix("lows", shape=(2, len(ROWS)))
diags = pt.matrix("diags", shape=(2, N))
many = pt.matrix("many", shape=(6251, len(ROWS)))

VALUES = {
    low: np.linspace(-1.0, 2.0, len(ROWS)),
    diag: np.linspace(0.5, 2.0, N),
    packed: np.linspace(-2.0, 1.0, 10),
    s: np.array(0.7),
    full: np.linspace(-1.0, 1.0, N * N).reshape(N, N),
    lows: np.linspace(-1.0, 2.0, 12).reshape(2, 6),
    diags: np.linspace(0.5, 2.0, 8).reshape(2, 4),
}

zeros = pt.zeros((N, N))
strict = zeros[ROWS, COLS].set(low)
two = pt.zeros((2, N, N))[:, ROWS, COLS].set(lows)
FIRST, ROWS_OF_2, flat = np.repeat([0, 1], 6), np.tile(ROWS, 2), lows.reshape((12,))

FIRES = {
    "rows": (strict.sum(axis=1), pt.zeros(N)[ROWS].inc(low)),
    "columns": (strict.sum(axis=0), pt.zeros(N)[COLS].inc(low)),
    "everything": (strict.sum(), low.sum()),
    "with a diagonal": (strict[DIAG, DIAG].set(diag).sum(axis=1), diag[ROWS].inc(low)),
    "with a unit diagonal": (
        strict[DIAG, DIAG].set(1.0).sum(axis=1),
        pt.ones(N)[ROWS].inc(low),
    ),
    "with a repeated scalar": (
        strict[DIAG, DIAG].set(s).sum(axis=1),
        pt.alloc(s, N)[ROWS].inc(low),
    ),
    "everything, with a repeated scalar": (
        strict[DIAG, DIAG].set(s).sum(),
        low.sum() + pt.alloc(s, N).sum(),
    ),
    "inc on zeros": (zeros[ROWS, COLS].inc(low).sum(axis=1), pt.zeros(N)[ROWS].inc(low)),
    "negative indices": (
        zeros[ROWS - N, COLS - N].set(low).sum(axis=1),
        pt.zeros(N)[ROWS].inc(low),
    ),
    "not square": (
        pt.zeros((2, 9))[ROWS // 2, np.arange(6)].set(low).sum(axis=1),
        pt.zeros(2)[ROWS // 2].inc(low),
    ),
    "batch": (two.sum(axis=2), pt.zeros((2, N))[FIRST, ROWS_OF_2].inc(flat)),
    "a value that is repeated for a batch": (
        pt.zeros((2, N, N))[:, ROWS, COLS].set(low).sum(axis=2),
        pt.zeros((2, N))[np.tile([0, 1], 6), np.repeat(ROWS, 2)].inc(
            low[np.repeat(np.arange(6), 2)]
        ),
    ),
    "a matrix of a batch": (
        pt.zeros((2, N, N))[0].set(full).sum(axis=2),
        pt.zeros((2, N))[0, np.repeat(DIAG, N)].inc(full.reshape((N * N,))),
    ),
    "overwritten in part": (
        zeros[np.tril_indices(N)].set(packed)[ROWS, COLS - N].set(low).sum(axis=1),
        packed[[0, 2, 5, 9]][ROWS].inc(low),
    ),
    "batch, two axes": (two.sum(axis=(1, 2)), pt.zeros(2)[FIRST].inc(flat)),
    "batch, everything": (two.sum(), flat.sum()),
    "batch with diagonals": (
        two[:, DIAG, DIAG].set(diags).sum(axis=2),
        diags[FIRST, ROWS_OF_2].inc(flat),
    ),
    "batch with unit diagonals": (
        two[:, DIAG, DIAG].set(1.0).sum(axis=2),
        pt.ones((2, N))[FIRST, ROWS_OF_2].inc(flat),
    ),
    "batch with a repeated scalar": (
        two[:, DIAG, DIAG].set(s).sum(axis=2),
        pt.alloc(s, 2, N)[FIRST, ROWS_OF_2].inc(flat),
    ),
}

REFUSES = {
    "nothing set": full.sum(axis=1),
    "runtime index": zeros[index, COLS].set(low).sum(axis=1),
    "entries that are set twice": zeros[ROWS, ROWS].set(low).sum(axis=1),
    "entries that are added twice": zeros[ROWS, ROWS].inc(low).sum(axis=1),
    "overwritten by constants": zeros[DIAG, DIAG].set(1.0)[ROWS, ROWS - 1].set(low).sum(axis=1),
    "fill other than zero": pt.ones((N, N))[ROWS, COLS].set(low).sum(axis=1),
    "a full matrix below": full[ROWS, COLS].set(low).sum(axis=1),
    "float32, which is summed in float64": pt.zeros((N, N), dtype="float32")[ROWS, COLS]
    .set(f32)
    .sum(axis=1),
    "integers": pt.zeros((N, N), dtype="int64")[ROWS, COLS].set(i64).sum(axis=1),
    "a value that is cast": zeros[ROWS, COLS].set(f32).sum(axis=1),
    "a large batch": pt.zeros((6251, N, N))[:, ROWS, COLS].set(many).sum(axis=2),
    "a slice": zeros[1:3].set(full[:2]).sum(axis=1),
    "unknown shape": pt.zeros((N, N))[ROWS, COLS].set(unknown).sum(axis=1),
    "most of the matrix": zeros[np.tril_indices(N)].set(packed)[COLS, ROWS - N].set(low).sum(1),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_matrix_is_not_built():
    found = pregrad(pt.sqr(strict[DIAG, DIAG].set(1.0)).sum(axis=1), on=True)
    assert max(x.type.ndim for x in ancestors([found])) == 1


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_non_finite_entry_stays_in_its_row(bad):
    values = VALUES | {low: np.array([1.0, bad, 2.0, 3.0, 4.0, 5.0])}
    assert_same_value_and_gradient(strict.sum(axis=1), values, rtol=1e-14)


@st.composite
def filled_matrices(draw):
    """Draw a matrix, vectors set into some of its entries, and the axis to sum along."""
    shape = draw(st.sampled_from([(3, 3), (1, 5), (4, 2), (5, 7), (2, 3, 3)]))
    size = int(np.prod(shape))
    order = draw(st.permutations(range(size)))
    cuts = sorted(draw(st.lists(st.integers(1, size), min_size=1, max_size=3, unique=True)))
    matrix, values = pt.zeros(shape), {}
    for begin, end in zip([0, *cuts], cuts, strict=False):
        length = end - begin
        x = pt.vector(f"x{begin}", shape=(length,)) if draw(st.booleans()) else pt.scalar()
        values[x] = np.linspace(-1.0, 1.7, length) if x.ndim else np.array(0.3)
        where = np.unravel_index(np.array(order[begin:end]), shape)
        matrix = matrix[where].set(x) if draw(st.booleans()) else matrix[where].inc(x)
    return matrix.sum(axis=draw(st.sampled_from([None, 0, 1, -1]))), values


@settings(max_examples=examples(15, 60))
@given(filled_matrices())
def test_same_for_any_filled_matrix(case):
    out, values = case
    assert_same_value_and_gradient(out, values, rtol=1e-13)
