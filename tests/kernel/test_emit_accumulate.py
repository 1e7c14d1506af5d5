"""Reductions and scatters accumulate what NumPy's ``ufunc.reduce`` and ``ufunc.at`` do."""

import numpy as np
import pytest
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import identity
from pymc_fastlogp.kernel.ir.expressions import Const, Expr, Load
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Store
from tests.kernel.emitted import (
    F64,
    I0,
    I1,
    I2,
    LENGTHS,
    compute,
    fill,
    given,
    output,
    program,
    sizes,
)
from tests.kernel.native_kernel import compile_native

both_kinds_of_lengths = pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])

UFUNCS = {
    ps.add: np.add,
    ps.mul: np.multiply,
    ps.maximum: np.maximum,
    ps.minimum: np.minimum,
    ps.and_: np.bitwise_and,
    ps.or_: np.bitwise_or,
    ps.xor: np.bitwise_xor,
}
NUMBERS = [ps.add, ps.mul, ps.maximum, ps.minimum]
BITS = [ps.and_, ps.or_, ps.xor]
SUPPORTED = [
    *((op, dtype) for dtype in ("float64", "float32", "int64", "int32", "uint8") for op in NUMBERS),
    *((op, dtype) for dtype in ("int64", "int8", "bool") for op in BITS),
    *((op, "bool") for op in NUMBERS),
]


def numbers(shape, dtype, seed=0):
    """Small numbers whose sums and products are exact."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.7
    data = rng.choice([-2, -1, 1, 1, 1, 2], shape)
    return np.abs(data).astype(dtype) if dtype.startswith("u") else data.astype(dtype)


@pytest.mark.parametrize(("op", "dtype"), SUPPORTED, ids=lambda value: str(value))
def test_reductions_of_every_operation_and_type_agree_with_numpy(op, dtype):
    n = 37
    x, index = given("x", n, dtype=dtype), given("i", n, dtype="int32")
    total, parts, rows = (
        output("total", dtype=dtype),
        output("parts", 5, dtype=dtype),
        output("rows", n, dtype=dtype),
    )
    value = Load(x, (I0,))
    kernel = compile_native(
        program(
            *(fill(b, identity(op, dtype).value) for b in (total, parts, rows)),
            Loop(
                (n,),
                (
                    Accumulate(total, (), op, value),
                    Accumulate(parts, (Load(index, (I0,)),), op, value),
                    Accumulate(rows, (I0,), op, value),
                ),
            ),
            inputs=(x, index),
        )
    )
    data = numbers(n, dtype)
    index_ = np.random.default_rng(1).integers(0, 5, n).astype("int32")
    index_[:5] = np.arange(5)
    total_, parts_, rows_ = kernel(data, index_)
    ufunc = UFUNCS[op]
    np.testing.assert_array_equal(total_, ufunc.reduce(data, dtype=dtype))
    for group in range(5):
        np.testing.assert_array_equal(
            parts_[group], ufunc.reduce(data[index_ == group], dtype=dtype)
        )
    np.testing.assert_array_equal(rows_, data)


@both_kinds_of_lengths
@pytest.mark.parametrize("n", LENGTHS)
def test_sum_agrees_with_numpy(n, static):
    size = sizes(n, static=static)
    x, total = given("x", *size), output("total")
    kernel = compile_native(
        program(fill(total, 3.0), Loop(size, (Accumulate(total, (), ps.add, Load(x, (I0,))),)))
    )
    data = np.random.default_rng(n).normal(size=n)
    np.testing.assert_allclose(kernel(data)[0], 3.0 + data.sum(), rtol=1e-13)


REDUCED = {"all": (), "rows": (I0,), "middle": (I1,), "last": (I2,), "first and last": (I1,)}


@both_kinds_of_lengths
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 33), (4, 1, 16), (0, 3, 4), (3, 4, 0)])
def test_reductions_over_every_set_of_axes_share_one_loop(shape, static):
    size = sizes(*shape, static=static)
    x = given("x", *size)
    kept = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    results = [output(f"sum_{i}", *(size[axis] for axis in axes)) for i, axes in enumerate(kept)]
    indices = [tuple((I0, I1, I2)[axis] for axis in axes) for axes in kept]
    copy = output("copy", *size)
    value = Load(x, (I0, I1, I2))
    kernel = compile_native(
        program(
            *map(fill, results),
            Loop(
                size,
                (
                    Store(copy, (I0, I1, I2), value),
                    *(
                        Accumulate(result, index, ps.add, value)
                        for result, index in zip(results, indices)
                    ),
                ),
            ),
            inputs=(x,),
        )
    )
    data = np.random.default_rng(5).normal(size=shape)
    by_buffer = dict(zip(kernel.program.outputs, kernel(data)))
    for result, axes in zip(results, kept):
        summed = data.sum(axis=tuple({0, 1, 2} - set(axes)))
        np.testing.assert_allclose(by_buffer[result], summed, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(by_buffer[copy], data)


@pytest.mark.parametrize("position", [0, 5, 16, 36])
@pytest.mark.parametrize("op", [ps.maximum, ps.minimum, ps.add])
def test_nan_is_kept(op, position):
    x, result = given("x", 37), output("r")
    kernel = compile_native(
        program(
            fill(result, identity(op, F64).value),
            Loop((37,), (Accumulate(result, (), op, Load(x, (I0,))),)),
        )
    )
    data = np.ones(37)
    data[position] = np.nan
    assert np.isnan(kernel(data)[0])


def test_maximum_of_negative_infinities_is_negative_infinity():
    x, result = given("x", 20), output("r")
    kernel = compile_native(
        program(
            fill(result, -np.inf),
            Loop((20,), (Accumulate(result, (), ps.maximum, Load(x, (I0,))),)),
        )
    )
    assert kernel(np.full(20, -np.inf))[0] == -np.inf


def test_loop_invariant_term_is_added_once_per_index():
    x, total = given("x", 3), output("total")
    kernel = compile_native(
        program(fill(total), Loop((3, 21), (Accumulate(total, (), ps.add, Load(x, (I0,))),)))
    )
    assert kernel(np.array([1.0, 2.0, 4.0]))[0] == 21 * 7.0


ORDERS = {
    "random": lambda index: index,
    "sorted": np.sort,
    "one group": lambda index: np.full_like(index, 2),
    "alternating": lambda index: np.arange(index.size, dtype=index.dtype) % 2,
}


@both_kinds_of_lengths
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("index_dtype", ["int64", "uint8"])
def test_scatters_with_repeated_indices_agree_with_numpy(n, index_dtype, static):
    n_groups = 5
    size = sizes(n, static=static)
    index, x = given("i", *size, dtype=index_dtype), given("x", *size)
    sums, counts, total = output("sums", n_groups), output("counts", n_groups), output("total")
    group, value = Load(index, (I0,)), Load(x, (I0,))
    body = (
        Accumulate(sums, (group,), ps.add, value),
        Accumulate(counts, (group,), ps.add, Const(1.0, F64)),
        Accumulate(total, (), ps.add, value),
    )
    fills = map(fill, (sums, counts, total))
    kernel = compile_native(program(*fills, Loop(size, body), inputs=(index, x)))
    rng = np.random.default_rng(n)
    random, x_ = rng.integers(0, n_groups, n).astype(index_dtype), rng.normal(size=n)
    for in_order in ORDERS.values():
        index_ = in_order(random)
        sums_, counts_, total_ = kernel(index_, x_)
        expected = np.bincount(index_, x_, n_groups)
        np.testing.assert_allclose(sums_, expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(counts_, np.bincount(index_, minlength=n_groups))
        np.testing.assert_allclose(total_, x_.sum(), rtol=1e-13, atol=1e-13)


def test_scatter_by_a_costly_index_agrees_with_numpy():
    """A costly index is computed once per vector, a cheap one in each lane."""
    x, y = given("x", 50, dtype="int64"), output("y", 7)
    index: Expr = Load(x, (I0,))
    for number in (3, 5, 2):
        index = compute(ps.mul, index, Const(number, "int64"), dtype="int64")
        index = compute(ps.mod, index, Const(7, "int64"), dtype="int64")
    body = Accumulate(y, (index,), ps.add, Const(1.0, F64))
    kernel = compile_native(program(fill(y), Loop((50,), (body,))))
    data = np.random.default_rng(9).integers(0, 100, 50)
    np.testing.assert_array_equal(kernel(data)[0], np.bincount(data * 30 % 7, minlength=7))


@both_kinds_of_lengths
def test_scatter_of_a_matrix_agrees_with_numpy(static):
    shape = (6, 19)
    size = sizes(*shape, static=static)
    rows, columns = given("r", *size, dtype="int32"), given("c", *size, dtype="int64")
    x, y = given("x", *size), output("y", 4, 5)
    body = Accumulate(y, (Load(rows, (I0, I1)), Load(columns, (I0, I1))), ps.add, Load(x, (I0, I1)))
    kernel = compile_native(program(fill(y), Loop(size, (body,)), inputs=(rows, columns, x)))
    rng = np.random.default_rng(7)
    r, c = rng.integers(0, 4, shape).astype("int32"), rng.integers(0, 5, shape)
    data = rng.integers(-9, 9, shape).astype(F64)
    expected = np.zeros((4, 5))
    np.add.at(expected, (r, c), data)
    np.testing.assert_array_equal(kernel(r, c, data)[0], expected)


def test_accumulation_in_every_second_element_agrees_with_numpy():
    x, y = given("x", 21), output("y", 42)
    position = compute(ps.mul, I0, Const(2, "int64"), dtype="int64")
    body = Accumulate(y, (position,), ps.add, Load(x, (I0,)))
    kernel = compile_native(program(fill(y, 1.0), Loop((21,), (body,)), Loop((21,), (body,))))
    data = np.arange(21.0)
    expected = np.ones(42)
    expected[::2] += 2 * data
    np.testing.assert_array_equal(kernel(data)[0], expected)


def test_scatter_by_an_index_of_the_outer_axis_agrees_with_numpy():
    index, x, y = given("i", 12, dtype="int64"), given("x", 12, 18), output("y", 4)
    body = Accumulate(y, (Load(index, (I0,)),), ps.add, Load(x, (I0, I1)))
    kernel = compile_native(program(fill(y), Loop((12, 18), (body,)), inputs=(index, x)))
    rng = np.random.default_rng(8)
    index_, data = rng.integers(0, 4, 12), rng.integers(-9, 9, (12, 18)).astype(F64)
    np.testing.assert_array_equal(kernel(index_, data)[0], np.bincount(index_, data.sum(1), 4))
