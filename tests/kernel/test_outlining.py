"""Outlining of long programs and of fallbacks, and loop fission: the resulting functions, and unchanged results."""

import re
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
import pytest
from llvmlite import ir
from pytensor import scan
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.linalg import cholesky

from pymc_fastlogp.kernel.emit import buffers, emit, outlining
from pymc_fastlogp.kernel.ir.loops import Accumulate, Check, Fallback, Loop, Store
from pymc_fastlogp.kernel.ir.text import as_text
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.native import machine_code
from pymc_fastlogp.kernel.passes import loop_fission, optimize
from pymc_fastlogp.kernel.passes.loop_fission import split_large_loops
from tests.kernel.lowering import case
from tests.kernel.native_kernel import compile_native

GROUP = np.array([0, 2, 1, 2, 3] * 4)
ROWS, X = np.linspace(-1.0, 2.0, 20), np.linspace(0.5, 3.0, 13)
SQUARE = np.eye(13) * 4 + np.outer(X, X)


def likelihoods(x, a, *, n=6):
    """Return terms that share what they read, and nothing that rows compute, with their gradient."""
    terms = [pt.exp(-pt.sqr(x * (k + 1) - a[GROUP])).sum() for k in range(n)]
    return [sum(terms), *pt.grad(sum(terms), [x, a])]


def normalized(x):
    """Return an array that is on the heap where the length is open."""
    shares = pt.exp(x) / pt.exp(x).sum()
    return [pt.log(shares.cumsum()), shares.max()]


def recursion(x):
    """Return steps and what comes after them."""
    states = scan(lambda row, last: pt.tanh(last * 0.5 + row), sequences=[x], outputs_info=[x[0]])
    states = states[0] if isinstance(states, tuple | list) else states
    return [states.sum(), pt.exp(states - states.max())]


def factored(matrix, y):
    """Return a factor by LAPACK, and rows of it."""
    factor = cholesky(matrix)
    return [pt.log(pt.diagonal(factor)).sum(), (factor @ y).sum(), factor * y]


def limited(x, *, largest):
    """Return a sum that is -inf unless a check of all entries holds, and what is computed either way."""
    share = pt.sigmoid(x)
    holds = pt.all(share < largest)
    return [pt.switch(holds, pt.log(share), -np.inf).sum(), pt.switch(holds, share, -x)]


CASES = {
    "holds": case(lambda x: limited(x, largest=0.99), X),
    "fails": case(lambda x: limited(x, largest=0.9), X),
    "likelihoods": case(likelihoods, ROWS, [0.3, -1.0, 2.0, 0.1]),
    "scratch": case(normalized, X),
    "steps": case(recursion, X),
    "calls": case(factored, SQUARE, X),
}


def program_of_case(graph, *, static=True):
    inputs = graph.inputs(static=static)
    return optimize(
        lower(FunctionGraph(inputs, graph.outputs(inputs), clone=True), [None] * len(inputs))
    )


def functions(program):
    """Return the functions of a module that are neither declared alone nor of vecmath, by name."""
    module = ir.Module("test")
    emit(module, program, "kernel", [True] * len(program.inputs))
    return {f.name: f for f in module.functions if f.blocks and f.name.startswith("kernel")}


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(outlining, "LONG", 0)
    monkeypatch.setattr(outlining, "PART", 5)


@pytest.fixture
def small_loops(monkeypatch):
    monkeypatch.setattr(loop_fission, "LARGE", 0)
    monkeypatch.setattr(loop_fission, "PART", 1)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_outlined_program_computes_the_same(name, static, contiguous, monkeypatch):
    graph = CASES[name]
    arrays = graph.arrays
    if not contiguous:
        arrays = [np.repeat(x, 2, axis=-1)[..., ::2] for x in arrays]
    program = program_of_case(graph, static=static)
    layouts = [contiguous] * len(arrays)
    whole = compile_native(program, layouts)(*arrays)
    monkeypatch.setattr(outlining, "LONG", 0)
    monkeypatch.setattr(outlining, "PART", 5)
    assert len(functions(program)) > 2
    in_parts = compile_native(program, layouts)(*arrays)
    for expected, value in zip(whole, in_parts, strict=True):
        np.testing.assert_allclose(value, expected, rtol=4e-15)


def test_a_program_that_is_not_long_is_one_function():
    assert list(functions(program_of_case(CASES["likelihoods"]))) == ["kernel"]


def lanes(function):
    """Return how many lanes the vectors of a function have."""
    return {int(n) for n in re.findall(r"<(\d+) x double>", str(function))}


def test_fallback_is_a_scalar_function_of_its_own():
    usual, again = functions(program_of_case(CASES["fails"])).values()
    assert lanes(usual) > {1}
    assert lanes(again) == {1}


def test_fallback_code_belongs_to_the_program():
    program = program_of_case(CASES["fails"])
    assert as_text(replace(program, fallback=None)) != as_text(program)
    calls = program_of_case(case(lambda x: pt.betainc(1.5, 2.5, x), X))
    of_it = replace(calls, steps=(), fallback=Fallback(program.fallback.failed, calls))
    assert {*machine_code.externals_of(of_it)} == {*machine_code.externals_of(calls)} != set()


def test_parts_are_of_the_module_alone_and_not_inlined(short_parts):
    whole, *inner = functions(program_of_case(CASES["scratch"])).values()
    assert whole.linkage == ""
    assert {f.linkage for f in inner} == {"internal"}
    assert all("noinline" in f.attributes for f in inner)


def test_parts_own_their_constants_and_scratch(short_parts):
    program = program_of_case(CASES["likelihoods"])
    found = outlining.parts_of(program)
    assert sum((p.program.steps for p in found), ()) == program.steps
    own = [buffer for p in found for buffer in p.program.scratch]
    given = {buffer for p in found for buffer in p.program.outputs}
    assert len({*own}) == len(own)
    assert {*own}.isdisjoint(given)
    assert {*own} | given == {*program.scratch, *program.outputs}


def test_a_part_has_no_argument_that_it_does_not_use(short_parts):
    """If each part had all arguments, LLVM's time would be quadratic in the size of the program."""
    graph = case(lambda *rows: [pt.exp(x).cumsum() for x in rows], *[X[k:] for k in range(6)])
    program = program_of_case(graph)
    whole, *inner = functions(program).values()
    assert len(whole.args) == 6 * 3 + 6
    n_used = [len(p.given) * 3 + len(p.program.outputs) for p in outlining.parts_of(program)]
    assert [len(f.args) for f in inner] == n_used
    assert max(n_used) < 3 * (3 + 1)
    for x, value in zip(graph.arrays, compile_native(program)(*graph.arrays), strict=True):
        np.testing.assert_allclose(value, np.exp(x).cumsum(), rtol=4e-15)


def test_a_part_has_the_inputs_whose_lengths_it_may_need(short_parts):
    graph = case(lambda x, y: [pt.exp(x).cumsum(), pt.log(y).cumsum()], X, ROWS)
    static, open_ = program_of_case(graph), program_of_case(graph, static=False)
    assert max(len(p.given) for p in outlining.parts_of(static)) == 1
    assert {p.given for p in outlining.parts_of(open_)} == {(0, 1)}


def test_scratch_shared_by_parts_is_allocated_at_once(short_parts, monkeypatch):
    """An exit of its own for each buffer is what LLVM takes longest for in long programs."""

    def shares(x):
        sums = [pt.exp(x * (k + 1)).cumsum() for k in range(6)]
        return [pt.log(each / each.max()) for each in sums]

    graph = case(shares, X)
    program = program_of_case(graph)
    expected = compile_native(program)(*graph.arrays)
    monkeypatch.setattr(buffers, "STACK_BYTES", 0)
    whole, *inner = functions(program).values()
    found = [p.program for p in outlining.parts_of(program)]
    n_shared = len({b for p in found for b in p.outputs} - {*program.outputs})
    assert n_shared > 2 * len(inner)
    assert 0 < str(whole).count('@"malloc"(') <= len(inner)
    for value, array in zip(expected, compile_native(program)(*graph.arrays), strict=True):
        np.testing.assert_array_equal(array, value)


def test_a_check_that_fails_in_a_part_ends_the_kernel(short_parts):
    graph = case(lambda x, i: [pt.exp(x).sum(), x[i] * 2, pt.log(x[i]).sum()], X, [0, 13])
    program = program_of_case(graph, static=False)
    assert len(functions(program)) > 2
    kernel = compile_native(program)
    with pytest.raises(IndexError):
        kernel(*graph.arrays)
    *_, logs = kernel(X, np.array([0, 12]))
    np.testing.assert_allclose(logs, np.log(X[[0, 12]]).sum(), rtol=1e-14)


def test_large_loops_are_split_between_independent_statements(small_loops):
    program = program_of_case(CASES["likelihoods"])
    bodies = [step.body for step in program.steps if isinstance(step, Loop) and step.domain]
    sums = [sum(isinstance(s, Accumulate) and not s.index for s in body) for body in bodies]
    assert (sum(sums), max(sums)) == (6, 1)


def test_statements_with_a_shared_computation_stay_together(small_loops):
    shared = case(lambda x: [pt.exp(x).sum(), (pt.exp(x) * 2).sum(), pt.sqr(x).sum()], ROWS)
    loops = [
        step for step in program_of_case(shared).steps if isinstance(step, Loop) and step.domain
    ]
    assert sorted(len(loop.body) for loop in loops) == [1, 2]


def test_split_loops_compute_the_same(monkeypatch):
    graph = CASES["likelihoods"]
    whole = compile_native(program_of_case(graph))(*graph.arrays)
    monkeypatch.setattr(loop_fission, "LARGE", 0)
    monkeypatch.setattr(loop_fission, "PART", 1)
    for expected, value in zip(
        whole, compile_native(program_of_case(graph))(*graph.arrays), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=4e-15)


@pytest.mark.parametrize("name", ["checks", "order"])
def test_loops_with_checks_or_an_order_are_left(name, small_loops):
    graph = {
        "checks": case(lambda x, i: [x[i] * 2, pt.exp(x)[i + 1]], X, [0, 11]),
        "order": case(lambda x: [x.cumsum(), x.cumprod()], X),
    }[name]
    program = program_of_case(graph, static=False)
    special = [
        step
        for step in program.steps
        if any(isinstance(s, Check) or not isinstance(s, Accumulate | Store) for s in step.body)
    ]
    assert special
    assert split_large_loops(program).steps == program.steps


def test_loops_that_are_not_large_are_left():
    program = program_of_case(CASES["likelihoods"])
    assert split_large_loops(program) == program
