"""Pickled models and compiled functions work in another process, or cannot be pickled, as without the plugin."""

import copy
import pickle

import cloudpickle
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_fastlogp
from pymc_fastlogp import decisions, disabled
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.faults.compare import PYTHON, logp_and_gradient
from tests.faults.models import grouped


@pytest.fixture(scope="module")
def model():
    return grouped()


@pytest.fixture(scope="module")
def expected(model):
    with disabled():
        return model.compile_logp(mode=PYTHON)(model.initial_point())


@pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_compiled_function_survives_pickling(pickler, model, expected):
    function = model.compile_logp(mode="NUMBA")
    assert any(isinstance(node.op, FusedKernel) for node in function.f.maker.fgraph.apply_nodes)
    content = pickler.dumps(function)
    del function
    np.testing.assert_allclose(pickle.loads(content)(model.initial_point()), expected, rtol=1e-12)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_logp_dlogp_function_survives_pickling(pickler, model):
    function = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
    function.set_extra_values({})
    x = np.linspace(-0.5, 0.5, 7)
    for found, value in zip(pickle.loads(pickler.dumps(function))(x), function(x), strict=True):
        np.testing.assert_array_equal(found, value)


def test_model_survives_pickling(model):
    """PyMC's models can be pickled by cloudpickle alone."""
    copied = cloudpickle.loads(cloudpickle.dumps(model))
    found, value = (logp_and_gradient(each) for each in (copied, model))
    assert found[0] == value[0]
    np.testing.assert_array_equal(found[1], value[1])


@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_a_function_without_kernels_needs_no_plugin(linker):
    """Rules that refuse leave plain text on variables."""
    x = pt.dvector("x")
    with decisions.collected() as taken:
        function = pytensor.function([x], pt.exp(x).sum(), mode=Mode(linker, "fast_run"))
    assert not all(decision.fired for decision in taken)
    assert b"pymc_fastlogp." not in pickle.dumps(function)


def test_compiled_model_is_not_picklable_as_without_the_plugin(model):
    compiled = pymc_fastlogp.compile_pymc_model(model)
    for dumps in (pickle.dumps, cloudpickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="compile the model again"):
            dumps(compiled)
