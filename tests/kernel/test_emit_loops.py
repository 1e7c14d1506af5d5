"""Loops of all lengths and layouts give what NumPy gives."""

import numpy as np
import pytest
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.expressions import Const, Expr, Length, Load
from pymc_fastlogp.kernel.ir.loops import Loop, Store
from tests.kernel.emitted import F64, I0, I1, I2, LENGTHS, compute, given, output, program, sizes
from tests.kernel.native_kernel import compile_native

both_kinds_of_lengths = pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])


@both_kinds_of_lengths
@pytest.mark.parametrize("n", LENGTHS)
def test_elementwise_loop_agrees_with_numpy(n, static):
    size = sizes(n, static=static)
    x, y = given("x", *size), output("y", *size)
    value = compute(ps.add, compute(ps.sqr, Load(x, (I0,))), Const(0.5, F64))
    kernel = compile_native(program(Loop(size, (Store(y, (I0,), value),))))
    data = np.random.default_rng(n).integers(-9, 9, n) / 2
    np.testing.assert_array_equal(kernel(data)[0], data * data + 0.5)


@pytest.mark.parametrize("lengths", [[5, 3, 0, 64, 1000, 1]])
def test_kernel_serves_all_lengths(lengths):
    x, y = given("x", Length(0, 0)), output("y", Length(0, 0))
    kernel = compile_native(program(Loop(x.shape, (Store(y, (I0,), Load(x, (I0,))),))))
    for n in lengths:
        data = np.arange(float(n))
        np.testing.assert_array_equal(kernel(data)[0], data)


@both_kinds_of_lengths
@pytest.mark.parametrize("shape", [(3, 17), (4, 16), (16, 1), (5, 2), (0, 5), (5, 0), (2, 100)])
def test_broadcast_rows_and_columns_agree_with_numpy(shape, static):
    size = sizes(*shape, static=static)
    x, row, column = given("x", *size), given("row", size[1]), given("column", size[0])
    y = output("y", *size)
    value = compute(
        ps.add, Load(x, (I0, I1)), compute(ps.mul, Load(row, (I1,)), Load(column, (I0,)))
    )
    kernel = compile_native(
        program(Loop(size, (Store(y, (I0, I1), value),)), inputs=(x, row, column))
    )
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-9, 9, size) / 2 for size in (shape, shape[1], shape[0]))
    np.testing.assert_array_equal(kernel(a, b, c)[0], a + b * c[:, None])


@both_kinds_of_lengths
def test_transposed_store_of_three_axes_agrees_with_numpy(static):
    shape = (3, 5, 18)
    size = sizes(*shape, static=static)
    x, y = given("x", *size), output("y", size[2], size[0], size[1])
    kernel = compile_native(program(Loop(size, (Store(y, (I2, I0, I1), Load(x, (I0, I1, I2))),))))
    data = np.random.default_rng(2).normal(size=shape)
    np.testing.assert_array_equal(kernel(data)[0], data.transpose(2, 0, 1))


LAYOUTS = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "every second": lambda a: np.repeat(np.repeat(a, 2, axis=0), 2, axis=1)[::2, ::2],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}


@both_kinds_of_lengths
@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "bool"])
def test_inputs_of_any_layout_agree_with_numpy(dtype, static):
    shape = (6, 21)
    size = sizes(*shape, static=static)
    x, y = given("x", *size, dtype=dtype), output("y", *size, dtype=dtype)
    kernel = compile_native(
        program(Loop(size, (Store(y, (I0, I1), Load(x, (I0, I1))),))), contiguous=[False]
    )
    data = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
    for layout in LAYOUTS.values():
        array = layout(data)
        np.testing.assert_array_equal(kernel(array)[0], array)


def test_straight_line_code_agrees_with_numpy():
    x, y, z = given("x", 3), output("y"), output("z", 2)
    first, last = Load(x, (Const(0, "int64"),)), Load(x, (Const(2, "int64"),))
    kernel = compile_native(
        program(
            Loop(
                (),
                (
                    Store(y, (), compute(ps.exp, compute(ps.sub, first, last))),
                    Store(z, (Const(1, "int64"),), last),
                    Store(z, (Const(0, "int64"),), first),
                ),
            )
        )
    )
    y_, z_ = kernel(np.array([2.0, 5.0, 1.5]))
    np.testing.assert_allclose(y_, np.exp(0.5), rtol=1e-15)
    np.testing.assert_array_equal(z_, [2.0, 1.5])


def test_a_long_chain_of_operations_does_not_exhaust_the_stack():
    x, y = given("x", 4), output("y", 4)
    value: Expr = Load(x, (I0,))
    for _ in range(3000):
        value = compute(ps.add, value, Const(1.0, F64))
    kernel = compile_native(program(Loop((4,), (Store(y, (I0,), value),))))
    np.testing.assert_array_equal(kernel(np.arange(4.0))[0], np.arange(4.0) + 3000)


def test_the_size_of_an_output_is_computed():
    x, y = given("x", Length(0, 0)), given("y", Length(1, 0))
    total = compute(ps.add, Length(0, 0), Length(1, 0), dtype="int64")
    joined = output("joined", total)
    kernel = compile_native(
        program(
            Loop(x.shape, (Store(joined, (I0,), Load(x, (I0,))),)),
            Loop(
                y.shape,
                (
                    Store(
                        joined,
                        (compute(ps.add, Length(0, 0), I0, dtype="int64"),),
                        Load(y, (I0,)),
                    ),
                ),
            ),
            inputs=(x, y),
        )
    )
    a, b = np.arange(19.0), np.arange(5.0) - 7
    np.testing.assert_array_equal(kernel(a, b)[0], np.concatenate([a, b]))


def test_a_loop_that_runs_only_where_a_condition_holds():
    x, y = given("x", Length(0, 0)), output("y", Length(0, 0))
    first = Load(x, (Const(0, "int64"),))
    is_negative = compute(ps.lt, first, Const(0.0, F64), dtype="bool")
    kernel = compile_native(
        program(
            Loop(x.shape, (Store(y, (I0,), Load(x, (I0,))),)),
            Loop(x.shape, (Store(y, (I0,), Const(7.0, F64)),), when=is_negative),
        )
    )
    data = np.arange(20.0)
    np.testing.assert_array_equal(kernel(data)[0], data)
    np.testing.assert_array_equal(kernel(data - 1)[0], np.full(20, 7.0))
