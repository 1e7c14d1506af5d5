"""Provenance gives the source entry of every position, for any chain of Ops that move entries."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_fastlogp.analysis.provenance import movement_nodes, provenance
from tests.rewrites.conftest import PYTHON
from tests.slices import examples

v = pt.vector("v", shape=(3,))
w = pt.matrix("w", shape=(2, 3))
s = pt.scalar("s")
single = pt.vector("single", shape=(3,), dtype="float32")
index = pt.lvector("index", shape=(3,))
zeros = pt.zeros((3, 3))
LOWER = np.tri(3)


def standing(x, values):
    """Return the array that provenance says ``x`` is."""
    found = provenance(x)
    out = np.zeros(found.codes.shape, dtype=x.type.dtype)
    for leaf, which, where in found.entries():
        inputs = {v: values[v] for v in explicit_graph_inputs([leaf])}
        out.flat[where] = leaf.eval(inputs, mode=PYTHON).ravel()[which]
    return out


MOVES = {
    "transposed": (w.T, [[1, 4], [2, 5], [3, 6]]),
    "joined": (pt.concatenate([v[1:], v[::-1]]), [2, 3, 3, 2, 1]),
    "split": (pt.split(v, [1, 2], n_splits=2)[1], [2, 3]),
    "made": (pt.stack([v[2], v[0]]), [3, 1]),
    "repeated": (pt.alloc(v, 2, 3), [[1, 2, 3], [1, 2, 3]]),
    "padded": (pt.pad(v, (1, 2)), [0, 1, 2, 3, 0, 0]),
    "on a diagonal": (pt.diag(v), [[1, 0, 0], [0, 2, 0], [0, 0, 3]]),
    "from a diagonal": (pt.diagonal(w), [1, 5]),
    "masked": (v * np.array([1.0, 0.0, 1.0]), [1, 0, 3]),
    "by a condition": (pt.where(LOWER[1] > 0, v, np.zeros(3)), [1, 2, 0]),
    "set into zeros": (pt.zeros(4)[[3, 0]].set(v[:2]), [2, 0, 0, 1]),
    "added to zeros": (pt.zeros(4)[1:].inc(v), [0, 1, 2, 3]),
    "overwritten": (v[1:].set(0.0), [1, 0, 0]),
}

LEAVES = {
    "computed": pt.exp(v),
    "read where is not known": v[index],
    "set where is not known": zeros[index, 0].set(v),
    "set twice": pt.zeros(4)[[1, 1, 2]].set(v),
    "added to others": v[:2].inc(v[1:]),
    "of another type": pt.zeros(3)[:].set(single),
    "scaled": v * np.array([1.0, 2.0, 0.0]),
    "padded at the edge": pt.pad(v, 1, mode="edge"),
    "read out of range": v[np.array([5])],
}


@pytest.mark.parametrize("name", MOVES)
def test_data_movement_is_tracked(name):
    x, expected = MOVES[name]
    assert {entry.leaf for entry in provenance(x).entries()} <= {v, w}
    values = {v: np.arange(1.0, 4.0), w: np.arange(1.0, 7.0).reshape(2, 3)}
    np.testing.assert_array_equal(standing(x, values), expected)


@pytest.mark.parametrize("name", LEAVES)
def test_other_ops_are_leaves(name):
    x = LEAVES[name]
    [entry] = provenance(x).entries()
    assert entry.leaf is x


def test_open_and_large_arrays_have_no_provenance():
    assert provenance(pt.vector("x")) is None
    assert provenance(pt.vector("x", shape=(11,)), most=10) is None


def test_part_of_a_large_array_is_a_leaf():
    x = pt.vector("x", shape=(11,))[:4]
    [entry] = provenance(x, most=10).entries()
    assert entry.leaf is x


def test_an_entry_that_only_meets_zeros_is_lost():
    square = pt.outer(v, v)
    assert not provenance(square * LOWER).is_lossless
    assert provenance(pt.concatenate([v, v[:1]]) * np.array([0, 1, 1, 1])).is_lossless


def test_negative_zero_is_not_zero():
    assert provenance(pt.constant([0.0, -0.0])).codes.astype(bool).tolist() == [False, True]


def test_a_long_chain_is_looked_at_once():
    """Each step reads the last one twice."""
    x = v
    for _ in range(60):
        x = pt.concatenate([x[1:], x[:1]])
    assert len(movement_nodes(x)) == 180
    assert provenance(x).codes.tolist() == [1, 2, 3]


@st.composite
def moved(draw):
    """Draw what some Ops make of a vector, a matrix and zeros, one after the other."""
    x = draw(st.sampled_from([v, w, pt.zeros((3, 2)), pt.constant(np.arange(4.0) - 1)]))
    for _ in range(draw(st.integers(1, 5))):
        x = draw(step(x))
    return x


@st.composite
def step(draw, x):
    shape, n = x.type.shape, x.type.shape[0]
    size = int(np.prod(shape))
    chosen = np.array(draw(st.permutations(range(n)))[: draw(st.integers(1, n))])
    match draw(st.integers(0, 8)):
        case 0:
            return x[chosen]
        case 1:
            return x[:: draw(st.sampled_from([1, -1, 2]))]
        case 2:
            return x.reshape((size,)) if x.ndim > 1 else x.reshape((1, n))
        case 3:
            return pt.concatenate([x, x[chosen]])
        case 4:
            return pt.pad(
                x, [(1, 0)] + [(0, 0)] * (x.ndim - 1), constant_values=draw(st.integers(0, 1))
            )
        case 5:
            return x * np.array(
                draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n))
            ).reshape(-1, *[1] * (x.ndim - 1))
        case 6:
            return x[chosen].set(draw(st.sampled_from([0.0, 2.0, s])))
        case 7:
            return x.T
        case _:
            return pt.zeros((n + 1, *shape[1:]))[chosen].inc(x[: len(chosen)])


@settings(max_examples=examples(30, 100))
@given(moved())
def test_says_what_the_graph_computes(x):
    values = {
        v: np.array([3.0, -1.5, 0.7]),
        w: np.arange(6.0).reshape(2, 3) + 10,
        s: np.array(-4.0),
    }
    inputs = {name: values[name] for name in explicit_graph_inputs([x])}
    np.testing.assert_array_equal(standing(x, values), x.eval(inputs, mode=PYTHON))
