"""Calls of BLAS and LAPACK: the calls that are made, the operands that are copied, and their code in the cache."""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.math import Dot

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.emit.kernel import with_copied_operands
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.expressions import Buffer, Length, Load, Role
from pymc_fastlogp.kernel.ir.loops import Call
from pymc_fastlogp.kernel.ir.traversal import all_loops, is_call, reads
from pymc_fastlogp.kernel.lower import UnsupportedError, is_supported, lower, products
from pymc_fastlogp.kernel.lower.array import buffer_array
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas
from pymc_fastlogp.kernel.native.machine_code import compile_program
from pymc_fastlogp.kernel.passes import optimize
from tests.conftest import REPOSITORY, with_flags
from tests.kernel.covered.linalg import covariance, lower_triangle
from tests.kernel.lowering import program_of


def matrix(name, *shape):
    return pt.tensor(name, shape=shape or (None, None), dtype="float64")


def program(inputs, *outputs):
    return program_of(inputs, outputs)


def calls(lowered):
    return [s for loop in all_loops(lowered) for s in loop.body if isinstance(s, Call)]


X, Y, V = matrix("x"), matrix("y"), pt.dvector("v")
SQUARE, FEW, MANY = matrix("a", 13, 13), matrix("a", 12, 12), matrix("a", 33, 33)
OPEN, LARGE = matrix("m"), matrix("l", 401, 401)
MADE = {
    "small product": ([FEW], FEW @ FEW, []),
    "product": ([SQUARE], SQUARE @ SQUARE, ["dgemm"]),
    "product of open lengths": ([X, Y], X @ Y, ["dgemm"]),
    "with a vector": ([X, V], X @ V, ["dgemv"]),
    "of a vector": ([X, V], V @ X, ["dgemv"]),
    "inner product": ([V], V @ V, []),
    "outer product": ([V], V[:, None] @ V[None], []),
    "small factor": ([FEW], cholesky(FEW), []),
    "factor": ([SQUARE], cholesky(SQUARE), ["factor"]),
    "factor of many rows": ([LARGE], cholesky(LARGE), ["dpotrf"]),
    "factor of open lengths": ([OPEN], cholesky(OPEN), ["dpotrf"]),
    "small solve": ([SQUARE, V], solve_triangular(SQUARE, V, b_ndim=1), []),
    "solve": ([MANY, V], solve_triangular(MANY, V, b_ndim=1), ["dtrsv"]),
    "solve of a matrix": ([MANY, X], solve_triangular(MANY, X, b_ndim=2), ["dtrsm"]),
}


@pytest.mark.parametrize(("inputs", "output", "functions"), MADE.values(), ids=MADE)
def test_functions_that_are_called(inputs, output, functions):
    assert [call.function for call in calls(program(inputs, output))] == functions


def read_in_place(x, y):
    """Return which inputs a product reads, right before left; other operands are copied first."""
    [call] = calls(program([X, Y], x @ y))
    operands = [argument.buffer for argument in call.arguments if isinstance(argument, Load)]
    return [buffer.name for buffer in operands if buffer.role is Role.INPUT]


@pytest.mark.parametrize(
    ("x", "y"),
    [(X, Y), (X.T, Y), (X, Y.T), (X[2:, 3:], Y[:-2]), (X[::2], Y[:, 1:]), (X[::2, 4:].T, Y)],
)
def test_transposes_and_slices_are_read_where_they_are(x, y):
    assert read_in_place(x, y) == ["x1", "x0"]


@pytest.mark.parametrize("x", [X[:, ::2], X[:, ::-1], X[::-1], pt.exp(X)])
def test_layouts_that_blas_cannot_read_are_copied(x):
    assert read_in_place(x, Y) == ["x1"]


def test_loops_fuse_across_a_call_but_not_with_it():
    together = program([X], pt.exp(X) + 1, X @ X.T, pt.exp(-X))
    [call] = [loop for loop in together.steps if any(isinstance(s, Call) for s in loop.body)]
    others = [loop for loop in together.steps if loop is not call and loop.domain]
    assert len(call.body) == 1
    assert len(others) == 1


def test_a_result_is_written_to_the_output_at_once():
    [call] = calls(program([X, Y], X @ Y))
    assert call.buffer.role is Role.OUTPUT


def test_operands_are_not_overwritten():
    a, b = lower_triangle(40), np.ones((40, 3))
    f = compiled([OPEN, X], solve_triangular(OPEN, X, lower=True), cholesky(OPEN))
    before = a.copy(), b.copy()
    f(a, b)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


def test_strided_inputs_of_calls_are_copied():
    lowered = program([X, Y], pt.exp(X) @ Y + Y.sum())
    copied = with_copied_operands(lowered, [False, False])
    assert {b.name for b in copied.scratch} - {b.name for b in lowered.scratch} == {"x1_copy"}
    [call] = [loop for loop in copied.steps if any(isinstance(s, Call) for s in loop.body)]
    assert not {b.role for b in reads(call)} & {Role.INPUT}
    same = with_copied_operands(lowered, [False, True])
    assert same == lowered


def compiled(inputs, *outputs):
    """Return a function of one kernel."""
    function = pytensor.function(inputs, list(outputs), mode="NUMBA")
    assert [type(n.op) for n in function.maker.fgraph.apply_nodes] == [FusedKernel]
    return function


def upstream(inputs, *outputs):
    with disabled():
        return pytensor.function(inputs, list(outputs), mode="NUMBA")


FACTOR = (cholesky(OPEN), pt.exp(OPEN))
SOLUTION = (solve_triangular(OPEN, X, lower=True), pt.exp(X))


@pytest.fixture(scope="module")
def factors():
    """A kernel with a Cholesky factor, and what upstream compiles of it."""
    return compiled([OPEN], *FACTOR), upstream([OPEN], *FACTOR)


BAD = {
    "not positive definite": -covariance(20),
    "in its last row only": covariance(20) - np.diag(np.arange(20) == 19) * 9,
    "one element": np.array([[-1.0]]),
    "nan": np.where(np.eye(20) > 0, np.nan, 0),
    "infinite": covariance(20) + np.diag(np.where(np.arange(20) == 3, np.inf, 0)),
}


@pytest.mark.parametrize("a", BAD.values(), ids=BAD)
def test_nan_where_upstream_has_it(factors, a):
    found, expected = (f(a)[0] for f in factors)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_errors_are_those_of_upstream(factors):
    for f in factors:
        with pytest.raises(np.linalg.LinAlgError, match="must be square"):
            f(np.ones((3, 4)))
    for make in (compiled, upstream):
        solve = make([OPEN, X], *SOLUTION)
        with pytest.raises(np.linalg.LinAlgError, match="do not conform"):
            solve(np.eye(3), np.ones((4, 2)))
        with pytest.raises(np.linalg.LinAlgError, match="must be square"):
            solve(np.ones((3, 4)), np.ones((3, 2)))
        product = make([X, Y], X @ Y, pt.exp(X))
        with pytest.raises(ValueError, match="mismatched contraction"):
            product(np.ones((3, 4)), np.ones((5, 2)))


def test_large_products_need_blas_and_lapack(monkeypatch):
    monkeypatch.setattr(blas, "is_available", lambda: False)
    assert is_supported((FEW @ FEW).owner)
    assert not is_supported((X @ Y).owner)
    assert not is_supported(cholesky(X).owner)
    assert is_supported(cholesky(FEW).owner)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_types_may_know_more_of_the_lengths_than_arrays(dtype):
    x, y = (pt.tensor(shape=shape, dtype=dtype) for shape in ((3, 5), (5, 4)))
    rows = Buffer("x0", dtype, (Length(0, 0), 5), Role.INPUT)
    columns = Buffer("x1", dtype, (5, 4), Role.INPUT)
    context = Context(Counter(), lambda *_: [])
    [result] = products.lower(
        context, Dot()(x, y).owner, [buffer_array(rows), buffer_array(columns)]
    )
    assert result.dtype == dtype
    assert any(map(is_call, context.steps)) == (dtype == "float64")


def test_open_factorization_is_refused_without_libraries(monkeypatch):
    graph = FunctionGraph([OPEN], [cholesky(OPEN)], clone=True)
    monkeypatch.setattr(blas, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="BLAS and LAPACK are not"):
        optimize(lower(graph, [None]))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_check_of_the_factor_decides(sign):
    """Loops are built for a check that holds, and run again where it does not, with calls of their own."""
    factor = cholesky(OPEN)
    solution = solve_triangular(factor, V, lower=True, b_ndim=1)
    logp = -(solution**2).sum() - pt.log(pt.diagonal(factor)).sum()
    checked = pt.switch(pt.all(pt.diagonal(factor) > 0), logp, -np.inf)
    outputs = checked, pytensor.grad(checked, V)
    point = sign * covariance(40), np.linspace(-1, 1, 40)
    found, expected = (make([OPEN, V], *outputs)(*point) for make in (compiled, upstream))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_libraries_of_other_lengths_are_left_alone(monkeypatch):
    blas.is_available.cache_clear()
    assert blas.is_available()
    blas.is_available.cache_clear()
    monkeypatch.setattr(blas, "signature", lambda _: b"void (char *, int64_t *)")
    assert not blas.is_available()
    blas.is_available.cache_clear()


def test_code_has_names_and_no_addresses():
    code = compile_program(program([X, Y], X @ Y), "named")
    assert blas.symbol("dgemm").encode() in code


CACHED = """
import numpy as np, pytensor, pytensor.tensor as pt
from pymc_fastlogp.kernel.native import machine_code

compile_program, compiled = machine_code.compile_program, []
machine_code.compile_program = lambda *args: compiled.append(1) or compile_program(*args)
a, x = pt.dmatrix("a"), pt.dvector("x")
factor = pt.linalg.cholesky(a)
outputs = [factor @ x, pt.linalg.solve_triangular(factor, x, lower=True, b_ndim=1)]
f = pytensor.function([a, x], outputs, mode="NUMBA")
product, solution = f(np.eye(30) * 4, np.ones(30))
print(product[0], solution[0], len(compiled))
"""


def test_another_process_loads_calls_from_the_cache(tmp_path):
    flags = with_flags(f"base_compiledir={tmp_path}")
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTENSOR_FLAGS": flags}
    script = f"import pymc_fastlogp\n{CACHED}"

    def run():
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert run().split() == ["2.0", "0.5", "1"]
    assert run().split() == ["2.0", "0.5", "0"]


def test_threads_do_not_disturb_each_other(factors):
    function = factors[0].vm.jit_fn
    matrices = [covariance(30) for _ in range(4)]
    expected = [np.linalg.cholesky(a) for a in matrices]

    def run(number):
        return all(
            np.allclose(function(matrices[number])[0], expected[number], rtol=1e-12, atol=1e-12)
            for _ in range(100)
        )

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, range(4)))
