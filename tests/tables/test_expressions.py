"""Elementwise expressions of columns."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_fastlogp
from pymc_fastlogp.tables.columns import columns_in
from pymc_fastlogp.tables.expressions import expressions_in
from tests.conftest import PYTHON

pytestmark = pytest.mark.usefixtures("engines")

X = np.array([0.5, -2.0, 3.25])


@pytest.fixture
def table():
    return pymc_fastlogp.table(
        pd.DataFrame(
            {"x": X, "k": [0, 1, 1], "year": [2020, 2019, 2020], "is_late": [True, False, True]}
        )
    )


A = pt.vector("a")

# From a table to a graph, with the texts of the expressions that the graph reads.
TEXTS = {
    "columns": (lambda t: A[t["k"]] + t["x"], {"k", "x"}),
    "arithmetic": (lambda t: A[0] * (t["x"] / 10 - 2 * t["k"]), {"(x / 10) - (2 * k)"}),
    "functions": (lambda t: A[0] * pt.exp(-t["x"]), {"exp(neg(x))"}),
    "comparison": (lambda t: A[0] * (t["x"] > 3), {"x > 3"}),
    "largest": (lambda t: A[0] * pt.log(t["k"] + 1) + t["k"], {"log(k + 1)", "k"}),
    "codes": (lambda t: A[t.codes("year")], {"codes(year)"}),
    "with_a_parameter": (lambda t: A[0] + t["x"] * 2, {"x * 2"}),
    "stacked": (lambda t: pt.stack([t["x"] ** 2, t["k"]], axis=1) @ A[:2], {"x ** 2", "k"}),
    "twice": (lambda t: A[0] * (t["x"] + 1) + A[1] ** (t["x"] + 1), {"x + 1"}),
    "length": (lambda t: A[0] * pt.ones(t["k"].shape) * t["x"], {"x"}),
}


@pytest.mark.parametrize("case", TEXTS)
def test_largest_expressions_are_found(case, table):
    graph, texts = TEXTS[case]
    assert {x.text for x in expressions_in([graph(table)]).values()} == texts


@pytest.mark.parametrize("case", TEXTS)
def test_values_are_those_of_the_graph(case, table):
    graph, _ = TEXTS[case]
    for x, expression in expressions_in([graph(table)]).items():
        columns = {
            column: placeholder.get_value() for placeholder, column in columns_in([x]).items()
        }
        values = expression.values(columns)
        np.testing.assert_array_equal(values, x.eval(mode=PYTHON))
        assert values.dtype == expression.dtype == x.type.dtype


def test_expressions_of_another_graph_are_equal(table):
    first, second = (expressions_in([A[0] * (table["x"] + 1)]).values() for _ in range(2))
    assert [*first] == [*second]
    assert [*first] != [*expressions_in([A[0] * (table["x"] + 2)]).values()]


def test_random_variables_and_parameters_are_no_expressions(table):
    rv = pm.Normal.dist(pm.Normal.dist() * table["x"], pt.abs(table["k"]) + 1)
    assert {x.text for x in expressions_in([rv]).values()} == {"x", "Abs(k) + 1"}
