"""The lift leaves value and gradient of any chain of sets as they are."""

from collections import Counter

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.traversal import explicit_graph_inputs

from tests.rewrites.conftest import PYTHON, pregrad, sketch, value_and_gradient

UNARY = {
    "exp": pt.exp,
    "log": pt.log,
    "sqr": pt.sqr,
    "neg": pt.neg,
    "reciprocal": lambda v: 1 / v,
    "positive": lambda v: v > 0,
    "affine": lambda v: 2 * v - 1,
    "sigmoid": pt.sigmoid,
    "clip": lambda v: pt.clip(v, -0.5, 0.5),
}
BINARY = {
    "plus": lambda v, w: v + w,
    "minus": lambda v, w: w - v,
    "times": lambda v, w: v * w,
    "by": lambda v, w: v / w,
    "over": lambda v, w: w / v,
    "maximum": pt.maximum,
    "switch": lambda v, w: pt.switch(v > 0, v, w),
}


class Graph:
    """Variables with their values, drawn as a graph is built."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.dtype = draw(st.sampled_from(["float64", "float64", "float32", "int64"]))
        # Zeros of either sign, infinities and nan, or ordinary numbers.
        self.special = draw(st.booleans())
        self.inputs = {}

    def variable(self, shape):
        variable = pt.tensor(f"x{len(self.inputs)}", shape=shape, dtype=self.dtype)
        if self.dtype == "int64":
            value = self.rng.integers(-2, 3, size=shape)
        elif self.special:
            value = self.rng.choice([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan], size=shape)
        else:
            value = self.rng.normal(size=shape)
        self.inputs[variable] = np.asarray(value, dtype=self.dtype)
        return variable

    def root(self, shape):
        kind = self.draw(st.sampled_from(["fill", "scalar", "constant", "variable", "not finite"]))
        if kind == "scalar":
            return pt.alloc(self.variable(()), *shape)
        if kind == "variable":
            return self.variable(shape)
        if kind == "constant":
            return pt.constant(self.rng.integers(-2, 3, size=shape).astype(self.dtype))
        if kind == "not finite" and self.dtype != "int64":
            return pt.full(shape, self.draw(st.sampled_from([np.nan, np.inf])), dtype=self.dtype)
        return pt.full(shape, self.draw(st.sampled_from([0, 0, 1, -2])), dtype=self.dtype)

    def index(self, shape):
        """Return slices, integers, arrays and masks for the first axes, or a mask for all."""
        if self.draw(st.integers(0, 7)) == 0:
            return (self.rng.random(shape) < 0.5,)
        n_arrays = self.draw(st.integers(0, 3))
        return tuple(
            self.index_of_axis(n, n_arrays) for n in shape[: self.draw(st.integers(1, len(shape)))]
        )

    def index_of_axis(self, n, n_arrays):
        kind = self.draw(st.sampled_from(["slice", "array", "array", "integer", "mask"]))
        if kind == "integer" and n:
            return int(self.rng.integers(-n, n))
        if kind == "array" and n:
            dtype = self.draw(st.sampled_from(["int64", "int8", "uint8"]))
            return self.rng.choice(n, size=n_arrays, replace=n_arrays > n).astype(dtype)
        if kind == "mask" and n >= n_arrays:
            return np.isin(np.arange(n), self.rng.choice(n, size=n_arrays, replace=False))
        begin, end = self.draw(st.integers(-3, 3)), self.draw(st.integers(-3, 4))
        return slice(begin, end, self.draw(st.sampled_from([1, 2, -1])))

    def write(self, out):
        target = out[self.index(out.type.shape)]
        used = set(explicit_graph_inputs([target]))
        at = {v: value for v, value in self.inputs.items() if v in used}
        shape = np.shape(target.eval(at, mode=PYTHON))
        value = self.variable(self.draw(st.sampled_from([shape, shape, ()])))
        if not value.type.ndim:
            # PyTensor's Alloc makes 0 of -0.
            self.inputs[value] = self.inputs[value] + np.zeros((), self.dtype)
        if self.draw(st.integers(0, 2)):
            return target.set(value)
        # 0 + -0 is 0. Like PyTensor's own rule for slices, an inc of zeros that becomes a set keeps -0.
        self.inputs[value] = self.inputs[value] + np.zeros((), self.dtype)
        return target.inc(value)

    def function(self, out):
        name = self.draw(st.sampled_from(sorted(UNARY) + sorted(BINARY)))
        if name in UNARY:
            return UNARY[name](out)
        shape = tuple(n if self.draw(st.booleans()) else 1 for n in out.type.shape)
        return BINARY[name](out, self.variable(self.draw(st.sampled_from([shape, ()]))))


@st.composite
def graphs(draw):
    graph = Graph(draw)
    out = graph.root(draw(st.sampled_from([(4,), (3, 4), (0,), (2, 1, 3), (3, 3, 2)])))
    for _ in range(draw(st.integers(1, 3))):
        out = graph.write(out)
    return graph.function(out), graph.inputs


def check_any_chain_of_sets(n):
    counts = Counter()

    @settings(max_examples=n)
    @given(graphs())
    def check(case):
        out, inputs = case
        counts[sketch(pregrad(out, on=True)) != sketch(pregrad(out, on=False))] += 1
        off, on = (value_and_gradient(out, inputs, on=on) for on in (False, True))
        for expected, found in zip(off, on, strict=True):
            assert found.dtype == expected.dtype
            # The same scalar operations on both sides; only sums may run in another order.
            rtol = 8 * np.finfo(found.dtype).eps if found.dtype.kind == "f" else 0.0
            np.testing.assert_allclose(found, expected, rtol=rtol)

    check()
    return counts


def test_same_for_any_chain_of_sets():
    counts = check_any_chain_of_sets(30)
    assert counts[True] >= 5  # lifted
    assert counts[False] >= 5  # refused


@pytest.mark.slow
def test_same_for_very_many_chains_of_sets():
    assert check_any_chain_of_sets(3000)[True] >= 150
