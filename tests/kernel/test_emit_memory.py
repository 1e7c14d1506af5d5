"""Gathers, stores, constants and scratch read and write exactly the elements of the domain."""

import ctypes
import ctypes.util
import mmap

import numpy as np
import pytest
from llvmlite import ir
from pytensor import scalar as ps

from pymc_fastlogp.kernel.emit import buffers, emit
from pymc_fastlogp.kernel.ir.arithmetic import cast
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Length, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Store
from tests.kernel.emitted import (
    F64,
    I0,
    I1,
    LENGTHS,
    compute,
    fill,
    given,
    output,
    program,
    scratch,
    sizes,
)
from tests.kernel.native_kernel import compile_native

DTYPES = ["float64", "float32", "int64", "int32", "int16", "int8", "uint32", "uint8", "bool"]
INT = "int64"


@pytest.mark.parametrize("index_dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("n", LENGTHS)
def test_gather_agrees_with_numpy(n, index_dtype, gathers):
    table, index, y = given("table", 90), given("i", n, dtype=index_dtype), output("y", n)
    body = Store(y, (I0,), Load(table, (Load(index, (I0,)),)))
    kernel = compile_native(program(Loop((n,), (body,)), inputs=(table, index)))
    rng = np.random.default_rng(n)
    table_, index_ = rng.normal(size=90), rng.integers(0, 90, n).astype(index_dtype)
    np.testing.assert_array_equal(kernel(table_, index_)[0], table_[index_])


@pytest.mark.parametrize("contiguous", [True, False])
def test_gather_on_two_axes_agrees_with_numpy(contiguous, gathers):
    table, index = given("table", Length(0, 0), Length(0, 1)), given("i", 37, dtype="int32")
    y = output("y", 5, 37)
    body = Store(y, (I0, I1), Load(table, (I0, Load(index, (I1,)))))
    loop = Loop((5, 37), (body,))
    kernel = compile_native(program(loop, inputs=(table, index)), contiguous=[contiguous, True])
    rng = np.random.default_rng(0)
    table_, index_ = rng.normal(size=(5, 11)), rng.integers(0, 11, 37).astype("int32")
    layout = table_ if contiguous else np.asfortranarray(table_)
    np.testing.assert_array_equal(kernel(layout, index_)[0], table_[:, index_])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gathers_of_every_type_agree_with_numpy(dtype, gathers):
    table, index = given("table", 30, dtype=dtype), given("i", 45, dtype="int64")
    y, copy = output("y", 45, dtype=dtype), output("copy", 30, dtype=dtype)
    kernel = compile_native(
        program(
            Loop((45,), (Store(y, (I0,), Load(table, (Load(index, (I0,)),))),)),
            Loop((30,), (Store(copy, (I0,), Load(table, (I0,))),)),
            inputs=(table, index),
        )
    )
    rng = np.random.default_rng(1)
    table_ = rng.integers(-100, 100, 30).astype(dtype)
    index_ = rng.integers(0, 30, 45)
    y_, copy_ = kernel(table_, index_)
    np.testing.assert_array_equal(y_, table_[index_])
    np.testing.assert_array_equal(copy_, table_)


AFFINE = {
    "reversed": (
        lambda n: compute(ps.sub, Const(n - 1, INT), I0, dtype=INT),
        slice(None, None, -1),
    ),
    "every third": (lambda n: compute(ps.mul, Const(3, INT), I0, dtype=INT), slice(None, None, 3)),
    "shifted": (lambda n: compute(ps.add, I0, Const(5, INT), dtype=INT), slice(5, None)),
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_index_agrees_with_numpy(name):
    index_of, selected = AFFINE[name]
    data = np.random.default_rng(2).normal(size=50)
    n = data[selected].size
    x, y, z = given("x", 50), output("y", n), output("z", 50)
    kernel = compile_native(
        program(
            Loop((n,), (Store(y, (I0,), Load(x, (index_of(50),))),)),
            fill(z, 7.0),
            Loop((n,), (Store(z, (index_of(50),), Load(x, (I0,))),)),
        )
    )
    y_, z_ = kernel(data)
    np.testing.assert_array_equal(y_, data[selected])
    expected = np.full(50, 7.0)
    expected[selected] = data[:n]
    np.testing.assert_array_equal(z_, expected)


def test_diagonal_agrees_with_numpy():
    x, y = given("x", 20, 20), output("y", 20)
    kernel = compile_native(program(Loop((20,), (Store(y, (I0,), Load(x, (I0, I0))),))))
    data = np.random.default_rng(3).normal(size=(20, 20))
    np.testing.assert_array_equal(kernel(data)[0], np.diag(data))


@pytest.mark.parametrize("static", [True, False])
def test_the_last_of_several_stores_to_an_element_counts(static):
    size = sizes(41, static=static)
    index, y, last = given("i", *size, dtype=INT), output("y", 9), output("last")
    position = Load(index, (I0,))
    as_float = cast(I0, F64)
    body = (
        Store(y, (position,), as_float, in_order=True),
        Store(last, (), as_float, in_order=True),
    )
    kernel = compile_native(program(fill(y), Loop(size, body), inputs=(index,)))
    index_ = np.random.default_rng(4).integers(0, 9, 41)
    y_, last_ = kernel(index_)
    expected = np.zeros(9)
    expected[index_] = np.arange(41.0)
    np.testing.assert_array_equal(y_, expected)
    assert last_ == 40.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_of_every_type_are_embedded(dtype):
    data = np.random.default_rng(5).integers(0, 2, (3, 21)).astype(dtype)
    constant = Buffer("c", dtype, (3, 21), Role.CONSTANT, data.tobytes())
    y = output("y", 3, 21, dtype=dtype)
    kernel = compile_native(program(Loop((3, 21), (Store(y, (I0, I1), Load(constant, (I0, I1))),))))
    np.testing.assert_array_equal(kernel()[0], data)


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("n", [1, 33, buffers.STACK_BYTES // 8 + 1])
def test_scratch_on_stack_and_heap_keeps_values(n, static):
    size = sizes(n, static=static)
    x, first, second, one = (
        given("x", *size),
        scratch("a", *size),
        scratch("b", *size),
        scratch("s"),
    )
    y = output("y", *size)
    kernel = compile_native(
        program(
            fill(one),
            Loop(size, (Store(first, (I0,), compute(ps.neg, Load(x, (I0,)))),)),
            Loop(
                size,
                (
                    Store(second, (I0,), compute(ps.add, Load(first, (I0,)), Load(x, (I0,)))),
                    Accumulate(one, (), ps.add, Load(first, (I0,))),
                ),
            ),
            Loop(
                size,
                (
                    Store(
                        y,
                        (I0,),
                        compute(
                            ps.add,
                            compute(ps.mul, Load(one, ()), Load(x, (I0,))),
                            Load(second, (I0,)),
                        ),
                    ),
                ),
            ),
        )
    )
    data = np.random.default_rng(6).integers(-4, 5, n).astype(F64)
    np.testing.assert_array_equal(kernel(data)[0], -data.sum() * data)


def conditional_program(n):
    """Compute ``b = -x`` and ``y = b + b`` if ``flag[]`` holds, else ``y = 0``. ``b`` is too large for the stack."""
    x, flag = given("x", n), given("flag", dtype="bool")
    b, y = scratch("b", n), output("y", n)
    when = Load(flag, ())
    twice = compute(ps.add, Load(b, (I0,)), Load(b, (I0,)))
    steps = (
        fill(y),
        Loop((n,), (Store(b, (I0,), compute(ps.neg, Load(x, (I0,)))),), when),
        Loop((n,), (Store(y, (I0,), twice),), when),
    )
    return program(*steps, inputs=(x, flag))


LARGE = buffers.STACK_BYTES // 8 + 1


def test_scratch_of_conditional_loops_keeps_values():
    kernel = compile_native(conditional_program(LARGE))
    data = np.arange(float(LARGE))
    for flag in (True, False, True):
        expected = -2 * data if flag else np.zeros(LARGE)
        np.testing.assert_array_equal(kernel(data, np.array(flag))[0], expected)


def test_scratch_of_loops_with_a_condition_is_allocated_inside_of_them():
    function = emit(ir.Module(), conditional_program(LARGE), "f", [True, True])
    allocating = [block.name for block in function.blocks if "malloc" in str(block)]
    assert allocating == ["if.if", "if.1.if"]  # the second for when the first did not run


def test_scratch_that_a_condition_reads_is_there_before_the_loop():
    x, b, y = given("x", LARGE), scratch("b", LARGE), output("y", LARGE)
    x_i, b_i = Load(x, (I0,)), Load(b, (I0,))
    is_positive = compute(ps.gt, Load(x, (Const(0, INT),)), Const(0.0, F64), dtype="bool")
    steps = (
        fill(y),
        Loop((LARGE,), (Store(b, (I0,), compute(ps.neg, x_i)),), is_positive),
        Loop((LARGE,), (Store(b, (I0,), x_i),), compute(ps.invert, is_positive, dtype="bool")),
        Loop((LARGE,), (Store(y, (I0,), b_i),), cast(Load(b, (Const(7, INT),)), "bool")),
    )
    kernel = compile_native(program(*steps, inputs=(x,)))
    for first in (1.0, -1.0):
        data = np.full(LARGE, first)
        np.testing.assert_array_equal(kernel(data)[0], -np.abs(data))
    np.testing.assert_array_equal(kernel(np.zeros(LARGE))[0], np.zeros(LARGE))


@pytest.fixture(scope="module")
def page_end():
    """A function that copies an array to the end of a page behind which no access is allowed."""
    size = 4 * mmap.PAGESIZE
    memory = mmap.mmap(-1, size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    guard = start + size - mmap.PAGESIZE
    assert protect(guard, mmap.PAGESIZE, 0) == 0

    def copy(array):
        bytes_ = (ctypes.c_char * array.nbytes).from_address(guard - array.nbytes)
        at_end = np.frombuffer(bytes_, array.dtype).reshape(array.shape)
        at_end[...] = array
        return at_end

    yield copy
    protect(guard, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool"])
@pytest.mark.parametrize("n", [1, 7, 17, 31])
def test_no_read_past_the_end_of_an_input(n, dtype, static, page_end):
    size = sizes(n, static=static)
    x, y, gathered = given("x", *size, dtype=dtype), output("y", *size), output("g", *size)
    loaded = Load(x, (I0,))
    position = compute(ps.mul, cast(Load(x, (I0,)), INT), Const(0, INT), dtype=INT)
    body = (
        Store(y, (I0,), cast(loaded, F64)),
        Store(gathered, (I0,), cast(Load(x, (position,)), F64)),
    )
    kernel = compile_native(program(Loop(size, body)))
    data = page_end(np.random.default_rng(n).integers(0, 2, n).astype(dtype))
    y_, gathered_ = kernel(data)
    np.testing.assert_array_equal(y_, data.astype(F64))
    np.testing.assert_array_equal(gathered_, np.full(n, data[0], F64))


@pytest.mark.parametrize("n", [1, 7, 17, 31])
def test_no_write_past_the_end_of_an_output(n, page_end):
    x, y = given("x", Length(0, 0)), output("y", Length(0, 0))
    kernel = compile_native(program(Loop(x.shape, (Store(y, (I0,), Load(x, (I0,))),))))
    data, out = np.arange(float(n)), page_end(np.zeros(n))
    kernel.run(kernel.arguments([data], [out]))
    np.testing.assert_array_equal(out, data)
