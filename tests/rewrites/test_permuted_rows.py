"""A permuted vector is read in its own order wherever the order does not matter."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
)

RULES = ["fastlogp_write_of_permuted", "fastlogp_reduction_of_permuted"]
P = np.array([3, 0, 4, 1, 2])
Q = np.argsort(P)
K = np.array([0, 2, 2, 1, 0])
C = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
TO = np.array([0, 1, 1, 2, 3])
COLUMN = np.array([2, 0, 1, 1, 3])

x = pt.vector("x", shape=(5,))
y = pt.vector("y", shape=(5,))
g = pt.vector("g", shape=(3,))
table = pt.matrix("table", shape=(3, 4))
s = pt.scalar("s")
longer = pt.vector("longer", shape=(6,))
unknown = pt.vector("unknown")
index = pt.lvector("index", shape=(5,))
weights = pt.constant(C)

VALUES = {
    x: np.linspace(-1.0, 2.0, 5),
    y: np.linspace(0.5, 3.0, 5),
    g: np.array([0.7, -1.2, 2.0]),
    table: np.linspace(0.5, 2.0, 12).reshape(3, 4),
    s: np.array(0.3),
    longer: np.linspace(0.0, 1.0, 6),
}

flat = pt.zeros(4)
square = pt.zeros((4, 4))
shared = pt.exp(x[P])

FIRES = {
    "inc": (flat[TO].inc(x[P]), flat[TO[Q]].inc(x)),
    "set": (square[TO, COLUMN].set(x[P]), square[TO[Q], COLUMN[Q]].set(x)),
    "inc of a function": (flat[TO].inc(pt.exp(x[P])), flat[TO[Q]].inc(pt.exp(x))),
    "reversed": (flat[TO].inc(x[::-1]), flat[TO[::-1].copy()].inc(x)),
    "negative numbers": (flat[TO].inc(x[P - 5]), flat[TO[Q]].inc(x)),
    "gathers": (flat[TO].inc(x[P] / g[K]), flat[TO[Q]].inc(x / g[K[Q]])),
    "gathers of a matrix": (
        flat[TO].inc(x[P] / table[K, COLUMN - 4]),
        flat[TO[Q]].inc(x / table[K[Q], COLUMN[Q] - 4]),
    ),
    "constants": (flat[TO].inc(pt.exp(x[P]) * weights), flat[TO[Q]].inc(pt.exp(x) * C[Q])),
    "scalars": (flat[TO].inc(pt.exp(x[P] * s)), flat[TO[Q]].inc(pt.exp(x * s))),
    "sum": (pt.exp(x[P]).sum(), pt.exp(x).sum()),
    "any": (pt.isnan(x[P]).any(), pt.isnan(x).any()),
    "all": ((x[P] > g[K]).all(), (x > g[K[Q]]).all()),
    "two vectors": (pt.exp(x[P] * y[P]).sum(), pt.exp(x * y).sum()),
    "two readers": (
        flat[TO].inc(shared) * pt.sqr(shared).sum(),
        flat[TO[Q]].inc(pt.exp(x)) * pt.sqr(pt.exp(x)).sum(),
    ),
    "x needed in this order too": (
        pt.concatenate([x[P], pt.sin(x[P]).sum()[None]]),
        pt.concatenate([x[P], pt.sin(x).sum()[None]]),
    ),
}

REFUSES = {
    "no permutation": flat[TO].inc(pt.exp(g[K])),
    "part of a vector": pt.exp(longer[P]).sum(),
    "unknown length": pt.exp(unknown[P]).sum(),
    "identity": pt.exp(x[np.arange(5)]).sum(),
    "runtime permutation": pt.exp(x[index]).sum(),
    "runtime target": flat[index].inc(pt.exp(x[P])),
    "runtime gather": flat[TO].inc(x[P] * g[index]),
    "runtime gather of a matrix": flat[TO].inc(x[P] * table[K, index]),
    "gather of a column": flat[TO].inc(x[P] * table[K, 1]),
    "gather at one row": flat[TO].inc(x[P] * table[K[:1], COLUMN % 4]),
    "another vector in its own order": flat[TO].inc(x[P] * y),
    "a slice, which would be a gather": flat[TO].inc(x[P] * longer[1:]),
    "two permutations": pt.exp(x[P] * y[Q]).sum(),
    "order matters": pt.exp(x[P]),
    "order matters to one of two": pt.concatenate([shared, shared.sum()[None]]),
    "set twice": flat[TO].set(pt.exp(x[P])),
    "slices": pt.zeros((2, 4))[:, TO].inc(pt.exp(x[P])),
    "matrix": pt.exp(pt.outer(x, x)[P]).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    out = FIRES[name][0]
    if out.type.dtype != "bool":
        assert_same_value_and_gradient(out, VALUES, rtol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.0])
def test_reductions_of_conditions_have_the_same_value(bad):
    values = {x: np.array([3.0, 2.0, bad, 9.0, 20.0]), g: np.zeros(3)}
    for name in ("any", "all"):
        out = FIRES[name][0]
        off, on = (
            pregrad(out, on=on).eval(inputs_of(out, values), mode=PYTHON) for on in (False, True)
        )
        assert off == on == (np.isnan(bad) == (name == "any"))


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], *RULES)


def test_gradient_is_written_in_order():
    out = pregrad(pt.log(1 + flat[TO].inc(pt.sqr(x[P]))).sum(), on=True)
    gathers = [
        v
        for v in ancestors([out, pytensor.grad(out, x)])
        if isinstance(v.owner_op, AdvancedSubtensor)
    ]
    assert [list(v.owner.inputs[1].data) for v in gathers] == [list(TO[Q])]


@st.composite
def permuted(draw):
    """Draw an expression of a permuted vector and other operands, and something that reads it."""
    n = draw(st.integers(2, 7))
    p = np.array(draw(st.permutations(range(n))))
    v, table = pt.vector("v", shape=(n,)), pt.vector("table", shape=(3,))
    indices = st.lists(st.integers(0, 2), min_size=n, max_size=n).map(np.array)
    # Sums and products of these are exact, in any order.
    others = [table[draw(indices)], pt.constant(np.arange(n) / 2 - 1), s, v[p]]
    out = v[p]
    for _ in range(draw(st.integers(0, 3))):
        function = draw(st.sampled_from([pt.add, pt.mul, pt.sub, pt.maximum]))
        out = function(out, draw(st.sampled_from(others)))
    if draw(st.booleans()):
        out = pt.zeros(3)[draw(indices)].inc(out)
    elif draw(st.booleans()):
        out = pt.zeros((n, n))[draw(st.permutations(range(n)).map(np.array)), p].set(out)
    else:
        out = out.sum()
    return out, {v: np.arange(n) / 2 - 1.25, table: np.array([0.25, -1.0, 2.0]), s: np.array(0.75)}


@settings(max_examples=60)
@given(permuted())
def test_same_for_any_permutation(case):
    assert_same_value_and_gradient(*case, rtol=1e-12)
