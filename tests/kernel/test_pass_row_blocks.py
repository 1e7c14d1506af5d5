"""Blocks of rows: products with a matrix and the loops between them, refusals, and equal results with helper threads."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.loops import BlockLoop, Call
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.ir.traversal import loops_in, sequential_loops
from pymc_fastlogp.kernel.lower import products
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode
from pymc_fastlogp.kernel.passes import chunk, row_blocks
from pymc_fastlogp.kernel.threads.helpers import Helpers, has_tasks
from tests.kernel import check
from tests.kernel.lowering import assert_same, evaluated, lowered
from tests.kernel.native_kernel import NAME, compile_native

N, P = 75, 7
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_matrices_have_blocks(monkeypatch):
    """Multiply matrices of any size by BLAS, and make blocks as small as possible."""
    monkeypatch.setattr(products, "LARGEST_WITH_VECTOR", 0)
    monkeypatch.setattr(products, "LARGEST", 0)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 0)


@pytest.fixture
def splits_all(monkeypatch):
    """Split all loops that can be split."""
    monkeypatch.setattr(chunk, "LONG", 0)
    monkeypatch.setattr(chunk, "SHORT", 0)
    monkeypatch.setattr(chunk, "CHUNK", 0)
    monkeypatch.setattr(chunk, "MERGING", np.inf)


def optimized(build, arrays):
    """Return the program of a graph of arrays, whose integer arrays are constants."""
    return check.optimize(lowered(build, arrays))


def block_loops(program):
    return [loop for loop in sequential_loops(program.steps) if isinstance(loop, BlockLoop)]


def calls(program):
    """Return the names of the called functions in order."""
    statements = (s for loop in loops_in(program.steps) for s in loop.body)
    return [s.function for s in statements if isinstance(s, Call)]


def expected(build, arrays):
    inputs = [pt.tensor(f"x{i}", dtype=x.dtype, shape=x.shape) for i, x in enumerate(arrays)]
    return evaluated(inputs, build(*inputs), arrays)


def check_blocks(build, arrays):
    """Assert that a graph has blocks and the values of PyTensor's Python code."""
    program = optimized(build, arrays)
    assert block_loops(program)
    assert {"dgemv", "dgemm"}.isdisjoint(calls(program))
    assert_same(compile_native(program)(*arrays), expected(build, arrays))


def arrays_of(n, p):
    return RNG.normal(size=(n, p)), RNG.normal(size=p), RNG.normal(size=n)


def logistic(x, b, y):
    """Return a log density and its gradient."""
    eta = x @ b
    return [(y * eta - pt.softplus(eta)).sum(), x.T @ (y - pt.sigmoid(eta))]


def bilinear(a, b, w, y):
    """Return a log density of rows that are Kronecker products, and its gradient by a matrix of coefficients."""
    eta = ((a @ w) * b).sum(axis=1)
    r = y - pt.exp(eta)
    return [(y * eta - pt.exp(eta)).sum(), a.T @ (r[:, None] * b)]


def matrices_of(n, p, q):
    return (
        RNG.normal(size=(n, p)),
        RNG.normal(size=(n, q)) / 10,
        RNG.normal(size=(p, q)) / 10,
        RNG.normal(size=n),
    )


def test_products_with_a_matrix_run_in_blocks():
    program = optimized(bilinear, matrices_of(N, 13, 14))
    [loop] = block_loops(program)
    names = [s.function for x in loop.steps for s in x.body if isinstance(s, Call)]
    assert names == ["set_products", "add_products"]
    assert calls(program) == ["set_products", "add_products"] * 2


def test_blocks_are_multiplied_before_and_added_after_the_loop_over_their_rows():
    program = optimized(logistic, arrays_of(N, P))
    [loop] = block_loops(program)
    kinds = [[s.function for s in x.body if isinstance(s, Call)] or x.domain for x in loop.steps]
    assert kinds == [(16,), ["add_dots"], (16,), ["add_rows"]]
    assert loop.length == 4
    assert "loop 11 from 64:" in as_text(program)
    assert calls(program) == ["add_dots", "add_rows"] * 2


@given(
    n=st.integers(16, 300),
    p=st.integers(row_blocks.FEWEST_COLUMNS, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_shapes_of_blocks_and_rests_change_results_by_rounding_alone(n, p, seed):
    rng = np.random.default_rng(seed)
    check_blocks(logistic, (rng.normal(size=(n, p)), rng.normal(size=p), rng.normal(size=n)))


@given(
    n=st.integers(16, 200),
    p=st.integers(9, 40),
    q=st.integers(9, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_shapes_of_matrices_change_results_by_rounding_alone(n, p, q, seed):
    rng = np.random.default_rng(seed)
    shapes = (n, p), (n, q), (p, q), n
    check_blocks(bilinear, [rng.normal(size=shape) / 10 for shape in shapes])


GROUP = RNG.integers(5, size=N).astype("int32")
CASES = {
    "a product": (logistic, arrays_of(N, P)),
    "one block": (logistic, arrays_of(32, 60)),
    "rows longer than the L1 cache": (logistic, arrays_of(40, 900)),
    "two vectors and one matrix": (
        lambda x, b, c, y: [
            (y * (x @ b) * pt.exp(x @ c)).sum(),
            x.T @ (y * pt.exp(x @ c)),
            x.T @ (y * (x @ b) * pt.exp(x @ c)),
        ],
        (RNG.normal(size=(N, P)), *RNG.normal(size=(2, P)), RNG.normal(size=N)),
    ),
    "two matrices": (
        lambda x, z, b, u, y: [
            pt.exp(x @ b + z @ u).sum(),
            x.T @ (y - pt.exp(x @ b + z @ u)),
            z.T @ (y - pt.exp(x @ b + z @ u)),
        ],
        (
            RNG.normal(size=(N, P)),
            RNG.normal(size=(N, 12)),
            RNG.normal(size=P),
            RNG.normal(size=12),
            RNG.normal(size=N),
        ),
    ),
    "some columns": (
        lambda x, b, y: logistic(x[:, 2:7], b[1:6], y),
        arrays_of(N, P),
    ),
    "a column vector": (
        lambda x, b, y: [x.T @ pt.exp(x @ b[:, None] - y[:, None])],
        arrays_of(N, P),
    ),
    "an elementwise result": (
        lambda x, b, y: [x @ b, pt.exp(x @ b), x.T @ pt.exp(x @ b)],
        arrays_of(N, P),
    ),
    "effects of groups": (
        lambda x, b, y, a, g: [
            pt.zeros(5)[g].inc(pt.exp(x @ b + a[g])),
            x.T @ pt.exp(x @ b + a[g]),
            pt.max(x @ b),
        ],
        (*arrays_of(N, P), RNG.normal(size=5), GROUP),
    ),
    "a switch on a scalar": (
        lambda x, b, y, s: [
            pt.switch(s[0] > 0, pt.gammaln(pt.exp(x @ b)), pt.erf(x @ b) * y).sum(),
            x.T @ pt.switch(s[0] > 0, pt.psi(pt.exp(x @ b)), pt.exp(x @ b) * pt.gammaln(y**2)),
        ],
        (*arrays_of(N, P), RNG.normal(size=1)),
    ),
    "a matrix of coefficients": (bilinear, matrices_of(N, 9, 30)),
    "a matrix of coefficients and one block": (bilinear, matrices_of(16, 30, 4)),
    "coefficients of classes": (
        lambda x, w, y: [
            pt.log(pt.exp(x @ w).sum(axis=1)).sum(),
            x.T @ (pt.exp(x @ w) / pt.exp(x @ w).sum(axis=1, keepdims=True) - y),
        ],
        (RNG.normal(size=(N, P)), RNG.normal(size=(P, 5)), RNG.normal(size=(N, 5))),
    ),
    "a vector and a matrix of coefficients": (
        lambda x, b, w, y: [
            *logistic(x, b, y),
            (pt.exp(x @ w) * y[:, None]).sum(),
            x.T @ (pt.exp(x @ w) * y[:, None]),
        ],
        (RNG.normal(size=(N, P)), RNG.normal(size=P), RNG.normal(size=(P, 6)), RNG.normal(size=N)),
    ),
    "an independent product": (
        lambda x, b, y: [*logistic(x, b, y), x.T @ y],
        arrays_of(N, P),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_change_results_by_rounding_alone(name):
    check_blocks(*CASES[name])


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", CASES)
def test_chunks_of_blocks_change_results_by_rounding_alone(name):
    check_blocks(*CASES[name])


WITH_CHUNKS = [name for name, (_, arrays) in CASES.items() if len(arrays[0]) == N]


@pytest.mark.usefixtures("splits_all")
@pytest.mark.parametrize("name", WITH_CHUNKS)
def test_threads_change_no_bit(name):
    build, arrays = CASES[name]
    kernel = compile_native(optimized(build, arrays))
    alone = kernel(*arrays)
    code = LoadedCode(kernel._engine, NAME)
    assert has_tasks(code)
    for n_threads in (2, 3, 8):
        helpers = Helpers(n_threads - 1, code)
        for _ in range(50):
            for a, b in zip(kernel(*arrays), alone, strict=True):
                np.testing.assert_array_equal(a, b)
        helpers.close()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("number", [0, 1])
def test_numbers_that_are_not_finite_are_where_blas_has_them(value, number):
    arrays = arrays_of(N, P)
    arrays[number].flat[3] = value
    build = lambda x, b, y: [x @ b, x.T @ (x @ b - y)]  # noqa: E731
    found = compile_native(optimized(build, arrays))(*arrays)
    with np.errstate(invalid="ignore"):
        of_blas = expected(build, arrays)
    for a, b in zip(found, of_blas, strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(np.isinf(a), np.isinf(b))


def centered(x, b, y):
    """The second product needs a sum over all rows."""
    residual = y - pt.exp(x @ b)
    return [x.T @ (residual - residual.sum())]


REFUSED = {
    "a sum over all rows between the products": (centered, arrays_of(N, P)),
    "a check between the products": (
        lambda x, b, y, g: [x.T @ pt.exp(x @ b)[pt.cast(g, "int64")]],
        (*arrays_of(N, P), np.arange(N) * 1.0),
    ),
    "rows in another order": (
        lambda x, b, y: [x.T @ pt.exp(x @ b)[::-1]],
        arrays_of(N, P),
    ),
    "products with different matrices": (
        lambda x, b, y, z: [z.T @ pt.exp(x @ b)],
        (*arrays_of(N, P), RNG.normal(size=(N, P))),
    ),
    "one product": (lambda x, b, y: [pt.exp(x @ b)], arrays_of(N, P)),
    "the first product reads the second": (
        lambda x, b, y: [pt.exp(x @ (x.T @ y))],
        arrays_of(N, P),
    ),
    "few columns": (logistic, arrays_of(N, row_blocks.FEWEST_COLUMNS - 1)),
    "few rows": (logistic, arrays_of(row_blocks.LANES - 1, 40)),
    "rows longer than the L2 cache": (logistic, arrays_of(20, 1025)),
    "some rows of a matrix": (lambda x, b, y: logistic(x[3:], b, y[3:]), arrays_of(N, P)),
    "single precision": (logistic, tuple(x.astype("float32") for x in arrays_of(N, P))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    build, arrays = REFUSED[name]
    program = optimized(build, arrays)
    assert not block_loops(program)
    if arrays[0].dtype == "float64":
        assert_same(compile_native(program)(*arrays), expected(build, arrays))


def test_matrices_within_the_cache_have_no_blocks(monkeypatch):
    monkeypatch.undo()
    assert not block_loops(optimized(logistic, arrays_of(2000, 50)))


LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "a slice": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("p", [6, 20])
def test_constant_matrices_of_any_layout_are_read_once(layout, is_transposed, p):
    data, _, y = arrays_of(400, p)
    matrix = LAYOUTS[layout](data.T if is_transposed else data)
    b = pt.vector("b", shape=(p,))
    eta = b @ pt.constant(matrix) if is_transposed else pt.constant(matrix) @ b
    logp = (y * eta - pt.softplus(eta)).sum()
    outputs = [logp, pytensor.grad(logp, b)]
    function = pytensor.function([b], outputs, mode="NUMBA")
    kernels = [n.op for n in function.maker.fgraph.toposort() if isinstance(n.op, FusedKernel)]
    assert [len(block_loops(kernel.build_program())) for kernel in kernels] == [1]
    at = RNG.normal(size=p)
    assert_same(function(at), evaluated([b], outputs, [at]))
