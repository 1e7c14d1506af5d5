"""Every entry lies in its proven range for any input, and folded checks keep their truth."""

from collections import Counter

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.ranges import range_of
from pymc_fastlogp.rewrites.checks.fold_checks_by_range import local_fold_checks_by_range
from tests.rewrites.conftest import PYTHON
from tests.slices import examples

LENGTH = 4
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-310, 1e308, -1e308, 800.0, np.inf, -np.inf, np.nan]
CONSTANTS = [0.0, 1.0, -1.0, 0.3, 2.0, -7.5, 1e-3, 1e200, np.inf]
INDEX = np.array([3, 0, 0, 1])

UNARY = (
    *(pt.exp, pt.expm1, pt.log, pt.log1p, pt.sqrt, pt.sqr, pt.sigmoid, pt.softplus, pt.tanh),
    *(pt.abs, pt.neg, pt.reciprocal, pt.erf, pt.erfc, pt.sin, pt.cos, pt.arctan, pt.exp2),
    *(pt.log2, pt.log10, pt.gammaln, pt.special.softmax, pt.max, pt.min),
    *(lambda v: v**2, lambda v: v**0.5, lambda v: v**3, lambda v: v**-0.5),
    *(lambda v: v / pt.exp(v), lambda v: pt.sqr(v) / (pt.exp(v) * pt.sqr(v))),
    *(lambda v: 1 / (1 + pt.exp(-v)), lambda v: pt.clip(v, -0.5, 2), lambda v: 1 - v),
    *(lambda v: v[::-1], lambda v: v[INDEX], lambda v: pt.alloc(v.sum(), LENGTH)),
    *(lambda v: pt.concatenate([v[1:], v[:1]]), lambda v: v[INDEX].set(pt.exp(v)[INDEX])),
    *(lambda v: pt.ones(LENGTH)[INDEX].inc(v), lambda v: v[1:].set(0.25)),
    *(lambda v: pt.cast(v, "float32"), lambda v: pt.cast(pt.clip(v, -50, 200), "int8")),
)
BINARY = (
    *(pt.add, pt.sub, pt.mul, pt.true_div, pt.maximum, pt.minimum, pt.pow),
    *(
        lambda u, v: pt.add(u, v, u),
        lambda u, v: pt.mul(u, v, v),
        lambda u, v: pt.switch(u > v, u, v),
        lambda u, v: pt.switch(u < v, v, u),
        lambda u, v: pt.switch(u < 0, v, u),
    ),
)
COMPARE = (pt.ge, pt.gt, pt.le, pt.lt)


class Expression:
    """An expression, drawn together with the values of its variables."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.inputs = {}

    def one_of(self, choices):
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def leaf(self):
        kind = self.draw(st.integers(0, 5))
        if kind == 0:
            return pt.constant(np.full(LENGTH, self.one_of(CONSTANTS)))
        dtype = self.one_of(["float64", "float64", "float32", "int8", "bool"])
        variable = pt.vector(f"x{len(self.inputs)}", shape=(LENGTH,), dtype=dtype)
        drawn = self.rng.choice(SPECIAL, LENGTH) if kind < 3 else self.rng.normal(0, 3, LENGTH)
        if not dtype.startswith("float"):
            drawn = self.rng.integers(0 if dtype == "bool" else -128, 2, LENGTH)
        self.inputs[variable] = drawn.astype(dtype)
        return variable if dtype.startswith("float") else variable * self.one_of([1.0, 0.5])

    def of_depth(self, depth):
        if not depth:
            return self.leaf()
        if self.draw(st.integers(0, 2)):
            return as_vector(self.one_of(UNARY)(self.of_depth(depth - 1)))
        return self.one_of(BINARY)(self.of_depth(depth - 1), self.of_depth(depth - 1))

    def evaluate(self, outputs):
        with np.errstate(all="ignore"):
            function = pytensor.function(
                list(self.inputs), outputs, mode=PYTHON, on_unused_input="ignore"
            )
            return function(*self.inputs.values())


def as_vector(v):
    return v if v.type.ndim else pt.alloc(v, LENGTH)


def seen(x):
    found = range_of(x)
    return {
        "bounded": found.is_bounded,
        "not negative": found.low >= 0,
        "never nan": not found.nan,
        "zeros have no sign": found.plus_zero,
        "unknown": found.nan and found.low == -np.inf and found.high == np.inf,
    }


@pytest.fixture(scope="module")
def kinds():
    """Count what was claimed, so that the tests cannot pass because nothing is known."""
    counts = Counter()
    yield counts
    assert min(counts["bounded"], counts["not negative"], counts["never nan"]) > 100
    assert counts["zeros have no sign"] > 100
    assert counts["unknown"] > 100


@given(data=st.data())
@settings(max_examples=examples(80, 200))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_entry_lies_in_its_range(data, kinds):
    expression = Expression(data.draw)
    parts = [x for x in ancestors([expression.of_depth(3)]) if isinstance(x, TensorVariable)]
    for x, value in zip(parts, expression.evaluate(parts), strict=True):
        if x.type.dtype == "bool" or not value.size:
            continue
        found = range_of(x)
        kinds.update(kind for kind, holds in seen(x).items() if holds)
        is_nan = np.isnan(value)
        assert found.nan or not is_nan.any()
        numbers = value[~is_nan]
        assert (numbers >= found.low).all(), (found, numbers)
        assert (numbers <= found.high).all(), (found, numbers)
        assert not (found.plus_zero and np.signbit(numbers[numbers == 0]).any())


@pytest.fixture(scope="module")
def changes():
    counts = Counter()
    yield counts
    assert min(counts[True], counts[False]) > 5


@given(data=st.data())
@settings(max_examples=examples(120, 150))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_checks_are_as_true_as_before(data, changes):
    expression = Expression(data.draw)
    a, b = expression.of_depth(2), expression.of_depth(2)
    entries = [
        expression.one_of(COMPARE)(a, expression.one_of([0, 1, -1.0, 0.5, b])),
        expression.one_of(COMPARE)(b, expression.one_of([0, 1, a])),
        pt.isinf(a),
        ~pt.isnan(b),
    ]
    checks = [*entries, pt.all([pt.all(entry) for entry in entries]), pt.all([pt.all(entries[3])])]
    fgraph = FunctionGraph(outputs=checks, clone=True, copy_inputs=False)
    comparison = fgraph.outputs[0]
    rewriter = EquilibriumGraphRewriter([local_fold_checks_by_range], max_use_ratio=10)
    rewriter.rewrite(fgraph)
    changes[fgraph.outputs[0] is not comparison] += 1
    pairs = zip(expression.evaluate(checks), expression.evaluate(fgraph.outputs), strict=True)
    for expected, found in pairs:
        np.testing.assert_array_equal(found, expected)
