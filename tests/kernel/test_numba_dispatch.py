"""Kernels in mode NUMBA: values, errors, layouts, threads and memory."""

import gc
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys
from pymc.logprob.utils import ParameterValueError

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.graph.held_constants import HeldConstants
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.native import kernels as native

INDEX = np.random.default_rng(0).integers(0, 7, 3000)
WEIGHTS = np.random.default_rng(1).normal(size=3000)


def kernels(function):
    return [n for n in function.maker.fgraph.toposort() if isinstance(n.op, FusedKernel)]


def compiled(inputs, outputs):
    """Return a function that is a single kernel, besides its large constants."""
    function = pytensor.function(inputs, outputs, mode="NUMBA")
    nodes = function.maker.fgraph.apply_nodes
    computing = [node for node in nodes if not isinstance(node.op, HeldConstants)]
    assert len(computing) == len(kernels(function)) == 1
    return function


@pytest.fixture(scope="module")
def gather():
    """A function with a gather, a scatter and a reduction, and what upstream makes of it."""
    x = pt.dvector("x")
    y = (pt.exp(x)[INDEX] * WEIGHTS).sum()
    outputs = [y, pytensor.grad(y, x)]
    with disabled():
        upstream = pytensor.function([x], outputs, mode="NUMBA")
    return compiled([x], outputs), upstream


@pytest.fixture(scope="module")
def mixed():
    """A function of a matrix, a vector and a scalar, of several types."""
    x, n, s = pt.dmatrix("x"), pt.ivector("n"), pt.fscalar("s")
    outputs = [x * n + s, (x > 0).all(axis=0), x.sum() * 2, (n + 1) * 2]
    return compiled([x, n, s], outputs)


@pytest.fixture(autouse=True, scope="module")
def allocations_are_counted():
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


@contextmanager
def no_growth():
    """Assert that as many arrays of Numba are freed as were allocated."""
    gc.collect()  # what other tests left is not freed in between
    before = rtsys.get_allocation_stats()
    yield
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free


def test_values_are_those_of_upstream(gather):
    found, expected = (f(np.linspace(-1, 1, 7)) for f in gather)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_an_index_out_of_bounds_raises(gather):
    with pytest.raises(IndexError, match="index out of bounds"):
        gather[0](np.ones(5))


@pytest.mark.parametrize(
    "given", [np.arange(3, dtype="uint8"), np.arange(3.0), np.array(1, "int8")]
)
def test_wrong_dtype_raises_under_trust_input(given):
    """Bytes with and without a sign are the same to LLVM, so this was another number."""
    x = pt.bvector("x")
    function = compiled([x], [pt.exp(-x).sum() + pt.softplus(x).sum()])
    function.trust_input = True
    with pytest.raises(TypingError, match="leave out trust_input"):
        function(given)
    right = np.arange(3, dtype="float32")
    expected = (np.exp(-right) + np.log1p(np.exp(right))).sum()
    np.testing.assert_allclose(function(right.astype("int8")), expected, rtol=1e-6)


def test_messages_are_those_of_the_check():
    x = pt.dscalar("x")
    checked = pm.logprob.utils.CheckParameterValue("x > 0")(pt.log(x), x > 0)
    function = compiled([x], [checked * 2])
    np.testing.assert_allclose(function(1.5), 2 * np.log(1.5))
    with pytest.raises(ParameterValueError, match="x > 0"):
        function(-1.0)


@pytest.fixture
def broken_compiler(monkeypatch):
    def load(program):
        raise KeyError("nobody expected this")

    monkeypatch.setattr(native, "load", load)


def test_failed_compilation_falls_back_to_upstream(broken_compiler, caplog):
    x, i = pt.dmatrix("x"), pt.lvector("i")
    y = pt.exp(x)
    outputs = [y, y.T, (y * x).sum(), pt.log(x)[i].sum(axis=1) * WEIGHTS]
    with disabled():
        upstream = pytensor.function([x, i], outputs, mode="NUMBA")
    with pytensor.config.change_flags(on_opt_error="warn"), caplog.at_level("WARNING"):
        function = compiled([x, i], outputs)
    [warning] = caplog.messages
    assert "FusedKernel" in warning
    assert "KeyError: 'nobody expected this'" in warning
    values = np.linspace(1, 2, 14).reshape(7, 2)
    found = function(values, INDEX)
    for a, b in zip(found, upstream(values, INDEX), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert not np.shares_memory(found[0], found[1])


def test_failed_compilation_raises_if_asked(broken_compiler):
    x = pt.dvector("x")
    with (
        pytensor.config.change_flags(on_opt_error="raise"),
        pytest.raises(KeyError, match="nobody expected this"),
    ):
        compiled([x], [pt.exp(x).sum() * 2])


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("arranged", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (0, 3)])
def test_inputs_of_any_layout_agree(mixed, arranged, shape):
    x = arranged(np.arange(float(np.prod(shape))).reshape(shape))
    n, s = np.arange(6, dtype="int32")[::2], np.float32(0.5)
    product, positive, total, shifted = mixed(x, n, s)
    np.testing.assert_array_equal(product, x * n + s)
    np.testing.assert_array_equal(positive, (x > 0).all(axis=0))
    np.testing.assert_allclose(total, 2 * x.sum(), rtol=1e-15)
    np.testing.assert_array_equal(shifted, (n + 1) * 2)
    assert [out.dtype for out in (product, positive, total, shifted)] == [
        *("float64", "bool", "float64", "int32")
    ]


def test_the_length_of_an_output_may_be_the_value_of_an_input():
    n, x = pt.lscalar("n"), pt.dvector("x")
    function = compiled([n, x], [pt.exp(pt.arange(n) * x[0]) + 1, pt.log(x)])
    for value in (0, 1, 13, -2):
        powers, logarithms = function(value, np.array([0.5, 1.0]))
        np.testing.assert_allclose(powers, np.exp(np.arange(value) * 0.5) + 1, rtol=1e-14)
        np.testing.assert_allclose(logarithms, np.log([0.5, 1.0]), rtol=1e-15)


def test_a_negative_length_raises():
    n, x = pt.lscalar("n"), pt.dvector("x")
    function = compiled([n, x], [pt.alloc(pt.exp(x), n, 2), pt.log(x)])
    assert function(3, np.ones(2))[0].shape == (3, 2)
    with pytest.raises(ValueError, match="negative dimensions"):
        function(-1, np.ones(2))


@pytest.fixture(scope="module")
def regression():
    """A function with the gradient of a sum over a matrix, and what upstream makes of it."""
    x, b = pt.dmatrix("x"), pt.dvector("b")
    y = pt.log1p(pt.exp((x * b).sum(axis=1))).sum()
    outputs = [y, *pytensor.grad(y, [x, b])]
    with disabled():
        upstream = pytensor.function([x, b], outputs, mode="NUMBA")
    return compiled([x, b], outputs), upstream


@pytest.mark.parametrize("arranged", LAYOUTS.values(), ids=LAYOUTS)
def test_gradients_of_any_layout_agree(regression, arranged):
    x = arranged(np.random.default_rng(5).normal(size=(37, 5)))
    b = np.linspace(-1, 1, 10)[::-2]
    for found, expected in zip(*(f(x, b) for f in regression), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_inputs_are_not_copied(regression):
    function, b, allocated = regression[0], np.ones(5), []
    for order in "CF":
        x = np.ones((400, 5), order=order)
        function(x, b)
        before = rtsys.get_allocation_stats()
        function(x, b)
        allocated.append(rtsys.get_allocation_stats().alloc - before.alloc)
    assert allocated[0] == allocated[1]


def test_a_layout_without_code_raises(monkeypatch, caplog):
    x = pt.dmatrix("x")
    function = compiled([x], [pt.exp(x).sum() * 1.5])
    monkeypatch.setattr(native, "_kernels", {})
    with pytest.raises(RuntimeError, match="no code for inputs of this layout"):
        function(np.zeros((2, 3), order="F"))
    assert "KeyError" in caplog.text
    assert function(np.zeros((2, 3)))[0] == 9


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_while_a_layout_is_compiled_raises(monkeypatch):
    """Ctrl-C, which no code catches that is called by machine code."""

    def interrupted(*args):
        raise KeyboardInterrupt

    x = pt.dmatrix("x")
    function, given = compiled([x], [pt.exp(x).sum() * 2.5]), np.zeros((2, 3), order="F")
    with monkeypatch.context() as patch:
        patch.setattr(native.Kernel, "load", interrupted)
        with pytest.raises(RuntimeError, match="no code for inputs of this layout"):
            function(given)
    assert function(given)[0] == 15


def test_a_scalar_that_is_a_view():
    """Numba does not know it to be in C order, nor how to copy it as a scalar."""
    x = pt.dvector("x")
    first = pt.specify_shape(x[:1], (1,)).squeeze()
    in_order = pt.sort(pt.exp(x) * 2) * [1.0, 2.0, 3.0]
    y = pt.exp(in_order).sum() * pt.exp(first) + pt.exp(-first)
    function = pytensor.function([x], [y, y * first], mode="NUMBA")
    [kernel] = kernels(function)
    assert any(v.ndim == 0 and v.owner.op.view_map for v in kernel.inputs)
    a = np.array([0.1, 0.2, 0.3])
    expected = np.exp(np.exp(a) * [2, 4, 6]).sum() * np.exp(0.1) + np.exp(-0.1)
    np.testing.assert_allclose(function(a), [expected, 0.1 * expected], rtol=1e-13)


def test_threads_do_not_disturb_each_other(gather):
    function = gather[0].vm.jit_fn
    points = np.random.default_rng(2).normal(size=(8, 7))
    expected = [function(x) for x in points]

    def run(number):
        return all(
            np.array_equal(a, b)
            for _ in range(200)
            for a, b in zip(function(points[number]), expected[number], strict=True)
        )

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, range(8)))


@pytest.fixture
def traced_memory():
    """The bytes that Python has allocated since the test began, as a function."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_calls_leave_nothing_behind(gather, mixed, traced_memory):
    function, x = gather[0], np.zeros(7)
    function.trust_input = True
    function(x)
    with no_growth():
        before = traced_memory()
        for _ in range(50_000):
            function(x)
        # The smallest object of Python has 16 bytes; threads of other tests allocate, too.
        assert traced_memory() - before < 8 * 50_000
    with no_growth():
        for _ in range(100):
            mixed(np.asfortranarray(np.ones((2, 3))), np.arange(3, dtype="int32"), np.float32(1))


def test_the_outputs_of_a_failed_call_are_freed(gather):
    before = rtsys.get_allocation_stats()
    for _ in range(100):
        with pytest.raises(IndexError):
            gather[0](np.ones(5))
    after = rtsys.get_allocation_stats()
    # Numba itself keeps the input of a call that raises.
    assert after.alloc - before.alloc == 300
    assert after.free - before.free >= 200


@pytest.mark.parametrize(
    ("length", "error", "message"),
    [(2**61, ValueError, "array is too big"), (2**55, MemoryError, "no memory")],
)
def test_output_without_memory_raises_and_leaks_nothing(length, error, message):
    n, x = pt.lscalar("n"), pt.dvector("x")
    function = compiled([n, x], [pt.alloc(pt.exp(x), n, 2), pt.log(x)])
    # Numba itself keeps what a call that raises has been given.
    function.trust_input = True
    before = rtsys.get_allocation_stats()
    with pytest.raises(error, match=message):
        function(np.array(length), np.ones(2))
    after = rtsys.get_allocation_stats()
    assert after.mi_alloc - before.mi_alloc <= 2 + after.mi_free - before.mi_free


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_output_length_is_read_from_an_input(dtype):
    n, x = pt.vector("n", shape=(3,), dtype=dtype), pt.dscalar("x")
    function = pytensor.function([n, x], pt.exp(pt.zeros((n[0], n[-1] + 1)) + x), mode="NUMBA")
    assert [type(node.op) for node in function.maker.fgraph.toposort()] == [FusedKernel]
    for lengths in ([2, 0, 3], [0, 1, 2], [5, 1, -1]):
        array = np.array(lengths, dtype=dtype)
        np.testing.assert_array_equal(
            function(array, 0.0), np.ones((lengths[0], lengths[-1] + 1)), strict=True
        )
    with pytest.raises(ValueError, match="negative dimensions"):
        function(np.array([-1, 0, 3], dtype=dtype), 0.0)
