"""Degree of graphs as polynomials."""

from math import inf

import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.basic import logp

from pymc_fastlogp.analysis.polynomial_degree import polynomial_degree

X, Y, A = pt.vectors("x", "y", "a")
MATRIX = pt.matrix("matrix")
INDEX = pt.lvector("index")
B = pt.scalar("b")

DEGREES = {
    "constant": (A + 1, 0),
    "variable": (X, 1),
    "affine": (A * X - Y / B + 2, 1),
    "opposite": (-X, 1),
    "square": (pt.sqr(X - Y), 2),
    "power": ((X - A) ** 2, 2),
    "product": (X * (Y + A), 2),
    "cubic": (X * X * Y, 3),
    "power_of_a_power": (pt.sqr(pt.sqr(X)), 4),
    "other_power": (X**1.5, inf),
    "unknown_power": (X**B, inf),
    "power_of_a_constant": (B**X, inf),
    "denominator": (A / X, inf),
    "denominator_of_coefficients": (X / pt.exp(A), 1),
    "function": (pt.exp(X), inf),
    "function_of_coefficients": (pt.exp(A) * X, 1),
    "absolute_value": (pt.abs(X), inf),
    "rounded": (pt.round(X), inf),
    "integers": (X.astype("int64"), inf),
    "precision": (X.astype("float32"), 1),
    "branch": (pt.switch(A > 0, X, Y**2), 2),
    "condition": (pt.switch(X > 0, A, B), inf),
    "sum": (X.sum(), 1),
    "mean": (X.mean(), 1),
    "matrix_product": (MATRIX @ X, 1),
    "product_of_both": (X @ Y, 2),
    "stacked": (pt.stack([X, Y**2], axis=1), 2),
    "entries": (X[INDEX] + X[2:], 1),
    "index": (A[X.astype("int64")], inf),
    "length": (A * X.shape[0], 0),
    "repeated": (pt.full((3,), X.sum()), 1),
    "normal": (logp(pm.Normal.dist(A + X * B, pt.exp(A)), Y), 2),
    "normal_of_another_scale": (logp(pm.Normal.dist(A, pt.exp(X)), Y), inf),
    "student_t": (logp(pm.StudentT.dist(3, mu=A, sigma=1), X), inf),
    "logit": (logp(pm.Bernoulli.dist(logit_p=A + X), INDEX), inf),
}


@pytest.mark.parametrize("case", DEGREES)
def test_degree(case):
    graph, degree = DEGREES[case]
    assert polynomial_degree(graph, [X, Y]) == degree
