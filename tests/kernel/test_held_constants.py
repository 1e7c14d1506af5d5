"""Large constants: the constants that are held, their absence from compiled code, and their lifetime."""

import gc
import pickle
from ctypes import c_void_p
from weakref import ref

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from llvmlite import binding as llvm
from pytensor import sparse
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan
from pytensor.sparse.variable import SparseConstant

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.graph.boundary import EMBEDDED_BYTES
from pymc_fastlogp.kernel.graph.held_constants import HeldConstants, HoldConstants
from pymc_fastlogp.kernel.native.constant_memory import hold_array

N = 5000


def numbers(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=n)


def rewritten(inputs, outputs):
    """Return a clone of a graph after the rule."""
    fgraph = FunctionGraph(inputs, outputs, clone=True)
    HoldConstants().apply(fgraph)
    return fgraph


def held(fgraph):
    """Return what the nodes of the rule hold."""
    ops = [node.op for node in fgraph.toposort() if isinstance(node.op, HeldConstants)]
    return [each for op in ops for each in op.held]


def weighted(weights, grouped):
    """Return a function whose data a kernel and an Op of upstream read, and its gradient."""
    x = pt.dvector("x")
    y = (pt.exp(x)[grouped] * weights).sum()
    return [x], [y, pytensor.grad(y, x), pt.searchsorted(np.sort(weights), x)]


# Which constants


@pytest.mark.parametrize("n", [EMBEDDED_BYTES // 8, EMBEDDED_BYTES // 8 + 1])
def test_only_large_constants_are_held(n):
    x = pt.dvector("x")
    assert len(held(rewritten([x], [x * numbers(n)]))) == (n * 8 > EMBEDDED_BYTES)


def test_one_node_gives_all_of_them():
    x = pt.dvector("x")
    first, second = numbers(seed=1), pt.constant(numbers(seed=2))
    fgraph = rewritten([x], [x * first + second, pt.exp(x + second)])
    [node] = [n for n in fgraph.apply_nodes if isinstance(n.op, HeldConstants)]
    assert len(node.outputs) == 2
    assert not any(isinstance(v, Constant) for n in fgraph.apply_nodes for v in n.inputs)


def test_a_sparse_constant_stays():
    matrix = sparse.as_sparse(scipy.sparse.random(200, 50, 0.2, format="csr", random_state=0))
    x = pt.dmatrix("x")
    product = sparse.dot(matrix, pt.exp(x))
    fgraph = rewritten([x], [product])
    assert not held(fgraph)
    assert any(isinstance(v, SparseConstant) for n in fgraph.apply_nodes for v in n.inputs)
    function = pytensor.function([x], product, mode="NUMBA")
    value = np.linspace(-1, 1, 100).reshape(50, 2)
    np.testing.assert_allclose(function(value), matrix.data @ np.exp(value), rtol=1e-12)


def test_writable_and_returned_constants_are_not_held():
    i, constant = pt.lscalar("i"), pt.constant(numbers())
    fgraph = rewritten([i], [constant, constant[i:], pt.inc_subtensor(constant[i], 1.0)])
    fgraph_inplace = FunctionGraph([i], [pt.inc_subtensor(constant[i], 1.0)], clone=True)
    [node] = [n for n in fgraph_inplace.apply_nodes if n.op.__class__.__name__ == "IncSubtensor"]
    node.op = type(node.op)(node.op.idx_list, inplace=True)
    HoldConstants().apply(fgraph_inplace)
    assert not held(fgraph_inplace)
    readers = [
        n
        for n in fgraph.apply_nodes
        if any(isinstance(v.owner and v.owner.op, HeldConstants) for v in n.inputs)
    ]
    assert [n.op.__class__.__name__ for n in readers] == ["IncSubtensor"]
    assert isinstance(fgraph.outputs[0], Constant)


def test_a_returned_constant_can_be_changed():
    i, data = pt.lscalar("i"), numbers()
    function = pytensor.function([i], [pt.constant(data)[i:], pt.exp(data).sum() + i], mode="NUMBA")
    function(1)[0][:] = np.nan
    np.testing.assert_array_equal(function(1)[0], data[1:])


# Values


@pytest.fixture(scope="module")
def compiled():
    """A function with the rule, and without the plugin."""
    graph = weighted(numbers(), np.arange(N) % 3)
    with disabled():
        upstream = pytensor.function(*graph, mode="NUMBA")
    return pytensor.function(*graph, mode="NUMBA"), upstream


def test_values_are_those_of_upstream(compiled):
    for found, expected in zip(*(f(np.linspace(-1, 1, 3)) for f in compiled), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_compiled_function_has_no_large_constant(compiled):
    fgraph = compiled[0].maker.fgraph
    constants = [v for n in fgraph.apply_nodes for v in n.inputs if isinstance(v, Constant)]
    assert all(np.asarray(v.data).nbytes <= EMBEDDED_BYTES for v in constants)
    # The weights and the index of the kernel, and the sorted weights.
    assert len(held(fgraph)) == 3


def test_values_do_not_depend_on_the_rule(compiled):
    mode = pytensor.compile.mode.get_mode("NUMBA").excluding("fastlogp_held_constants")
    function = pytensor.function(*weighted(numbers(), np.arange(N) % 3), mode=mode)
    assert not held(function.maker.fgraph)
    for a, b in zip(function(np.ones(3)), compiled[0](np.ones(3)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool", "complex128"])
def test_constant_of_any_type_keeps_dtype_and_shape(dtype):
    data = np.random.default_rng(3).integers(0, 2, (3, 1, 20_000)).astype(dtype)
    i = pt.lvector("i")
    function = pytensor.function([i], pt.constant(data)[:, 0, i].sum(), mode="NUMBA")
    [only] = held(function.maker.fgraph)
    assert (only.array.dtype, only.array.shape) == (dtype, data.shape)
    assert function([7, 9]) == data[:, 0, [7, 9]].sum()


def test_data_that_changes_later_changes_nothing():
    x, data = pt.dscalar("x"), numbers()
    function = pytensor.function([x], (pt.exp(x * data)).sum(), mode="NUMBA")
    before = function(1.0)
    data[:] = 0
    assert function(1.0) == before


# Memory


def test_functions_share_the_memory():
    x = pt.dvector("x")
    index = np.random.default_rng(4).integers(0, 7, N)
    fgraphs = [
        pytensor.function([x], y, mode="NUMBA").maker.fgraph
        for y in (pt.exp(x)[index] * numbers(), pt.log(x)[index] - numbers())
    ]
    first, second = map(held, fgraphs)
    # Each graph narrows its own copy of the index.
    assert len(first) == 2
    assert set(first) == set(second)


def test_read_only_arrays_are_not_copied():
    data = numbers()
    assert hold_array(data).array is not data
    data.flags.writeable = False
    other = numbers(seed=8)
    other.flags.writeable = False
    assert hold_array(other).array is other


@pytest.mark.parametrize(
    "different", [lambda x: x.astype("float32"), lambda x: x[::-1], np.transpose]
)
def test_different_arrays_have_different_names(different):
    data = numbers(6).reshape(2, 3)
    assert hold_array(data).symbol != hold_array(different(data)).symbol


def cell_of(symbol):
    return c_void_p.from_address(llvm.address_of_symbol(symbol)).value


def test_the_memory_is_freed_and_found_again():
    first = hold_array(numbers(seed=9))
    symbol, gone = first.symbol, ref(first)
    del first
    gc.collect()
    assert gone() is None
    second = hold_array(numbers(seed=9))
    assert second.symbol == symbol
    assert cell_of(symbol) == second.array.ctypes.data


def test_the_node_pickles():
    op = HeldConstants([numbers(), np.arange(3)])
    copy = pickle.loads(pickle.dumps(op))
    assert copy == op
    results = pytensor.function([], copy.make_node().outputs, mode=Mode(linker="py"))()
    np.testing.assert_array_equal(results[0], numbers())


# Inner graphs


def reading(v, weights):
    """Return what reads large constants in a kernel and in an Op of upstream."""
    return pt.sin(v * pt.constant(weights)).sum() + pt.searchsorted(np.sort(weights), v)


def by_scan(x, weights):
    start = pt.constant(0.0, dtype="float64")
    return pytensor.scan(
        lambda v, total: 0.5 * total + reading(v, weights),
        sequences=[x],
        outputs_info=[start],
        return_updates=False,
    )


def by_inner_function(x, weights):
    v = pt.dvector("v")
    return OpFromGraph([v], [reading(v[0], weights) + v])(x)


@pytest.mark.parametrize("make", [by_scan, by_inner_function])
def test_constants_of_inner_graphs_are_held_there(make):
    x, weights = pt.dvector("x"), numbers(seed=7)
    y = make(x, weights)
    outputs = [y, pytensor.grad(y.sum(), x)]
    function = pytensor.function([x], outputs, mode="NUMBA")
    inner = [
        node.op.fgraph
        for node in function.maker.fgraph.toposort()
        if isinstance(node.op, Scan | OpFromGraph)
    ]
    found = [each.array for graph in inner for each in held(graph)]
    assert any(np.array_equal(array.ravel(), weights) for array in found)
    constants = [c for graph in inner for c in graph.variables if isinstance(c, Constant)]
    assert all(c.data.nbytes <= EMBEDDED_BYTES for c in constants)

    point = np.array([0.1, -0.2, 0.3])
    with disabled():
        reference = pytensor.function([x], outputs, mode="NUMBA")
    for result, expected in zip(function(point), reference(point), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12 * N)
