"""What is proved to be above zero, and what is not."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.rewrites.positive import is_positive

N = 4
ROWS, COLS = np.tril_indices(N, -1)
DIAG = np.arange(N)

low = pt.vector("low", shape=(len(ROWS),))
values = pt.vector("values", shape=(N,))
filled = pt.zeros((N, N))[ROWS, COLS].set(low)
unit = filled[DIAG, DIAG].set(1.0)

POSITIVE = {
    "constant": pt.constant([1.0, 2.0]),
    "row norms": pt.sqrt(pt.sqr(unit).sum(axis=1)),
    "column norms": pt.sqrt(pt.sqr(unit).sum(axis=0)),
    "norm of all": (unit**2).sum(),
    "as pm.math writes it": ((abs(unit) ** 2).sum(axis=1) ** 0.5)[:, None],
    "of squares that were set": pt.zeros((N, N))[ROWS, COLS]
    .set(pt.sqr(low))[DIAG, DIAG]
    .set(1.0)
    .sum(axis=1),
    "negative diagonal": pt.sqr(filled[DIAG, DIAG].set(-1.0)).sum(axis=1),
}

NOT_POSITIVE = {
    "constant with a zero": pt.constant([1.0, 0.0]),
    "variable": low,
    "zeros only": pt.sqr(filled).sum(axis=1),
    "first row without a constant": pt.sqr(filled[DIAG[1:], DIAG[1:]].set(1.0)).sum(axis=1),
    "zero diagonal": pt.sqr(filled[DIAG, DIAG].set(0.0)).sum(axis=1),
    "square that underflows": pt.sqr(filled[DIAG, DIAG].set(1e-200)).sum(axis=1),
    "variable diagonal": pt.sqr(filled[DIAG, DIAG].set(values)).sum(axis=1),
    "sum of entries of either sign": unit.sum(axis=1),
    "diagonal that is overwritten": pt.sqr(unit[DIAG, DIAG].set(values)).sum(axis=1),
    "exp, which underflows": pt.exp(low),
    "cube": (unit**3).sum(axis=1),
}


def proved(x):
    return is_positive(FunctionGraph(outputs=[x], clone=False), x)


@pytest.mark.parametrize("name", POSITIVE)
def test_proves(name):
    assert proved(POSITIVE[name])


@pytest.mark.parametrize("name", NOT_POSITIVE)
def test_does_not_prove(name):
    assert not proved(NOT_POSITIVE[name])


def test_shape_that_became_known():
    """A set keeps its type when the base is replaced by one whose shape is known."""
    base = pt.matrix("base")
    norms = pt.sqr(base[DIAG, DIAG].set(1.0)).sum(axis=1)
    fgraph = FunctionGraph(outputs=[norms], clone=False)
    fgraph.replace(base, pt.zeros((N, N)))
    assert is_positive(fgraph, norms)
