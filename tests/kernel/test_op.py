"""The node: equality, pickles, gradients, shapes, other backends, and what ``dprint`` shows."""

import pickle
from copy import copy, deepcopy

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer

from pymc_fastlogp.analysis.index_facts import IndexFacts
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.conftest import PYTHON

X = np.array([0.5, 1.5, -0.5])
INDEX = np.array([0, 2, 2, 1])


def gathered(x, index):
    """Return two outputs of different shapes."""
    return [pt.exp(x)[index] * 2, (x**2).sum()]


def kernel(facts=(None, None)):
    x, index = pt.dvector("x"), pt.lvector("index")
    return FusedKernel(FrozenFunctionGraph.from_io([x, index], gathered(x, index)), facts)


@pytest.fixture
def inputs():
    return pt.dvector("x"), pt.lvector("index")


def test_perform_runs_the_inner_graph(inputs):
    run = pytensor.function(inputs, kernel()(*inputs), mode=PYTHON)
    expected = pytensor.function(inputs, gathered(*inputs), mode=PYTHON)
    for found, value in zip(run(X, INDEX), expected(X, INDEX), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-15)


def test_equal_by_graph_and_facts():
    facts = (None, IndexFacts(0, 2))
    assert kernel() == kernel()
    assert hash(kernel()) == hash(kernel())
    assert kernel(facts) == kernel(facts)
    assert kernel(facts) != kernel()


def test_equal_nodes_merge(inputs):
    fgraph = FunctionGraph(inputs, [kernel()(*inputs)[1], kernel()(*inputs)[1]], clone=False)
    MergeOptimizer().rewrite(fgraph)
    assert len(fgraph.apply_nodes) == 1


@pytest.mark.parametrize(
    "copied", [copy, deepcopy, lambda op: op.clone(), lambda op: pickle.loads(pickle.dumps(op))]
)
def test_copies_are_equal_and_work(copied, inputs):
    op = kernel((None, IndexFacts(0, 2, is_unique=False)))
    op.build_program(), op.fn  # built on demand, and not pickled
    other = copied(op)
    assert other == op
    assert other.build_program().outputs[0].dtype == "float64"
    assert other(*inputs)[1].eval(dict(zip(inputs, (X, INDEX))), mode=PYTHON) == (X**2).sum()


def test_the_gradient_is_that_of_the_inner_graph(inputs):
    x = inputs[0]
    costs = [sum(out.sum() for out in outputs(*inputs)) for outputs in (kernel(), gathered)]
    gradients = [pytensor.grad(cost, x) for cost in costs]
    found, expected = pytensor.function(inputs, gradients, mode=PYTHON)(X, INDEX)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_shapes_need_no_evaluation(inputs):
    [shape, scalar_shape] = kernel().infer_shape(
        kernel().make_node(*inputs), [(pt.lscalar("n"),), (pt.lscalar("m"),)]
    )
    assert [s.name for s in shape] == ["m"]
    assert len(scalar_shape) == 0


def test_inputs_are_checked(inputs):
    x, index = inputs
    with pytest.raises(TypeError):
        kernel()(pt.dmatrix(), index)
    with pytest.raises(ValueError, match=r"Expected 2 input\(s\)"):
        kernel()(x)
    with pytest.raises(ValueError, match="1 facts for 2 inputs"):
        kernel((None,))


def test_outputs_have_the_static_shapes_of_the_inner_graph():
    x = pt.dvector("x", shape=(3,))
    op = FusedKernel(FrozenFunctionGraph.from_io([x], [pt.exp(x) + 1]), (None,))
    assert op(x).type.shape == (3,)


def test_dprint_prints_the_program(inputs):
    text = pytensor.dprint(kernel()(*inputs), print_op_info=True, file="str")
    assert "FusedKernel{" in text
    assert "input x0: float64[len(x0, 0)]" in text
    assert text.count("output y1: float64[]") == 1


def test_jax_computes_the_inner_graph(inputs):
    # The index is constant, else JAX does not know the shape.
    x, _ = inputs
    run = pytensor.function([x], kernel()(x, INDEX), mode="JAX")
    np.testing.assert_allclose(run(X)[0], np.exp(X)[INDEX] * 2, rtol=1e-14)
