"""Access patterns of indices and expressions, and the instructions chosen by them."""

import numpy as np
import pytest
from llvmlite import ir
from pytensor import scalar as ps
from pytensor.scalar import math as psm
from scipy import special

from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.emit.access_patterns import AccessPatterns
from pymc_fastlogp.kernel.ir.expressions import Const, Length, Load
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Store
from pymc_fastlogp.kernel.native.target import default_width
from tests.kernel.emitted import I0, I1, compute, fill, given, output, program
from tests.kernel.native_kernel import compile_native

INT = "int64"
W = default_width()


def integer(op, *args):
    return compute(op, *args, dtype=INT)


def number(value):
    return Const(value, INT)


SLOPES = [
    (I1, 1),
    (I0, 0),
    (number(3), 0),
    (integer(ps.add, I1, I0), 1),
    (integer(ps.add, I0, I1, number(2), I1), 2),
    (integer(ps.sub, number(9), I1), -1),
    (integer(ps.sub, integer(ps.mul, number(2), I1), integer(ps.mul, I1, number(5))), -3),
    (integer(ps.mul, integer(ps.sub, number(9), I1), number(2)), -2),
    (integer(ps.mul, I0, Length(0, 0)), 0),
    (integer(ps.mul, I1, Length(0, 0)), None),
    (integer(ps.mul, I1, I1), None),
    (integer(ps.int_div, I1, number(2)), None),
    (Load(given("g", 20, dtype=INT), (I1,)), None),
    (Load(given("g", 20, dtype=INT), (I0,)), 0),
]


@pytest.mark.parametrize(("index", "slope"), SLOPES, ids=range(len(SLOPES)))
def test_coefficient_of_the_inner_axis_is_read(index, slope):
    x, y = given("x", 100), output("y", 4, 20)
    patterns = AccessPatterns(Loop((4, 20), (Store(y, (I0, I1), Load(x, (index,))),)))
    assert patterns.coefficient(index) == slope


def test_expression_has_the_level_of_its_innermost_index():
    x, y = given("x", 4, 20), output("y", 4, 20)
    row, element = Load(x, (I0, number(0))), Load(x, (I0, I1))
    patterns = AccessPatterns(Loop((4, 20), (Store(y, (I0, I1), compute(ps.add, row, element)),)))
    assert [patterns.level[expr] for expr in (number(0), row, element)] == [0, 1, 2]


def instructions(a_program: Program) -> str:
    module = ir.Module("test")
    emit(module, a_program, "kernel", [True] * len(a_program.inputs))
    return str(module)


def copy_of(n, index=I0):
    x, y = given("x", n), output("y", n)
    return program(Loop((n,), (Store(y, (I0,), Load(x, (index,))),)))


def test_neighbors_are_one_load():
    code = instructions(copy_of(4 * W))
    assert f"load <{W} x double>" in code
    assert "masked" not in code


def test_the_rest_of_a_static_length_has_a_narrower_vector():
    assert "load <4 x double>" in instructions(copy_of(2 * W + 4))
    code = instructions(copy_of(2 * W + 3))
    assert "llvm.masked.load.v4f64" in code
    assert f"llvm.masked.load.v{W}f64" not in code


@pytest.mark.parametrize("n", [*range(1, 16), 2 * W + 13])
def test_accumulated_elements_have_no_masked_stores(n):
    x, y = given("x", 5, n), output("y", n)
    rows = Loop((5, n), (Accumulate(y, (I1,), ps.add, Load(x, (I0, I1))),))
    assert "masked" not in instructions(program(rows))
    data = np.random.default_rng(n).integers(-9, 9, (5, n)).astype("float64")
    [total] = compile_native(program(fill(y), rows))(data)
    np.testing.assert_array_equal(total, data.sum(axis=0))


def test_a_costly_value_is_computed_once_for_the_rest():
    x, y = given("x", 5, 13), output("y", 13)
    value = compute(ps.exp, Load(x, (I0, I1)))
    code = instructions(program(Loop((5, 13), (Accumulate(y, (I1,), ps.add, value),))))
    assert "masked.load" in code


def test_a_length_of_one_is_straight_line_code():
    code = instructions(copy_of(1))
    assert "phi" not in code.replace("phi  i64 [0,", "")
    assert "load <1 x double>" in code


def test_a_stride_of_two_is_a_gather(gathers):
    x, y = given("x", 8 * W), output("y", 4 * W)
    index = integer(ps.mul, I0, number(2))
    code = instructions(program(Loop((4 * W,), (Store(y, (I0,), Load(x, (index,))),))))
    assert (f'call <{W} x double> @"llvm.masked.gather.v{W}f64' in code) == gathers


def test_loop_invariant_code_leaves_the_inner_loop():
    x, y = given("x", 50), output("y", 50, 4 * W)
    row = compute(ps.sqrt, Load(x, (I0,)))
    code = instructions(program(Loop((50, 4 * W), (Store(y, (I0, I1), row),))))
    blocks = code.split("\nloop")
    with_sqrt = [block for block in blocks if 'call <1 x double> @"llvm.sqrt' in block]
    assert len(with_sqrt) == 1
    assert "store" not in with_sqrt[0]


def test_common_subexpressions_are_evaluated_once():
    x, y, total = given("x", 4 * W), output("y", 4 * W), output("total")
    root = compute(ps.sqrt, Load(x, (I0,)))
    body = (
        Store(y, (I0,), compute(ps.add, root, root)),
        Accumulate(total, (), ps.add, root),
    )
    code = instructions(program(fill(total), Loop((4 * W,), body)))
    assert code.count(f'call <{W} x double> @"llvm.sqrt') == 1


def test_functions_of_one_argument_are_evaluated_together():
    x, y, z = given("x", 4 * W), output("y", 4 * W), output("z", 4 * W)
    value = Load(x, (I0,))
    sigmoid, softplus = (compute(op, value) for op in (psm.sigmoid, psm.softplus))
    both = Loop((4 * W,), (Store(y, (I0,), sigmoid), Store(z, (I0,), softplus)))
    shared = AccessPatterns(both).shared
    assert shared[sigmoid] == shared[softplus]
    assert {*shared[sigmoid].results} == {sigmoid, softplus}
    assert not AccessPatterns(Loop((4 * W,), (Store(y, (I0,), sigmoid),))).shared

    data = np.random.default_rng(0).normal(size=4 * W)
    values = compile_native(program(both, inputs=(x,)))(data)
    np.testing.assert_allclose(values, [special.expit(data), np.logaddexp(0, data)], rtol=1e-15)
