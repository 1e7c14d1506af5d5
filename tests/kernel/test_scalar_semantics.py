"""Scalar Ops on vectors give what upstream's compiled scalar functions give, for every dtype."""

import operator

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir
from numpy.testing import assert_allclose, assert_array_equal
from pymc.distributions.dist_math import i0e_scalar, i1e_scalar
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.scalar import basic as ps
from pytensor.scalar import math as psm
from scipy.special import polygamma

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.scalars.quotient import Quotient
from pymc_fastlogp.kernel.scalars.softplus_sum import SoftplusSum
from pymc_fastlogp.kernel.vecmath.table import SHARED
from tests.kernel.scalar_loop import apply, emit_module, make_node, types_of

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.7, -8.25, 1e300, 5e-324, 16777217.0]
NOT_FINITE = [np.nan, np.inf, -np.inf]
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 100, -128, 127, -(2**63), 2**63 - 1, 2**53 + 1, 2**31]

FLOAT_TYPES = ("float64", "float32")
INTEGER_TYPES = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8")
DTYPES = (*FLOAT_TYPES, *INTEGER_TYPES, "bool")
WIDEST_AND_NARROWEST = (*FLOAT_TYPES, "int64", "int8", "uint32", "uint8", "bool")
PAIRS = (
    *((dtype, dtype) for dtype in WIDEST_AND_NARROWEST),
    *(("float64", "int64"), ("int8", "float32"), ("int16", "float32"), ("bool", "float64")),
    *(("int8", "int64"), ("uint8", "int8"), ("uint32", "int32"), ("bool", "int8")),
)

UNARY = (
    *(ps.neg, ps.abs, ps.sign, ps.sqr, ps.sqrt, ps.reciprocal, ps.floor, ps.ceil, ps.trunc),
    *(ps.round_half_to_even, ps.isnan, ps.isinf, ps.invert, ps.identity),
    *(ps.convert_to_bool, ps.convert_to_float32, ps.convert_to_float64),
)
INTEGER_CASTS = tuple(getattr(ps, f"convert_to_{dtype}") for dtype in INTEGER_TYPES)
BINARY = (
    *(ps.add, ps.sub, ps.mul, ps.true_div, ps.int_div, ps.mod, ps.maximum, ps.minimum),
    *(ps.lt, ps.gt, ps.le, ps.ge, ps.eq, ps.neq, ps.and_, ps.or_, ps.xor, ps.second),
)


def edges(dtype):
    """Return numbers of a dtype, its extremes among them."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype not in FLOAT_TYPES:
        return np.unique(np.array(INTEGERS).astype(dtype))
    with np.errstate(over="ignore", under="ignore"):
        return np.array([*FLOATS, *NOT_FINITE]).astype(dtype)


def combinations(*dtypes):
    """Return all combinations of these numbers, one array for each dtype."""
    return [column.ravel() for column in np.meshgrid(*map(edges, dtypes))]


def is_comparable(op, *dtypes):
    """Return whether PyTensor has the Op for these types and computes it as precisely as its type."""
    if op in (ps.reciprocal, ps.true_div) and not {*FLOAT_TYPES} & {*dtypes}:
        return False
    if op is ps.int_div and "float32" in dtypes:
        return False
    try:
        make_node(op, dtypes)
    except (TypeError, NotImplementedError):
        return False
    return True


def upstream(ops, *arrays):
    """Return the results of upstream's scalar functions, compiled by Numba in one loop."""
    dtypes = tuple(str(array.dtype) for array in arrays)
    nodes = [make_node(op, dtypes) for op in ops]
    arguments = ", ".join(f"x{i}[k]" for i in range(len(arrays)))
    lines = "".join(f"        out[{i}][k] = f{i}({arguments})\n" for i in range(len(ops)))
    names = ", ".join(f"x{i}" for i in range(len(arrays)))
    namespace = {f"f{i}": numba_funcify(node.op, node=node) for i, node in enumerate(nodes)}
    exec(f"def loop(out, {names}):\n    for k in range(x0.size):\n{lines}", namespace)
    out = tuple(np.empty(arrays[0].size, node.outputs[0].type.dtype) for node in nodes)
    numba.njit(namespace["loop"])(out, *arrays)
    return out


def assert_as_upstream(ops, *arrays):
    for op, expected in zip(ops, upstream(ops, *arrays)):
        assert_array_equal(apply(op, *arrays), expected, str(op))


@pytest.mark.parametrize("dtype", WIDEST_AND_NARROWEST)
def test_ops_of_one_argument(dtype):
    ops = [op for op in UNARY if is_comparable(op, dtype)]
    assert_as_upstream(ops, edges(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_to_integers(dtype):
    x = edges(dtype)
    # Where the number is not in the range of the integers, the result is nobody's promise.
    x = x[(x > -(2**31)) & (x < 2**31)] if dtype in FLOAT_TYPES else x
    assert_as_upstream(INTEGER_CASTS[:2] if dtype in FLOAT_TYPES else INTEGER_CASTS, x)


@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
def test_ops_of_two_arguments(dtypes):
    x, y = combinations(*dtypes)
    # Upstream's division stops the process there; test_integer_division_is_numpys has it.
    x, y = np.where(y == -1, 1, x).astype(x.dtype), y
    ops = [
        op
        for op in BINARY
        if is_comparable(op, *dtypes) and scalars.is_supported(op, *types_of(op, x, y))
    ]
    assert_as_upstream(ops, x, y)


@pytest.mark.parametrize("dtype", [*INTEGER_TYPES, "bool"])
def test_quotients_of_integers_are_those_of_doubles(dtype):
    x, y = combinations(dtype, dtype)
    with np.errstate(all="ignore"):
        quotient = x.astype("float64") / y.astype("float64")
        reciprocal = (1.0 / x.astype("float64")).astype(types_of(ps.reciprocal, x)[1])
    assert_array_equal(apply(ps.true_div, x, y), quotient)
    assert_array_equal(apply(ps.reciprocal, x), reciprocal)


def test_floor_division_of_float32_is_numpys():
    x, y = combinations("float32", "int8")
    finite = np.isfinite(x) & (y != 0)
    expected = np.floor_divide(x[finite], y[finite])
    assert_array_equal(apply(ps.int_div, x[finite], y[finite]), expected)


@pytest.mark.parametrize("dtype", WIDEST_AND_NARROWEST)
def test_clip(dtype):
    x, low, high = combinations(dtype, dtype, dtype)
    if dtype == "bool":
        assert not scalars.is_supported(ps.clip, *types_of(ps.clip, x, low, high))
    else:
        assert_as_upstream([ps.clip], x, low, high)


@pytest.mark.parametrize("dtype", WIDEST_AND_NARROWEST[2:])
def test_sums_and_products_of_three(dtype):
    assert_as_upstream([ps.add, ps.mul], *combinations(dtype, dtype, dtype))


def test_a_sum_of_three_float32_is_rounded_once():
    x, y, z = combinations("float32", "float32", "float32")
    with np.errstate(all="ignore"):
        total = x.astype("float64") + y + z
        assert_array_equal(apply(ps.add, x, y, z), total.astype("float32"))


@pytest.mark.parametrize("condition", WIDEST_AND_NARROWEST)
def test_switch(condition):
    assert_as_upstream([ps.switch], *combinations(condition, "float32", "int32"))


def test_round_half_away_from_zero():
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 2.0**52 + 1, np.inf, np.nan])
    expected = [1.0, -1.0, 2.0, 3.0, -3.0, 0.0, 2.0**52 + 1, np.inf, np.nan]
    assert_array_equal(apply(ps.round_half_away_from_zero, x), expected)


INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=100)
@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=20))
def test_integer_division_is_numpys(pairs):
    x, y = np.array(pairs).T.copy()
    with np.errstate(all="ignore"):
        assert_array_equal(apply(ps.int_div, x, y), x // y)
        assert_array_equal(apply(ps.mod, x, y), x % y)


FLOAT32 = st.floats(width=32)


@settings(max_examples=100)
@given(st.lists(st.tuples(FLOAT32, FLOAT32), min_size=1, max_size=20))
def test_float32_arithmetic_rounds_as_if_once(pairs):
    x, y = np.array(pairs, dtype="float32").T.copy()
    arithmetic = {ps.add: operator.add, ps.sub: operator.sub, ps.mul: operator.mul}
    with np.errstate(all="ignore"):
        for op, reference in {**arithmetic, ps.true_div: operator.truediv}.items():
            assert_array_equal(apply(op, x, y), reference(x, y))
        assert_array_equal(apply(ps.sqrt, x), np.sqrt(x))


@settings(max_examples=100)
@given(st.lists(INT64, min_size=1, max_size=20))
def test_large_integers_are_rounded_once_to_float32(numbers):
    x = np.array(numbers)
    assert_array_equal(apply(ps.convert_to_float32, x), x.astype("float32"))


# Ops that are a vector function or call upstream, at arguments where upstream is accurate too.
POSITIVE = np.linspace(0.05, 9.0, 40)
UNIT = np.linspace(-0.95, 0.95, 40)
FALLING = POSITIVE[::-1].copy()
ELEMENTARY = (
    *(
        ps.sqrt,
        ps.exp,
        ps.exp2,
        ps.expm1,
        ps.log,
        ps.log1p,
        ps.log2,
        ps.log10,
        ps.sin,
        ps.cos,
        ps.tan,
    ),
    *(ps.sinh, ps.cosh, ps.tanh, ps.arctan, ps.arcsinh, psm.sigmoid, psm.softplus, psm.erf),
    *(psm.erfc, psm.erfcx, psm.gamma, psm.gammaln, psm.psi, psm.i0, psm.i1, psm.j0, psm.j1),
    *(i0e_scalar, i1e_scalar),
)
FUNCTIONS = (
    (ELEMENTARY, [POSITIVE]),
    ((ps.arcsin, ps.arccos, ps.arctanh, psm.erfinv), [UNIT]),
    ((psm.log1mexp, psm.ndtri_exp), [-POSITIVE]),
    ((ps.arccosh, psm.erfcinv), [1.0 + POSITIVE / 10]),
    ((ps.pow, ps.arctan2, psm.owens_t, psm.gammainc, psm.gammaincc), [POSITIVE, FALLING]),
    ((psm.jv, psm.ive, psm.kve), [POSITIVE, FALLING]),
    ((psm.gammaincinv, psm.gammainccinv), [POSITIVE, np.abs(UNIT)]),
    ((psm.betainc, psm.betaincinv), [POSITIVE, FALLING, np.abs(UNIT)]),
    ((psm.hyp2f1,), [POSITIVE, FALLING, POSITIVE + 1, UNIT / 2]),
)


def test_every_row_of_the_table_is_tested():
    functions = {type(op) for ops, _ in FUNCTIONS for op in ops} | {psm.TriGamma}
    arithmetic = {type(op) for op in (*UNARY, *BINARY, *INTEGER_CASTS, ps.clip, ps.switch)}
    elsewhere = {ps.RoundHalfAwayFromZero, Quotient, SoftplusSum}
    assert functions | arithmetic | elsewhere == set(scalars.ROWS)


@pytest.mark.parametrize(("ops", "arguments"), FUNCTIONS, ids=[str(ops[0]) for ops, _ in FUNCTIONS])
def test_functions(ops, arguments):
    for op, expected in zip(ops, upstream(ops, *arguments)):
        assert_allclose(apply(op, *arguments), expected, rtol=2e-14, atol=1e-15, err_msg=str(op))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool"])
def test_functions_of_other_types(dtype):
    x = np.array([0, 1] * 20 if dtype == "bool" else POSITIVE[::2]).astype(dtype)
    for op in (ps.exp, ps.sqrt, psm.gammaln, psm.i0):
        _, output_dtype = types_of(op, x)
        result, exact = apply(op, x), apply(op, x.astype("float64"))
        assert_array_equal(result, exact.astype(output_dtype), str(op))


def test_trigamma_is_scipys():
    # Upstream has no compiled form of it.
    assert_allclose(apply(psm.tri_gamma, POSITIVE), polygamma(1, POSITIVE), rtol=1e-14)


@pytest.mark.parametrize("width", [1, 3, 16])
def test_result_does_not_depend_on_the_width(width):
    x, y = combinations("int8", "float32")
    for op in (ps.add, ps.lt, ps.pow, psm.betainc):
        arguments = [x, y, y][: 3 if op is psm.betainc else 2]
        assert_array_equal(apply(op, *arguments, width=width), apply(op, *arguments))


@pytest.mark.parametrize(("op", "n"), [(ps.add, 2), (ps.sub, 2), (ps.mul, 2), (ps.sqr, 1)], ids=str)
def test_arithmetic_of_the_model_may_contract(op, n):
    assert " contract " in str(emit_module(op, ["float64"] * n, "float64", 4))


@pytest.mark.parametrize("op", [ps.exp, psm.sigmoid, psm.gammaln, ps.true_div], ids=str)
def test_other_operations_have_no_fast_math_flags(op):
    n = 2 if op is ps.true_div else 1
    assert " contract " not in str(emit_module(op, ["float64"] * n, "float64", 4))


@pytest.mark.parametrize("name", scalars.SHARED_OPS.values())
def test_shared_ops_are_in_the_order_of_the_results(name):
    (ops,) = [ops for ops, shared in scalars.SHARED_OPS.items() if shared == name]
    assert tuple(scalars.ROWS[op].computed_by for op in ops) == SHARED[name].results


@pytest.mark.parametrize(
    ("op", "dtypes", "output"),
    [
        (ps.add, ["uint64", "uint64"], "uint64"),
        (ps.mul, ["complex128", "complex128"], "complex128"),
        (ps.sqr, ["float16"], "float16"),
        (ps.pow, ["int64", "int64"], "int64"),
        (psm.polygamma, ["float64", "float64"], "float64"),
    ],
)
def test_operations_without_vector_form_are_refused(op, dtypes, output):
    assert not scalars.is_supported(op, dtypes, output)
    with pytest.raises(NotImplementedError, match="no vector form of"):
        scalars.emit(op, [], dtypes, output)


@pytest.mark.parametrize(
    ("value", "dtype", "held"),
    [
        (0.1, "float32", 0.10000000149011612),
        (300, "int8", 44),
        (-1, "uint32", 4294967295),
        (2, "bool", True),
        (np.inf, "float64", np.inf),
    ],
)
def test_constants_are_of_the_dtype(value, dtype, held):
    lanes = scalars.constant(ir.IRBuilder(), 2, value, dtype)
    assert [number.constant for number in lanes.value.constant] == [held, held]
