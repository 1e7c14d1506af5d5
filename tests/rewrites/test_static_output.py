"""A type gains the static shape of its inputs."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

from tests.rewrites.conftest import (
    PYTHON,
    assert_left_alone,
    assert_same_value_and_gradient,
    inputs_of,
    pregrad,
)

RULE = "fastlogp_static_output"
QUIETLY = {"mode": PYTHON, "on_unused_input": "ignore"}
N = 3

s = pt.scalar("s")
full = pt.matrix("full", shape=(N, N))
unknown = pt.vector("unknown")
VALUES = {
    s: np.array(0.7),
    full: np.linspace(-1.0, 2.0, N * N).reshape(N, N),
    unknown: np.linspace(0.5, 1.5, N),
}

# How many there are is a computation until the shape of the matrix has become a constant.
counted = pt.arange(full.shape[0]) * s
shuffled = 2 * pt.arange(full.shape[0]) % N
FIRES = {
    "Elemwise": (pt.exp(counted), (N,)),
    "DimShuffle": (pt.exp(counted)[:, None], (N, 1)),
    "CAReduce": ((counted[:, None] + unknown).sum(axis=1), (N,)),
    "set": (pt.exp(counted)[1:].set(2.0), (N,)),
    "set of entries": (pt.exp(counted)[np.array([0, 2])].set(2.0), (N,)),
    "gather": (pt.exp(unknown[shuffled]), (N,)),
    "gather of rows": (pt.exp(full[shuffled]), (N, N)),
    "diagonal": (pt.diagonal(pt.exp(counted[:, None] * counted)), (N,)),
}


@pytest.mark.parametrize("name", FIRES)
def test_shape_becomes_static(name):
    out, shape = FIRES[name]
    assert pregrad(out, on=True).type.shape == shape
    assert pregrad(out, on=True, exclude=[RULE]).type.shape != shape


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    out, _ = FIRES[name]
    inputs = inputs_of(out, VALUES)
    sides = (pytensor.function([*inputs], pregrad(out, on=on), **QUIETLY) for on in (False, True))
    off, on = (side(*inputs.values()) for side in sides)
    np.testing.assert_array_equal(on, off)


def test_unknown_shapes_are_left_alone():
    assert_left_alone(pt.exp(unknown)[1:].set(2.0).sum(), RULE)


def test_mismatched_lengths_raise_at_the_call():
    """PyMC builds an ICAR from a matrix whose rows do not fit, and PyTensor raises at the call."""
    W = (np.abs(np.subtract.outer(range(4), range(4))) == 1).astype(float)
    x = pt.matrix("x", shape=(3, 4))
    mode = Mode("py", "fast_run").excluding("fusion")
    function = pytensor.function([x], pm.logp(pm.ICAR.dist(W=W), x), mode=mode)
    with pytest.raises(ValueError, match="could not be broadcast"):
        function(np.zeros((3, 4)))


def test_invalid_squeeze_raises_at_the_call():
    out = pt.pad(counted[:, None] * counted, 1).squeeze(0)
    for on in (False, True):
        function = pytensor.function([full, s], pregrad(out, on=on), **QUIETLY)
        with pytest.raises(ValueError, match="reshape"):
            function(VALUES[full], VALUES[s])


def test_index_of_several_axes_is_kept():
    assert_left_alone(full[:, counted.astype(int)].sum(), RULE)


def test_gradient():
    assert_same_value_and_gradient(pt.log(pt.exp(counted) + full).sum(), VALUES, rtol=1e-15)


def test_every_shape_of_lkj_corr_with_two_variables_is_known():
    with pm.Model() as model:
        pm.LKJCorr("L", n=2, eta=2.0)
    logp = model.logp()
    for found, known in ((pregrad(logp, on=False), False), (pregrad(logp, on=True), True)):
        shapes = [x.type.shape for x in ancestors([found]) if hasattr(x.type, "shape")]
        assert all(None not in shape for shape in shapes) == known
