"""Nested gathers with constant indices become one gather."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.tensor.subtensor import AdvancedSubtensor

from tests.rewrites.conftest import (
    SIDES,
    assert_left_alone,
    assert_rewritten,
    assert_same_value_and_gradient,
    nodes_of,
    pregrad,
)

RULE = "fastlogp_gather_of_gather"
COARSE, FINE, ROWS = 3, 6, 9
RNG = np.random.default_rng(0)
OUTER, INNER = RNG.integers(0, COARSE, FINE), RNG.integers(0, FINE, ROWS)
GRID = RNG.integers(0, FINE, (4, 5))
SECOND = RNG.integers(0, 2, FINE + 1)

x = pt.vector("x", shape=(COARSE,))
coarser = pt.vector("coarser", shape=(2,))
table = pt.matrix("table", shape=(COARSE, 2))
wide = pt.matrix("wide", shape=(2, COARSE))
whole = pt.lvector("whole", shape=(COARSE,))
unknown = pt.vector("unknown")
index = pt.lvector("index", shape=(ROWS,))
long_outer = RNG.integers(0, COARSE, FINE + 1)

VALUES = {
    x: np.array([0.5, -1.0, 2.0]),
    coarser: np.array([0.5, -1.0]),
    table: np.linspace(-1.0, 2.0, COARSE * 2).reshape(COARSE, 2),
    wide: np.linspace(-1.0, 2.0, COARSE * 2).reshape(2, COARSE),
    whole: np.array([4, -1, 2]),
}

FIRES = {
    "two levels": (x[OUTER][INNER], x[OUTER[INNER]]),
    "three levels": (coarser[[0, 1, 1]][OUTER][INNER], coarser[np.array([0, 1, 1])[OUTER[INNER]]]),
    "rows of a table": (table[OUTER][INNER], table[OUTER[INNER]]),
    "columns of a table": (wide[:, OUTER][:, INNER], wide[:, OUTER[INNER]]),
    "two indices": (table[long_outer, SECOND][INNER], table[long_outer[INNER], SECOND[INNER]]),
    "a grid of rows": (x[OUTER][GRID], x[OUTER[GRID]]),
    "negative": (x[OUTER - COARSE][INNER - FINE], x[OUTER[INNER] - COARSE]),
    "vector that is needed too": (
        x[OUTER].sum() + x[OUTER][INNER],
        x[OUTER].sum() + x[OUTER[INNER]],
    ),
    "integers": (whole[OUTER][INNER], whole[OUTER[INNER]]),
}

REFUSES = {
    "a selection": pt.exp(x)[[0, 1]][INNER % 2],
    "as many entries as the table": x[[2, 0, 1]][INNER % 3],
    "a table of unknown length": unknown[OUTER][INNER],
    "an index that is computed": x[OUTER][index],
    "a first index that is computed": x[index][INNER],
    "a mask": x[OUTER][np.arange(FINE) % 2 == 0],
    "another axis": table[OUTER][:, [0, 1, 1]],
    "a grid first": x[GRID % COARSE][[0, 1, 1]],
    "out of range": x[OUTER][INNER + FINE],
    "a first index out of range": x[OUTER + COARSE][INNER],
    "a function in between": pt.exp(x[OUTER])[INNER],
}


@pytest.mark.parametrize("name", FIRES)
def test_graph(name):
    assert_rewritten(*FIRES[name], RULE)


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    assert_same_value_and_gradient(FIRES[name][0], VALUES, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert_left_alone(REFUSES[name], RULE)


def test_no_rows():
    out = x[OUTER][np.zeros(0, dtype=int)]
    assert pytensor.function([x], out, mode=SIDES[True])(VALUES[x]).shape == (0,)


def test_values_that_are_not_finite():
    values = {x: np.array([np.nan, np.inf, -np.inf])}
    out = x[OUTER][INNER]
    off, on = (pregrad(out, on=on).eval(values, mode=SIDES[False]) for on in (False, True))
    np.testing.assert_array_equal(on, off)


def test_rows_of_nested_groups_read_the_coarse_effects():
    """Also where both indices are data, once the model is frozen."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=COARSE)
        by_site = a[pm.Data("coarse", OUTER)][pm.Data("fine", INNER)]
        pm.Poisson("y", pt.exp(by_site + np.linspace(-1, 1, ROWS)), observed=np.arange(ROWS))
    for frozen in (False, True):
        used = freeze_dims_and_data(model) if frozen else model
        gathers = nodes_of(pregrad(used.logp(), on=True), AdvancedSubtensor)
        nested = [n for n in gathers if isinstance(n.inputs[0].owner_op, AdvancedSubtensor)]
        assert bool(nested) != frozen
