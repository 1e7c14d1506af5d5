"""Compaction leaves value and gradient of any sum over rows as they are."""

from collections import Counter

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.rows.compact.compact_rows import NAME
from tests.rewrites.conftest import pregrad, size_of_terms, sum_and_gradient

UNARY = (pt.exp, pt.sin, pt.sqr, pt.softplus, pt.neg, lambda v: pt.gammaln(2 + pt.sqr(v)))
BINARY = (pt.add, pt.sub, pt.mul, lambda u, v: u / (1 + pt.sqr(v)))


class Rows:
    """Expressions over rows, drawn together with the values of their parameters."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.n = draw(st.sampled_from([40, 150, 300]))
        n_levels = draw(st.integers(1, 40))
        # Some levels have no row, some rows a level of their own.
        self.index = self.rng.choice(n_levels, size=self.n) * draw(st.sampled_from([1, 2]))
        self.nested = self.index // 3
        self.columns = [
            self.rng.integers(0, 3, self.n).astype(float),
            self.rng.poisson(1.0, self.n),
            self.rng.normal(size=self.n),
            np.full(self.n, 1e6) + self.rng.integers(0, 2, self.n),
            self.rng.integers(0, 2, self.n).astype("int8"),
        ]
        self.inputs = {}

    def parameter(self, *shape):
        variable = pt.tensor(f"p{len(self.inputs)}", shape=shape, dtype="float64")
        self.inputs[variable] = np.asarray(self.rng.normal(0, 0.5, size=shape))
        return variable

    def leaf(self):
        kind = self.draw(st.integers(0, 5))
        if kind <= 1:
            index = self.index if kind else self.nested
            return self.parameter(int(index.max()) + 1)[index]
        if kind == 2:
            return self.parameter()
        if kind == 3 and self.draw(st.integers(0, 5)) == 0:
            return self.parameter(self.n)
        return pt.constant(self.column())

    def column(self):
        return self.columns[self.draw(st.integers(0, len(self.columns) - 1))]

    def expression(self, depth):
        kind = self.draw(st.integers(0, 6)) if depth else 0
        if kind == 0:
            return self.leaf()
        u = self.expression(depth - 1)
        if kind <= 2:
            u = pt.clip(u, -20, 20)
            return self.draw(st.sampled_from(UNARY))(u)
        v = self.expression(depth - 1)
        if kind <= 5:
            return self.draw(st.sampled_from(BINARY))(u, v)
        known = pt.constant(self.column() > 0)
        is_mixed = self.draw(st.booleans())
        return pt.switch(known & (self.leaf() > 0) if is_mixed else known, u, v)


@st.composite
def sums(draw):
    rows = Rows(draw)
    terms = [rows.expression(3) for _ in range(draw(st.integers(1, 3)))]
    x = pt.broadcast_to(sum(terms), (rows.n,))
    return x.astype("float64").sum(), rows.inputs


def check_any_sum(n):
    counts = Counter()

    @settings(max_examples=n)
    @given(sums())
    def check(case):
        out, inputs = case
        with collected() as decisions:
            on = pregrad(out, on=True)
        counts[any(d.fired for d in decisions if d.rule == NAME)] += 1
        scale = size_of_terms(out, inputs)
        off = sum_and_gradient(pregrad(out, on=False), inputs)
        for expected, found in zip(off, sum_and_gradient(on, inputs), strict=True):
            size = max(scale, float(np.max(np.abs(expected), initial=1.0)))
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * size)

    check()
    return counts


def test_same_for_any_sum():
    counts = check_any_sum(30)
    assert counts[True] >= 5
    assert counts[False] >= 5


@pytest.mark.slow
def test_same_for_very_many_sums():
    assert check_any_sum(2000)[True] >= 300
