"""A failed check ends the kernel with the error of the program."""

import numpy as np
import pytest
from pytensor import scalar as ps

from pymc_fastlogp.kernel.emit import buffers
from pymc_fastlogp.kernel.ir.expressions import Const, Length, Load
from pymc_fastlogp.kernel.ir.loops import Check, Error, Loop, Store
from tests.kernel.emitted import F64, I0, I1, compute, given, output, program, scratch
from tests.kernel.native_kernel import compile_native

POSITIVE, SMALL = Error(ValueError, "sigma > 0"), Error(IndexError, "x < 100")


def is_positive(x):
    return compute(ps.gt, x, Const(0.0, F64), dtype="bool")


def is_small(x):
    return compute(ps.lt, x, Const(100.0, F64), dtype="bool")


@pytest.fixture(scope="module")
def kernel():
    x, y = given("x", Length(0, 0)), output("y", Length(0, 0))
    value = Load(x, (I0,))
    body = (Check(is_positive(value), 1), Store(y, (I0,), value), Check(is_small(value), 2))
    return compile_native(program(Loop(x.shape, body), errors=(POSITIVE, SMALL)))


@pytest.mark.parametrize("n", [1, 15, 16, 50])
def test_condition_that_fails_in_one_element_raises(kernel, n):
    np.testing.assert_array_equal(kernel(np.ones(n))[0], np.ones(n))
    for position in {0, n // 2, n - 1}:
        data = np.ones(n)
        data[position] = -1.0
        with pytest.raises(ValueError, match="sigma > 0"):
            kernel(data)
        data[position] = 1000.0
        with pytest.raises(IndexError, match="x < 100"):
            kernel(data)


def test_the_first_check_of_a_loop_counts(kernel):
    with pytest.raises(ValueError, match="sigma > 0"):
        kernel(np.array([1000.0, -1.0]))


def test_empty_domain_has_no_checks(kernel):
    assert kernel(np.ones(0))[0].size == 0


def test_a_check_outside_of_loops_ends_at_once():
    x, y = given("x"), output("y")
    one = Const(1.0, F64)
    body = (Store(y, (), one), Check(is_positive(Load(x, ())), 1), Store(y, (), Const(2.0, F64)))
    kernel = compile_native(program(Loop((), body), errors=(POSITIVE,)))
    out = np.zeros(())
    with pytest.raises(ValueError, match="sigma > 0"):
        kernel.run(kernel.arguments([np.array(-1.0)], [out]))
    assert out == 1.0
    kernel.run(kernel.arguments([np.array(1.0)], [out]))
    assert out == 2.0


def test_scratch_is_given_back_where_a_check_fails():
    """A leak of 80 MB a call would need 16 GB."""
    n = buffers.STACK_BYTES * 160
    x, large, y = given("x", 3), scratch("large", n), output("y")
    zero = Const(0, "int64")
    kernel = compile_native(
        program(
            Loop((1,), (Store(large, (I0,), Load(x, (zero,))),)),
            Loop((3, 2), (Check(is_positive(Load(x, (I0,))), 1),)),
            Loop((), (Store(y, (), Load(large, (zero,))),)),
            errors=(POSITIVE,),
        )
    )
    for _ in range(200):
        with pytest.raises(ValueError, match="sigma > 0"):
            kernel(np.array([1.0, 2.0, -1.0]))
    assert kernel(np.array([5.0, 2.0, 1.0]))[0] == 5.0


def test_failed_scratch_allocation_is_an_error():
    x, large, y = given("x", Length(0, 0)), output("y"), output("y")
    size = compute(ps.mul, Length(0, 0), Const(1 << 50, "int64"), dtype="int64")
    large = scratch("large", size)
    zero = Const(0, "int64")
    kernel = compile_native(
        program(
            Loop(x.shape, (Store(large, (I0,), Load(x, (I0,))),)),
            Loop((), (Store(y, (), Load(large, (zero,))),)),
        )
    )
    with pytest.raises(MemoryError, match="scratch"):
        kernel(np.ones(3))


def test_a_check_of_what_is_known_outside_the_inner_loop():
    x, y = given("x", 4), output("y", 4, 20)
    body = (Check(is_positive(Load(x, (I0,))), 1), Store(y, (I0, I1), Load(x, (I0,))))
    kernel = compile_native(program(Loop((4, 20), body), errors=(POSITIVE,)))
    data = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(kernel(data)[0], np.repeat(data[:, None], 20, axis=1))
    with pytest.raises(ValueError, match="sigma > 0"):
        kernel(data - 3.5)
