"""Helpers of the tests of rewrites: rewrite as PyMC does before a gradient, evaluate, compare."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.printing import debugprint
from pytensor.scalar import Add, Cast, Mul, Neg, Sub, Switch, TrueDiv
from pytensor.tensor.basic import Alloc, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_fastlogp.analysis.index_facts import FAR
from pymc_fastlogp.config import switched
from pymc_fastlogp.rewrites.rows.order import scatter_order
from tests.conftest import PYTHON
from tests.fuzz.evaluation import by_kernels

# By whether the plugin is on. Kernels run as machine code and all other Ops in NumPy, so that nothing waits for Numba.
SIDES = {True: by_kernels(), False: PYTHON}


@pytest.fixture(autouse=True)
def wide_vectors(monkeypatch):
    """Choose orders of rows as on a CPU with vectors of 512 bits."""
    monkeypatch.setattr(scatter_order, "n_lanes", lambda: FAR)


def pregrad(out, *, on, exclude=()):
    """Rewrite a graph as PyMC and nutpie do before they take its gradient."""
    [out] = clone_replace([out])  # rewrite_graph works on the very nodes it is given
    with switched(on):
        return rewrite_graph(out, include=["canonicalize", "stabilize"], exclude=exclude)


def with_gradients(out, inputs, *, on, mode=None):
    """Compile a value and its gradients as PyMC and nutpie do; upstream's graph is not rewritten after the gradient."""
    with switched(on):
        value = pregrad(out, on=on)
        gradients = pytensor.grad(value, inputs, disconnected_inputs="ignore")
        outputs = [value, *gradients]
        return pytensor.function(inputs, outputs, mode=mode or SIDES[on], on_unused_input="ignore")


def ops_of(out):
    """Return the classes of the Ops of a graph, inputs first."""
    fgraph = FunctionGraph(outputs=[out], clone=True)
    return [type(node.op) for node in fgraph.toposort()]


def core_op(x):
    """Return the Op of a variable, for a batch the Op that is mapped over it."""
    return x.owner_op.core_op if isinstance(x.owner_op, Blockwise) else x.owner_op


def nodes_of(out, op):
    """Return the nodes of a class of Ops in a graph, batched or not."""
    return {x.owner for x in ancestors([out]) if isinstance(core_op(x), op)}


def sketch(x):
    """Spell a graph out, without the dimensions that only align operands for broadcasting."""
    if isinstance(x, Constant):
        values = np.asarray(x.data, dtype=float)
        is_fill = values.size and np.array_equal(
            values, np.full_like(values, values.flat[0]), equal_nan=True
        )
        return str(values.flat[0] if is_fill else values.tolist())
    if x.owner is None:
        return x.name
    if isinstance(x.owner.op, DimShuffle | ScalarFromTensor | TensorFromScalar):
        return sketch(x.owner.inputs[0])
    inputs = [sketch(i) for i in x.owner.inputs]
    if isinstance(x.owner.op, Alloc):
        return f"alloc({inputs[0]})"
    if isinstance(x.owner.op, Elemwise) and isinstance(x.owner.op.scalar_op, Add | Mul):
        inputs = sorted(inputs)
    return f"{x.owner.op}({', '.join(inputs)})"


def value_and_gradient(out, inputs, *, on):
    """Return the value, and the gradient by the float inputs of a weighted sum of it."""
    rewritten = pregrad(out, on=on)
    weights = np.linspace(0.5, 2.0, int(np.prod(rewritten.type.shape))).reshape(
        rewritten.type.shape
    )
    wrt = [x for x in inputs if x.type.dtype.startswith("float")]
    grads = pytensor.grad((rewritten * weights).sum(), wrt, disconnected_inputs="ignore")
    function = pytensor.function(
        list(inputs), [rewritten, *grads], mode=PYTHON, on_unused_input="ignore"
    )
    with np.errstate(all="ignore"):
        return function(*inputs.values())


def sum_and_gradient(total, inputs):
    """Return a sum, and its gradient by all inputs."""
    grads = pytensor.grad(total, [*inputs], disconnected_inputs="ignore")
    function = pytensor.function([*inputs], [total, *grads], mode=PYTHON, on_unused_input="ignore")
    with np.errstate(all="ignore"):
        return function(*inputs.values())


def size_of_terms(total, inputs):
    """Return what a sum would add up to if nothing in it cancelled: the scale of its round-off."""
    size = pregrad(magnitude(total.owner.inputs[0]).sum(), on=False)
    return float(size.eval(inputs, mode=PYTHON, on_unused_input="ignore"))


def magnitude(x):
    """Return the absolute value of an expression in which all that is added or subtracted is positive."""
    if isinstance(x.owner_op, Alloc | DimShuffle):
        return x.owner.op(magnitude(x.owner.inputs[0]), *x.owner.inputs[1:])
    match x.owner_op.scalar_op if isinstance(x.owner_op, Elemwise) else None:
        case Add() | Sub():
            return pt.add(*map(magnitude, x.owner.inputs))
        case Mul():
            return pt.mul(*map(magnitude, x.owner.inputs))
        case TrueDiv():
            return magnitude(x.owner.inputs[0]) / abs(x.owner.inputs[1])
        case Neg() | Cast():
            return magnitude(x.owner.inputs[0])
        case Switch():
            condition, *values = x.owner.inputs
            return pt.switch(condition, *map(magnitude, values))
    return abs(x)


def inputs_of(out, values):
    """Return those of the variables in ``values`` that a graph depends on."""
    used = set(explicit_graph_inputs([out]))
    return {x: value for x, value in values.items() if x in used}


def assert_rewritten(before, after, rule=None):
    """Assert that a graph is rewritten into another graph, and that no rewrite, of the plugin or of PyTensor, changes the result.

    With the name of a rule, also assert that the other rules do not rewrite the graph in the same way.
    """
    found, expected = pregrad(before, on=True), pregrad(after, on=False)
    upstreams = pregrad(before, on=False)
    is_canonical = (
        "The expected graph is as PyTensor's canonicalize leaves it: -x is -1 * x, x * x is sqr(x)."
    )
    assert sketch(found) == sketch(expected), (
        f"{is_canonical}\n{listed(expected=expected, found=found)}"
    )
    assert sketch(found) != sketch(upstreams), "PyTensor rewrites the graph so without any rule."
    if rule is not None:
        without = pregrad(before, on=True, exclude=(rule,))
        assert sketch(found) != sketch(without), f"Other rules rewrite the graph so without {rule}."
    again = pregrad(found, on=True)
    is_changed = (
        "The result is rewritten again. A rule returns a graph as PyTensor's canonicalize leaves it: constants have the dtype of "
        "their operands."
    )
    assert equal_computations([again], [found]), (
        f"{is_changed}\n{listed(result=found, again=again)}"
    )


def assert_left_alone(out, *rules):
    """Assert that the rules, or with none named all of them, have no part in what becomes of a graph."""
    without = pregrad(out, on=True, exclude=rules) if rules else pregrad(out, on=False)
    found = pregrad(out, on=True)
    assert sketch(found) == sketch(without), listed(without=without, found=found)


def listed(**graphs):
    """Return graphs as text, with types, each below its name."""
    texts = {name: debugprint(x, print_type=True, file="str") for name, x in graphs.items()}
    return "\n".join(f"{name}:\n{text}" for name, text in texts.items())


def assert_same_value_and_gradient(out, values, rtol):
    """Assert that value, gradient and their dtypes are the same on and off."""
    inputs = inputs_of(out, values)
    off, on = (value_and_gradient(out, inputs, on=on) for on in (False, True))
    for expected, found in zip(off, on, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=rtol)
