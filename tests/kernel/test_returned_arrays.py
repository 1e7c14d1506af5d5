"""The Numba type of arrays that a compiled graph returns: identity, copies, conversions."""

import pickle

import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba import types
from pytensor.compile.builders import OpFromGraph

from pymc_fastlogp._upstream.numba import array_type
from pymc_fastlogp._upstream.numba_returned_arrays import ReturnedArray
from pymc_fastlogp.benchmarking.run import compile_model
from pymc_fastlogp.kernel.graph.op import FusedKernel


def jitted(inputs, outputs):
    """Return the Numba function of a graph, and its Ops."""
    function = pytensor.function(inputs, outputs, mode="NUMBA")
    return function.vm.jit_fn, [type(node.op) for node in function.maker.fgraph.toposort()]


def returned_types(jit, *arguments):
    """Return the types of the results of a Numba function."""
    jit(*arguments)
    [compiled] = jit.nopython_signatures
    return list(compiled.return_type)


@pytest.fixture(scope="module")
def graph():
    """A kernel of a vector that returns its sum, a vector, a matrix and integers."""
    x = pt.dvector("x")
    y = pt.exp(x) * 2
    outputs = [y.sum(), y, pt.outer(y, y + 1), pt.cast(y * 10, "int64")]
    jit, ops = jitted([x], outputs)
    assert ops == [FusedKernel]
    return jit


X = np.linspace(-1, 1, 5)
Y = 2 * np.exp(X)


# Identity


def test_the_type_is_not_that_of_other_arrays():
    returned, plain = ReturnedArray(types.float64, 1), array_type("float64", 1)
    assert returned != plain
    assert isinstance(returned, types.Array)
    assert returned == ReturnedArray(types.float64, 1)
    assert returned is not ReturnedArray(types.float64, 2)
    assert returned.mangling_args != plain.mangling_args
    assert pickle.loads(pickle.dumps(returned)) == returned


def test_returned_results_have_the_type(graph):
    assert returned_types(graph, X) == [
        ReturnedArray(types.float64, 0),
        ReturnedArray(types.float64, 1),
        ReturnedArray(types.float64, 2),
        ReturnedArray(types.int64, 1),
    ]


def test_results_read_by_other_ops_have_the_plain_array_type():
    """Numba would compile that Op once more, and keep the type in PyTensor's cache."""
    x = pt.dvector("x")
    y = pt.exp(x) * 2
    jit, [first, _] = jitted([x], [y.sum(), y, pt.sort(y)])
    assert first is FusedKernel
    found = returned_types(jit, X)
    assert found[:2] == [ReturnedArray(types.float64, 0), array_type("float64", 1)]
    assert not isinstance(found[2], ReturnedArray)


def test_a_result_that_is_returned_twice_has_the_type_of_other_arrays():
    x = pt.dvector("x")
    y = pt.exp(x) * 2
    jit, _ = jitted([x], [y, y])
    assert returned_types(jit, X) == [array_type("float64", 1)] * 2


def test_results_of_inner_graphs_have_the_type_of_other_arrays():
    x, v = pt.dvector("x"), pt.dvector("v")
    inner = OpFromGraph([v], [pt.sort(pt.exp(v) * 2), pt.exp(v) * 3])
    first, second = inner(x)
    with pytensor.config.change_flags(numba__cache=False):
        jit, _ = jitted([x], [first, second])
        found = returned_types(jit, X)
    assert not any(isinstance(each, ReturnedArray) for each in found)


# Copies


@numba.njit
def assign(out, values):
    out[...] = values


@pytest.fixture(scope="module")
def copier(graph):
    """Return a function that assigns the results of the graph to arrays."""

    @numba.njit
    def copy(x, total, vector, matrix, integers):
        results = graph(x)
        total[()] = results[0]
        vector[...] = results[1]
        matrix[...] = results[2]
        integers[...] = results[3]

    return copy


TARGETS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
}


@pytest.mark.parametrize("arranged", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_copies_are_those_of_numpy(copier, arranged, dtype):
    total = np.zeros((), dtype)
    vector, matrix = (arranged(np.zeros(shape, dtype)) for shape in ((5,), (5, 5)))
    integers = arranged(np.zeros(5, dtype))
    copier(X, total, vector, matrix, integers)
    rtol = {"float64": 1e-14, "float32": 1e-6}[dtype]
    np.testing.assert_allclose(total, Y.sum(), rtol=rtol)
    np.testing.assert_allclose(vector, Y, rtol=rtol)
    np.testing.assert_allclose(matrix, np.outer(Y, Y + 1), rtol=rtol)
    np.testing.assert_array_equal(integers, (Y * 10).astype("int64"))


def test_a_kernel_that_raises_in_a_try_block_reaches_its_handler():
    """Numba goes on to the end of the block, with null for each result; nutpie's callbacks are such blocks."""
    x, index = pt.dvector("x"), pt.lvector("index")
    picked = pt.exp(x)[index]
    jit, ops = jitted([x, index], [picked.sum(), picked])
    assert ops == [FusedKernel]

    @numba.njit
    def callback(x, index, total, out):
        try:
            value, values = jit(x, index)
            total[()] = value
            out[...] = values
        except Exception:
            return 1
        return 0

    total, out = np.zeros(()), np.zeros(3)
    assert callback(X, np.array([0, 1, 2]), total, out) == 0
    np.testing.assert_allclose(out, np.exp(X[:3]), rtol=1e-14)
    np.testing.assert_allclose(total, out.sum(), rtol=1e-14)
    assert callback(X, np.array([0, 1, 7]), total, out) == 1
    np.testing.assert_allclose(out, np.exp(X[:3]), rtol=1e-14)


@pytest.mark.parametrize("shape", [(4,), (6,), (0,), (1,)])
def test_wrong_length_raises(graph, shape):
    @numba.njit
    def copy(x, out):
        out[...] = graph(x)[1]

    with pytest.raises(ValueError, match="cannot assign slice"):
        copy(X, np.zeros(shape))


@pytest.mark.parametrize("shape", [(5, 4), (4, 5), (1, 1)])
def test_wrong_shape_raises(graph, shape):
    @numba.njit
    def copy(x, out):
        out[...] = graph(x)[2]

    with pytest.raises(ValueError, match="cannot assign slice"):
        copy(X, np.zeros(shape))


def test_an_axis_of_length_1_is_broadcast(graph):
    @numba.njit
    def copy(x, vector, matrix):
        results = graph(x)
        vector[...] = results[1]
        matrix[...] = results[2]

    vector, matrix = np.zeros(3), np.zeros((2, 4))
    copy(X[:1], vector, matrix)
    np.testing.assert_allclose(vector, np.full(3, Y[0]), rtol=1e-14)
    np.testing.assert_allclose(matrix, np.full((2, 4), Y[0] * (Y[0] + 1)), rtol=1e-14)


def test_a_vector_is_broadcast_along_a_new_axis(graph):
    @numba.njit
    def copy(x, out):
        out[...] = graph(x)[1]

    out = np.zeros((3, 5))
    copy(X, out)
    np.testing.assert_allclose(out, np.broadcast_to(Y, (3, 5)), rtol=1e-14)


def test_other_indices_behave_as_in_numpy(graph):
    @numba.njit
    def copy(x, out, rows):
        results = graph(x)
        out[0, :] = results[1]
        out[1][:] = results[1]
        out[rows] = results[2]
        out[2, 0] = results[0]

    found, expected = np.zeros((9, 5)), np.zeros((9, 5))
    rows = np.array([3, 8, 4, 6, 5])
    copy(X, found, rows)
    expected[0] = expected[1] = Y
    expected[rows] = np.outer(Y, Y + 1)
    expected[2, 0] = Y.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_an_array_may_be_copied_to_itself(graph):
    @numba.njit
    def reverse(x):
        y = graph(x)[1]
        y[...] = y
        y[::-1][...] = y
        return y

    np.testing.assert_allclose(reverse(X), Y[::-1], rtol=1e-14)


def test_assignment_of_other_arrays_is_numbas():
    with pytest.raises(ValueError, match="cannot assign slice of shape"):
        assign(np.zeros(3), np.zeros(4))
    out = np.zeros((2, 3))
    assign(out, np.arange(3.0))
    np.testing.assert_array_equal(out, [[0, 1, 2]] * 2)


# Everything else


def test_operations_are_those_of_other_arrays(graph):
    @numba.njit
    def use(x):
        total, vector, matrix, _ = graph(x)
        return (
            vector[1:] * 2 + total,
            vector.reshape((1, 5)),
            matrix.T,
            matrix[0],
            np.concatenate((vector, x)),
            vector.copy(),
            total.item() + total[()],
            np.exp(vector),
            matrix @ vector,
            vector.T,
        )

    matrix = np.outer(Y, Y + 1)
    expected = [
        Y[1:] * 2 + Y.sum(),
        Y.reshape(1, 5),
        matrix.T,
        matrix[0],
        np.concatenate((Y, X)),
        Y,
        2 * Y.sum(),
        np.exp(Y),
        matrix @ Y,
        Y,
    ]
    for a, b in zip(use(X), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("is_returned", [True, False])
def test_the_type_unifies_with_that_of_other_arrays(graph, is_returned):
    @numba.njit
    def choose(x, is_returned):
        y = graph(x)[1] if is_returned else x
        return y, y.sum()

    y, total = choose(X, is_returned)
    np.testing.assert_allclose(y, Y if is_returned else X, rtol=1e-14)
    np.testing.assert_allclose(total, y.sum())
    [compiled] = choose.nopython_signatures
    assert compiled.return_type[0] == array_type("float64", 1)


def test_the_type_converts_to_that_of_other_arrays(graph):
    total = numba.njit("float64(float64[::1])")(lambda y: y.sum())
    any_layout = numba.njit("float64(float64[:])")(lambda y: y.sum())

    @numba.njit
    def use(x):
        y = graph(x)[1]
        return total(y) + any_layout(y)

    np.testing.assert_allclose(use(X), 2 * Y.sum(), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex128", "bool"])
def test_an_array_without_axes_is_a_number_of_any_type(graph, dtype):
    @numba.njit
    def copy(x, out):
        out[0] = graph(x)[0]

    out = np.zeros(1, dtype)
    copy(X, out)
    np.testing.assert_allclose(out[0], np.asarray(Y.sum()).astype(dtype), rtol=1e-6)


def test_results_in_python_are_arrays_of_their_own(graph):
    results, again = graph(X), graph(X)
    for a, b in zip(results, again, strict=True):
        assert a.flags.c_contiguous
        assert a.flags.writeable
        assert not np.shares_memory(a, b)
    assert results[0].shape == ()


# nutpie


@pytest.fixture(scope="module")
def compiled():
    """The callbacks of a model with shared data and a Deterministic, and of that with the plugin off."""
    with pm.Model() as model:
        x = pm.Data("x", np.linspace(0, 1, 30))
        sd = pm.HalfNormal("sd")
        a = pm.Deterministic("a", pm.Normal("mu") + sd * pm.Normal("z", shape=3))
        pm.Normal("y", a[np.arange(30) % 3] * x, sd, observed=np.sin(np.arange(30)))
    return compile_model(model, "on"), compile_model(model, "off")


@pytest.mark.parametrize("name", ["compiled_logp_func", "compiled_expand_func"])
def test_callbacks_have_no_code_for_the_message_of_a_mismatch(compiled, name):
    on, off = (getattr(side, name).inspect_llvm() for side in compiled)
    assert "raise_with_shape_context" in off
    assert "raise_with_shape_context" not in on
    assert "array0d_to_scalar" not in on
