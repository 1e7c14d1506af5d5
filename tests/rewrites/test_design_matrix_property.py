"""A product with any constant matrix, split or not, has the value and the gradient that NumPy computes."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_fastlogp.decisions import collected
from tests.rewrites.conftest import PYTHON, pregrad

NAMES = {"fastlogp_sparse_design", "fastlogp_sparse_design_of_squares"}
# Rounding of a sum of some hundred terms, relative to the sum of absolute terms; and of subnormal numbers.
RTOL, ATOL = 1e-13, 1e-320
SMALL = 2.0**-1000


class Designs:
    """Columns of one sample: factors, interactions, covariates, bases, copies and entries out of place."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.n = draw(st.sampled_from([150, 500, 1100, 2500]))

    def factor(self):
        n_levels = self.draw(st.integers(3, 20))
        shares = self.rng.dirichlet(np.ones(n_levels))
        level = self.rng.choice(n_levels, size=self.n, p=shares)
        if self.draw(st.booleans()):
            level.sort()
        first = self.draw(st.integers(0, 1))
        return (level[:, None] == np.arange(first, n_levels)) * 1.0

    def interaction(self):
        first, second = self.factor(), self.factor()
        columns = (first[:, :, None] * second[:, None, :]).reshape(self.n, -1)
        return np.column_stack([first, columns]) if self.draw(st.booleans()) else columns

    def contrasts(self):
        table = self.rng.normal(size=(self.draw(st.integers(3, 20)), self.draw(st.integers(1, 15))))
        return table[self.rng.integers(0, len(table), self.n)]

    def slopes(self):
        return self.factor() * self.rng.normal(size=(self.n, 1))

    def centered(self):
        factor = self.factor()
        return factor - factor.mean(axis=0)

    def constant(self):
        return np.full((self.n, 1), self.draw(st.sampled_from([0.0, 1.0, -2.5])))

    def covariates(self):
        return self.rng.normal(size=(self.n, self.draw(st.integers(1, 4))))

    def spline(self):
        knots = np.arange(self.draw(st.integers(4, 15)))
        place = self.rng.uniform(0, len(knots), size=self.n)
        return np.clip(1 - np.abs(place[:, None] - knots) / 1.5, 0, None)

    def scattered(self):
        x = np.zeros((self.n, self.draw(st.integers(4, 10))))
        row = self.rng.integers(0, self.n, size=40)
        x[row, self.rng.integers(0, x.shape[1], size=40)] = self.rng.normal(size=40)
        return x

    def columns(self):
        kinds = [self.factor, self.interaction, self.slopes, self.centered, self.constant]
        kinds += [self.covariates, self.spline, self.scattered, self.contrasts]
        of_columns = self.draw(st.lists(st.sampled_from(kinds), max_size=3))
        return np.column_stack([self.factor(), *(kind() for kind in of_columns)])

    def matrix(self):
        x = self.columns()
        if self.draw(st.booleans()):
            copied = self.rng.integers(0, x.shape[1], size=3)
            x = np.column_stack([x, x[:, copied] * self.draw(st.sampled_from([1.0, -0.3, 1e150]))])
        if self.draw(st.booleans()):
            x = x[:, self.rng.permutation(x.shape[1])]
        change = self.draw(st.sampled_from([None, None, "negative", "tiny", "infinite", "nan"]))
        at = self.rng.integers(0, self.n), self.rng.integers(0, x.shape[1])
        if change == "infinite":
            x[at] = -np.inf
        elif change == "nan":
            x[at] = np.nan
        elif change == "tiny":
            x[:, at[1]] *= SMALL
        elif change == "negative":
            x = -x
        return self.in_memory(x)

    def in_memory(self, x):
        """Return the matrix in another dtype, if it is one of whole numbers, and in another layout."""
        is_whole = np.isfinite(x).all() and (x == np.round(x)).all() and abs(x).max() < 100
        dtypes = ["float64", "float32"] + (["int8", "int64"] if is_whole else [])
        dtypes += ["bool", "uint8"] if is_whole and set(np.unique(x)) <= {0, 1} else []
        with np.errstate(over="ignore"):
            x = x.astype(self.draw(st.sampled_from(dtypes)))
        layout = self.draw(st.sampled_from(["C", "F", "transposed", "sliced", "backwards"]))
        if layout == "sliced":
            return np.repeat(x, 2, axis=0)[::2]
        if layout == "backwards":
            return x[::-1].copy()[::-1]
        return np.ascontiguousarray(x.T).T if layout == "transposed" else np.array(x, order=layout)


class Product(NamedTuple):
    """A product with a matrix, spelled in one of the ways, and its parts.

    Attributes
    ----------
    out, b : TensorVariable
        The product, and the coefficients.
    x : numpy.ndarray
        The matrix.
    group : numpy.ndarray, optional
        The group of each row, if coefficients differ between groups.
    rng : numpy.random.Generator
        Source of values.
    """

    out: pt.TensorVariable
    b: pt.TensorVariable
    x: np.ndarray
    group: np.ndarray | None
    rng: np.random.Generator

    def value(self, x, b):
        """Return the product as NumPy computes it."""
        return x @ b if self.group is None else np.einsum("ij,ij->i", x, b[self.group])

    def gradient(self, x, weights):
        """Return the gradient of a weighted sum as NumPy computes it."""
        if self.group is None:
            return x.T @ weights
        of_groups = [x[self.group == g].T @ weights[self.group == g] for g in range(3)]
        return np.stack(of_groups)


@st.composite
def products(draw):
    designs = Designs(draw)
    x, rng = designs.matrix(), designs.rng
    n, p = x.shape
    spelling = draw(st.sampled_from(["dot", "from the left", "matrix", "groups"]))
    if spelling == "groups":
        b, group = pt.matrix("b", shape=(3, p)), rng.integers(0, 3, n)
        return Product((x.astype("float64") * b[group]).sum(axis=1), b, x, group, rng)
    b = pt.matrix("b", shape=(p, 2)) if spelling == "matrix" else pt.vector("b", shape=(p,))
    out = b @ pt.constant(x.T) if spelling == "from the left" else pt.dot(x, b)
    return Product(out, b, x, None, rng)


def check_any_design(n):
    counts = Counter()

    @settings(max_examples=n)
    @given(products())
    def check(product):
        out, b, x = product.out, product.b, product.x.astype("float64")
        with collected() as decisions:
            on = pregrad(out, on=True)
        counts[any(d.fired for d in decisions if d.rule in NAMES)] += 1
        value, weights = (
            product.rng.normal(size=b.type.shape),
            product.rng.normal(size=on.type.shape),
        )
        gradient = pytensor.grad((on * weights).sum(), b, disconnected_inputs="ignore")
        with np.errstate(all="ignore"):
            found = pytensor.function([b], [on, gradient], mode=PYTHON)(value)
            expected = product.value(x, value), product.gradient(x, weights)
            # The largest entry of a column bounds its baseline, too.
            largest = np.where(np.isfinite(x), abs(x), 0).max(axis=0)
            largest = np.broadcast_to(largest, x.shape)
            size = product.value(largest, abs(value)), product.gradient(largest, abs(weights))
        for one, other, terms in zip(found, expected, size, strict=True):
            is_finite = np.isfinite(other)
            assert not np.isfinite(one[~is_finite]).any()
            error = abs(one[is_finite] - other[is_finite])
            assert (error <= RTOL * terms[is_finite] + ATOL).all()

    check()
    return counts


def test_same_for_any_design():
    counts = check_any_design(40)
    assert counts[True] >= 5
    assert counts[False] >= 1


@pytest.mark.slow
def test_same_for_very_many_designs():
    assert check_any_design(1500)[True] >= 400
