"""Scatters: known properties of an index select the code, and every variant agrees with ``ufunc.at``."""

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from llvmlite import ir
from pytensor import scalar as ps
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.analysis.index_facts import FAR, Neighbors, index_facts, neighbors_of
from pymc_fastlogp.kernel.emit import emit
from pymc_fastlogp.kernel.emit.scope import CHEAP
from pymc_fastlogp.kernel.ir.arithmetic import identity
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Load
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native.target import checks_bounds, default_width
from pymc_fastlogp.kernel.passes import optimize
from tests.kernel.emitted import F64, I0, I1, compute, fill, given, output, program, sizes
from tests.kernel.lowering import case, check_value
from tests.kernel.native_kernel import compile_native
from tests.kernel.test_emit_accumulate import SUPPORTED, UFUNCS, numbers
from tests.slices import examples

W = default_width()
N_GROUPS = 7
RUNS, SHORT_RUNS, APART = Neighbors(W, 1), Neighbors(W - 1, 1), Neighbors(1, W)


def sums_by_group(n, neighbors, *, static=True, n_operations=0):
    """Return the program that adds numbers, and how many there are, by group, whose number may take operations that leave it as it is."""
    [size] = sizes(n, static=static)
    index, x = given("i", size, dtype="int32"), given("x", size)
    sums, counts = output("sums", N_GROUPS), output("counts", N_GROUPS)
    number = Load(index, (I0,))
    for _ in range(n_operations):
        number = Compute(ps.abs, (number,), "int32")
    group = (number,)
    body = (
        Accumulate(sums, group, ps.add, Load(x, (I0,)), neighbors),
        Accumulate(counts, group, ps.add, Const(1.0, F64), neighbors),
    )
    return program(fill(sums), fill(counts), Loop((size,), body), inputs=(index, x))


def instructions(neighbors):
    module = ir.Module("test")
    emit(module, sums_by_group(5 * W, neighbors), "kernel", [True, True])
    return str(module)


@pytest.mark.parametrize(
    ("neighbors", "tests", "scatters"),
    [(None, 1, 0), (RUNS, 2, 0), (SHORT_RUNS, 0, 0), (APART, 0, 2), (Neighbors(1, W - 1), 0, 0)],
)
def test_the_code_follows_from_what_is_known(neighbors, tests, scatters, gathers):
    """Tests of whole vectors, and instructions that write a vector to several places."""
    code = instructions(neighbors)
    assert code.count('call i1 @"llvm.vector.reduce.and') == tests
    assert code.count('call void @"llvm.masked.scatter') == (scatters if gathers else 0)


INDICES = {
    "random": lambda rng, n: rng.integers(0, N_GROUPS, n),
    "sorted": lambda rng, n: np.sort(rng.integers(0, N_GROUPS, n)),
    "descending": lambda rng, n: np.sort(rng.integers(0, N_GROUPS, n))[::-1],
    "one group": lambda rng, n: np.full(n, 3),
    "the first group": lambda rng, n: np.zeros(n, dtype=int),
    "groups of a vector": lambda rng, n: np.arange(n) // W % N_GROUPS,
    "a run between short ones": lambda rng, n: np.where(
        np.arange(n) % (5 * W) < 3 * W, 5, np.arange(n) % N_GROUPS
    ),
}


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("n", [0, 1, W - 1, W, W + 3, 2 * W, 1000])
def test_runs_in_registers_are_right_for_any_index(n, static):
    kernel = compile_native(sums_by_group(n, RUNS, static=static))
    rng = np.random.default_rng(n)
    for make in INDICES.values():
        index, x = make(rng, n).astype("int32"), rng.normal(size=n)
        sums, counts = kernel(index, x)
        np.testing.assert_allclose(sums, np.bincount(index, x, N_GROUPS), rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(counts, np.bincount(index, minlength=N_GROUPS))


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("neighbors", [RUNS, SHORT_RUNS, None])
@pytest.mark.parametrize("n", [1, W - 1, W, W + 1, W + 3, 5 * W + 1])
def test_index_is_computed_once_per_vector(n, neighbors, static):
    """A loop may end with one row, which is no vector."""
    kernel = compile_native(sums_by_group(n, neighbors, static=static, n_operations=CHEAP + 1))
    rng = np.random.default_rng(0)
    index, x = np.sort(rng.integers(0, N_GROUPS, n)).astype("int32"), rng.normal(size=n)
    sums, counts = kernel(index, x)
    np.testing.assert_allclose(sums, np.bincount(index, x, N_GROUPS), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=N_GROUPS))


def products_by_group(n, neighbors, *, dtype=F64, static=True):
    """Return the program that adds ``x * table[i + 1]`` by group."""
    [size] = sizes(n, static=static)
    index, x = given("i", size, dtype="int32"), given("x", size)
    table, sums = given("table", N_GROUPS + 1, dtype=dtype), output("sums", N_GROUPS)
    group = Load(index, (I0,))
    number = compute(ps.add, group, Const(1, "int64"), dtype="int64")
    product = compute(ps.mul, Load(table, (number,)), Load(x, (I0,)))
    body = Accumulate(sums, (group,), ps.add, product, neighbors)
    return program(fill(sums), Loop((size,), (body,)), inputs=(index, x, table))


@pytest.mark.skipif(checks_bounds(), reason="checks of bounds have vectors of truth values, too")
@pytest.mark.parametrize(("neighbors", "choices"), [(RUNS, 1), (SHORT_RUNS, 0), (APART, 0)])
def test_a_gather_by_runs_chooses_between_two_loads(neighbors, choices):
    module = ir.Module("test")
    emit(module, products_by_group(5 * W, neighbors), "kernel", [True] * 3)
    assert str(module).count('!"branch_weights"') == choices


@pytest.mark.parametrize("n_groups", [1, N_GROUPS, 5_000])
@pytest.mark.parametrize("n", [W - 1, 2 * W, 3 * W + 1, 20_000])
def test_products_of_gathers_are_added_to_both_tables(n, n_groups, gathers):
    """The gradient of ``(u[i] * w[j] * x).sum()``, with conflicts within a vector and between vectors."""
    inputs = (given("i", n, dtype="uint16"), given("j", n, dtype="uint16"), given("x", n))
    tables = given("u", n_groups), given("w", n_groups)
    sums = output("du", n_groups), output("dw", n_groups)
    *groups, x = (Load(each, (I0,)) for each in inputs)
    read = [Load(table, (group,)) for table, group in zip(tables, groups)]
    body = [
        Accumulate(y, (group,), ps.add, compute(ps.mul, x, other), SHORT_RUNS)
        for y, group, other in zip(sums, groups, reversed(read))
    ]
    kernel = compile_native(
        program(*map(fill, sums), Loop((n,), tuple(body)), inputs=(*inputs, *tables))
    )
    rng = np.random.default_rng(n)
    i, j = rng.integers(0, n_groups, (2, n)).astype("uint16")
    data, (u, w) = rng.normal(size=n), rng.normal(size=(2, n_groups))
    du, dw = kernel(i, j, data, u, w)
    np.testing.assert_allclose(du, np.bincount(i, data * w[j], n_groups), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(dw, np.bincount(j, data * u[i], n_groups), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("dtype", [F64, "float32", "int16", "bool"])
@pytest.mark.parametrize("n", [1, W, 2 * W + 3, 1000])
def test_gathers_by_runs_are_right_for_any_index(n, dtype, static):
    kernel = compile_native(products_by_group(n, RUNS, dtype=dtype, static=static))
    rng = np.random.default_rng(n)
    table = rng.integers(0, 2 if dtype == "bool" else 90, N_GROUPS + 1).astype(dtype)
    for make in INDICES.values():
        index, x = make(rng, n).astype("int32"), rng.normal(size=n)
        expected = np.bincount(index, x * table[index + 1], N_GROUPS)
        [sums] = kernel(index, x, table)
        np.testing.assert_allclose(sums, expected, rtol=1e-13, atol=1e-11)


@pytest.mark.parametrize(("op", "dtype"), SUPPORTED, ids=lambda value: str(value))
def test_every_operation_and_type_in_runs(op, dtype):
    n = 5 * W + 3
    x, index = given("x", n, dtype=dtype), given("i", n, dtype="int32")
    parts = output("parts", 3, dtype=dtype)
    body = Accumulate(parts, (Load(index, (I0,)),), op, Load(x, (I0,)), RUNS)
    kernel = compile_native(
        program(fill(parts, identity(op, dtype).value), Loop((n,), (body,)), inputs=(x, index))
    )
    data, index_ = numbers(n, dtype), np.repeat([0, 1, 2], [2 * W + 1, 7, 3 * W - 5])
    [found] = kernel(data, index_.astype("int32"))
    expected = [UFUNCS[op].reduce(data[index_ == group], dtype=dtype) for group in range(3)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("neighbors", [RUNS, SHORT_RUNS, None])
def test_non_finite_value_stays_in_its_group(bad, neighbors):
    index = np.repeat([1, 4, 6], [W + 5, 2 * W, 3]).astype("int32")
    kernel = compile_native(sums_by_group(index.size, neighbors))
    for position in (0, W + 4, W + 5, index.size - 1):
        x = np.ones(index.size)
        x[position] = bad
        sums, _ = kernel(index, x)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(sums, np.bincount(index, x, N_GROUPS))


def test_runs_leave_the_sign_of_a_zero_that_they_do_not_reach():
    index, x, y = given("i", 2 * W, dtype="int32"), given("x", 2 * W), output("y", 3)
    body = Accumulate(y, (Load(index, (I0,)),), ps.add, Load(x, (I0,)), RUNS)
    loop = Loop((2 * W,), (body,))
    kernel = compile_native(program(fill(y, -0.0), loop, inputs=(index, x)))
    [found] = kernel(np.full(2 * W, 2, dtype="int32"), np.ones(2 * W))
    np.testing.assert_array_equal(np.signbit(found), [True, True, False])


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
def test_runs_in_each_row_of_a_matrix(static):
    """The row is part of the element, and no run goes on in the next one."""
    shape = (4, 3 * W + 2)
    size = sizes(*shape, static=static)
    x, index, y = given("x", *size), given("i", shape[1], dtype="int32"), output("y", 4, 3)
    body = Accumulate(y, (I0, Load(index, (I1,))), ps.add, Load(x, (I0, I1)), RUNS)
    loop = Loop(size, (body,))
    kernel = compile_native(program(fill(y), loop, inputs=(x, index)))
    data = np.random.default_rng(1).integers(-9, 9, shape).astype(F64)
    index_ = np.repeat([2, 0, 1], [W + 1, 1, 2 * W]).astype("int32")
    expected = [np.bincount(index_, row, 3) for row in data]
    np.testing.assert_array_equal(kernel(data, index_)[0], expected)


@pytest.mark.parametrize("static", [True, False], ids=["static", "runtime"])
@pytest.mark.parametrize("n", [0, 1, W - 1, W, W + 3, 5 * W])
def test_lanes_that_differ_are_added_as_vectors(n, static, gathers):
    [size] = sizes(n, static=static)
    index, x = given("i", size, dtype="int32"), given("x", size)
    y = output("y", 2 * W)
    body = Accumulate(y, (Load(index, (I0,)),), ps.add, Load(x, (I0,)), APART)
    kernel = compile_native(program(fill(y), Loop((size,), (body,)), inputs=(index, x)))
    rng = np.random.default_rng(n)
    # Each number as often as the others, in an order that is the same from one vector to the next.
    index_ = np.resize(rng.permutation(2 * W)[: W + 1], n).astype("int32")
    data = rng.integers(-9, 9, n).astype(F64)
    np.testing.assert_array_equal(kernel(index_, data)[0], np.bincount(index_, data, 2 * W))


@pytest.mark.parametrize(
    ("vector", "neighbors"),
    [
        ([3], Neighbors(1, FAR)),
        ([3, 3], Neighbors(2, 1)),
        ([0, 0, 0, 5, 5, 1], Neighbors(2, 1)),
        ([0, 1, 0, 2], Neighbors(1, 2)),
        ([0, 1, 2, 0], Neighbors(1, 3)),
        (np.arange(40) % 11, Neighbors(1, 11)),
        (np.arange(40) % 20, Neighbors(1, FAR)),
        (np.arange(200, dtype="uint8") // 50, Neighbors(50, 1)),
    ],
)
def test_runs_and_gaps(vector, neighbors):
    assert neighbors_of(np.array(vector)) == neighbors


def known_neighbors(index, *, of_matrix=False, columns=False):
    """Return what lowering knows of a scatter with a constant index into a vector, or rows of a matrix."""
    x = pt.tensor("x", shape=(index.size, 3) if of_matrix else index.shape)
    base = pt.zeros((40, 3) if of_matrix else 40)
    i = pt.tensor("i", dtype="int64", shape=index.shape)
    chosen = i[::-1] if columns else i
    scattered = base[chosen].inc(x)
    fgraph = FunctionGraph([x, i], [scattered], clone=False)
    loops = optimize(lower(fgraph, [None, index_facts(index)])).steps
    return {s.neighbors for loop in loops for s in loop.body if isinstance(s, Accumulate)}


def test_runs_of_a_constant_index_are_known():
    index = np.repeat([1, 7, 9], 20)
    assert known_neighbors(index) == {Neighbors(20, 1)}
    assert known_neighbors(index, of_matrix=True) == {Neighbors(20, 1)}


def test_runs_of_other_indices_are_unknown():
    index = np.repeat([1, 7, 9], 20)
    assert known_neighbors(index.reshape(3, 20)) == {None}
    assert known_neighbors(index, columns=True) == {None}
    # -1 and 39 are the same element.
    assert known_neighbors(np.resize([-1, *range(20, 40)], 60)) == {None}


@st.composite
def indices(draw):
    """Return an index of runs: sorted or not, with duplicates, negative numbers, or empty."""
    values = draw(st.lists(st.integers(-8, 7), max_size=12, unique=draw(st.booleans())))
    lengths = [draw(st.sampled_from([1, 2, W - 1, W, 3 * W])) for _ in values]
    index = np.repeat(np.array(values, dtype="int64"), lengths)
    kind = draw(st.sampled_from(["as drawn", "sorted", "positive", "permuted", "repeated"]))
    match kind:
        case "sorted":
            return np.sort(index)
        case "positive":
            return index % 8
        case "permuted":
            return np.random.default_rng(draw(st.integers(0, 99))).permutation(index)
        case "repeated":
            return np.resize(index, 3 * index.size)
    return index


@drawn(indices(), st.booleans(), st.booleans())
@settings(max_examples=examples(12, 120))
def test_random_scatters_agree_with_upstream(index, is_constant, static):
    """Into a vector and into rows of a matrix, with what is known of the index and without."""

    def build(x, i):
        once, twice = pt.zeros(8)[i].inc(pt.tanh(x)), pt.ones((8, 2))[i].inc(x[:, None])
        return [once, twice, once[i] * x]

    x = np.random.default_rng(index.size).normal(size=index.size)
    check_value(case(build, x, index), static=static, known=(1,) if is_constant else ())


def test_index_constant_embedded_in_code():
    index = np.repeat(np.arange(8), [29, 1, 28, 2, 27, 3, 26, 4])
    x = np.random.default_rng(0).normal(size=index.size)
    check_value(case(lambda x: pt.zeros(8)[index].inc(x**2), x))
