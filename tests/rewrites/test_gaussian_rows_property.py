"""Reducing squares to triangles leaves value and gradient of any sum of them as they are."""

from collections import Counter

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_fastlogp.analysis.known_data import KnownData
from pymc_fastlogp.decisions import collected
from pymc_fastlogp.rewrites.gaussian.gaussian_rows import NAME
from pymc_fastlogp.rewrites.gaussian.square_factors import FactorsOfData
from tests.rewrites.conftest import nodes_of, pregrad, size_of_terms, sum_and_gradient


class LinearModels:
    """Linear models of one sample, drawn together with the values of their parameters."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.n = draw(st.sampled_from([50, 200, 400]))
        n_groups = draw(st.sampled_from([1, 2, 7, 30]))
        # Some groups have no row, and the last ones few.
        group = np.sort(self.rng.choice(n_groups, size=self.n, p=self.shares(n_groups)))
        self.indices = [self.rng.permutation(group), group]
        self.indices += [self.indices[0] // 2, self.rng.integers(0, 3, self.n)]
        offset = draw(st.sampled_from([0.0, 0.0, 0.0, 1e3]))
        scale = draw(st.sampled_from([1.0, 1e-6, 1e6]))
        self.columns = [
            self.rng.normal(size=self.n),
            offset + scale * self.rng.normal(size=self.n),
            self.rng.integers(0, 2, self.n),
            np.full(self.n, 2.5),
            self.rng.normal(size=self.n) * (self.indices[0] == 0),
        ]
        self.inputs = {}

    def shares(self, n_groups):
        shares = self.rng.exponential(size=n_groups) * self.rng.integers(0, 2, size=n_groups)
        return shares / shares.sum() if shares.sum() else np.eye(n_groups)[0]

    def column(self):
        return self.columns[self.draw(st.integers(0, len(self.columns) - 1))]

    def known(self, values):
        """Return values as the model reads them: as constants, or as data that change after the graph is rewritten."""
        return values

    def parameter(self, *shape, size=1.0):
        variable = pt.tensor(f"p{len(self.inputs)}", shape=shape, dtype="float64")
        self.inputs[variable] = np.asarray(size * self.rng.normal(0, 0.5, size=shape))
        return variable

    def index(self):
        return self.indices[self.draw(st.integers(0, len(self.indices) - 1))]

    def coefficient(self, size=1.0):
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return self.parameter(size=size)
        index = self.index()
        gathered = self.parameter(int(index.max()) + 1, size=size)[index]
        return gathered * self.parameter() if kind == 1 else gathered

    def predictor(self):
        terms = [self.coefficient()]
        for _ in range(self.draw(st.integers(0, 2))):
            column = self.column()
            size = 1 / abs(column).max(initial=1e-9)
            terms.append(self.coefficient(size) * self.known(column))
        if self.draw(st.integers(0, 3)) == 0:
            design = np.column_stack([self.columns[0], self.columns[2]])
            terms.append(pt.dot(design, self.parameter(2)))
        return sum(terms)

    def scale(self):
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return pt.exp(self.parameter())
        if kind == 1:
            index = self.index()
            return pt.exp(self.parameter(int(index.max()) + 1))[index]
        return 0.5 + abs(self.columns[0]) if kind == 2 else 1.0

    def square(self):
        y = self.draw(st.sampled_from([0.0, 1e4])) + self.rng.normal(size=self.n)
        square = pt.sqr((self.known(y) - self.predictor()) / self.scale())
        kind = self.draw(st.integers(0, 4))
        if kind == 0:
            return pt.switch(self.columns[0] > 0, square, 0.0)
        return abs(self.columns[0]) * square if kind == 1 else -0.5 * square


class LinearModelsOfData(LinearModels):
    """Linear models in which outcomes and some covariates are shared data."""

    def __init__(self, draw):
        super().__init__(draw)
        self.data = {}

    def known(self, values):
        if self.data and self.draw(st.booleans()):
            return values
        shared = pytensor.shared(np.asarray(values, dtype="float64"))
        # Other data of the same kind.
        self.data[shared] = self.rng.permutation(values) * self.draw(st.sampled_from([1.0, 1.5]))
        return KnownData(np.shape(values))(shared)


@st.composite
def sums(draw):
    models = LinearModels(draw)
    terms = models.square()
    if draw(st.booleans()):
        terms = terms - pt.log(models.scale())
    return pt.broadcast_to(terms, (models.n,)).sum(), models.inputs


@st.composite
def sums_of_data(draw):
    models = LinearModelsOfData(draw)
    terms = pt.broadcast_to(models.square(), (models.n,))
    return terms.sum(), models.inputs, models.data


def assert_same(out, on, inputs):
    """Assert that a rewritten sum has the value and the gradient of the sum."""
    off = sum_and_gradient(pregrad(out, on=False), inputs)
    size = size_of_terms(out, inputs)
    value, *gradient = sum_and_gradient(on, inputs)
    assert abs(value - off[0]) <= 1e-12 * size
    for expected, found in zip(off[1:], gradient, strict=True):
        largest = max(float(np.max(np.abs(expected), initial=1.0)), size)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * largest)


def check_any_sum(n):
    counts = Counter()

    @settings(max_examples=n)
    @given(sums())
    def check(case):
        out, inputs = case
        with collected() as decisions:
            on = pregrad(out, on=True)
        counts[any(d.fired for d in decisions if d.rule == NAME)] += 1
        assert_same(out, on, inputs)

    check()
    return counts


def check_any_sum_of_data(n):
    counts = Counter()

    @settings(max_examples=n)
    @given(sums_of_data())
    def check(case):
        out, inputs, data = case
        on = pregrad(out, on=True)
        counts[bool(nodes_of(on, FactorsOfData))] += 1
        assert_same(out, on, inputs)
        for shared, values in data.items():
            shared.set_value(values)
        assert_same(out, on, inputs)

    check()
    return counts


def test_same_for_any_sum():
    counts = check_any_sum(20)
    assert counts[True] >= 10
    assert counts[False] >= 1


def test_same_for_any_sum_of_data_that_change_afterwards():
    counts = check_any_sum_of_data(20)
    assert counts[True] >= 8
    assert counts[False] >= 1


@pytest.mark.slow
def test_same_for_very_many_sums_of_data():
    assert check_any_sum_of_data(2000)[True] >= 700


@pytest.mark.slow
def test_same_for_very_many_sums():
    assert check_any_sum(2000)[True] >= 700
