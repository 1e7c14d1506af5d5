"""Shared reciprocals: the divisions that are replaced, and their accuracy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor import scalar as ps
from pytensor import tensor as pt

from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.ir.expressions import Compute, Length, Load
from pymc_fastlogp.kernel.ir.loops import Loop, Store
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.passes import optimize
from pymc_fastlogp.kernel.passes.reciprocal import SHORT, share_reciprocals
from pymc_fastlogp.kernel.scalars.quotient import LARGEST, SMALLEST, quotient
from tests.kernel.check import check
from tests.kernel.covered.scan import scan
from tests.kernel.emitted import I0, I1, compute, output, program
from tests.kernel.emitted import given as an_input
from tests.kernel.lowering import as_for_a_region, program_of
from tests.kernel.native_kernel import compile_native
from tests.kernel.scalar_loop import apply

ROWS = 50
# By the last two the reciprocal is used, by the others not.
EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, 2.0**-1022, 2.0**1001, 3.0, -0.7)


def dividing(*domain, divisor, dtype="float64", n_quotients=1):
    """Return the program that divides arrays over a domain by an input with these axes."""
    index = (I0, I1)[: len(domain)]
    lengths = {I0: domain[0], I1: domain[-1]} if domain else {}
    y = an_input("y", *(lengths[axis] for axis in divisor), dtype=dtype)
    dividends = [an_input(f"x{k}", *domain, dtype=dtype) for k in range(n_quotients)]
    body = [
        Store(
            output(f"out{k}", *domain, dtype=dtype),
            index,
            compute(ps.true_div, Load(x, index), Load(y, divisor), dtype=dtype),
        )
        for k, x in enumerate(dividends)
    ]
    return program(Loop(domain, tuple(body)), inputs=(*dividends, y))


def operations(result):
    """Return the Ops of a program of one loop."""
    [loop] = result.steps
    return [expr.op for expr in expressions(loop) if isinstance(expr, Compute)]


FEWER_DIVISIONS = {
    "a divisor of all rows": dividing(ROWS, divisor=()),
    "a divisor of all columns": dividing(3, ROWS, divisor=(I0,)),
    "a divisor of a number of rows known when called": dividing(Length(0, 0), divisor=()),
    "two divisions by what varies": dividing(ROWS, divisor=(I0,), n_quotients=2),
    "two divisions by what does not": dividing(ROWS, divisor=(), n_quotients=2),
}
AS_THEY_WERE = {
    "one division by what varies": dividing(ROWS, divisor=(I0,)),
    "a divisor that varies along the inner axis only": dividing(3, ROWS, divisor=(I1,)),
    "scalars": dividing(divisor=(), n_quotients=2),
    "a short axis": dividing(SHORT, divisor=(), n_quotients=2),
    "a short inner axis": dividing(ROWS, SHORT, divisor=(I0,)),
    "float32": dividing(ROWS, divisor=(), dtype="float32", n_quotients=2),
}


@pytest.mark.parametrize("what", FEWER_DIVISIONS)
def test_divisions_are_by_a_shared_reciprocal(what):
    before = FEWER_DIVISIONS[what]
    after = share_reciprocals(before)
    check(after)
    n_divisions = operations(before).count(ps.true_div)
    assert operations(after) == [ps.reciprocal, *[quotient] * n_divisions]


def test_a_divisor_that_was_a_quotient_is_shared_too():
    """A triangular solve has such divisors if its factor was divided by its own diagonal."""
    of_rows, y = [an_input(name, ROWS) for name in "abc"], an_input("y")
    a, b, c = (Load(x, (I0,)) for x in of_rows)
    first = compute(ps.true_div, a, Load(y, ()))
    second = compute(ps.true_div, b, first)
    values = [second, *(compute(ps.true_div, c, divisor) for divisor in (first, second))]
    values.append(compute(ps.true_div, a, second))
    body = tuple(Store(output(f"out{k}", ROWS), (I0,), value) for k, value in enumerate(values))
    before = program(Loop((ROWS,), body), inputs=(*of_rows, y))
    after = share_reciprocals(before)
    check(after)
    found = operations(after)
    assert ps.true_div not in found
    assert found.count(ps.reciprocal) == 3
    rng = np.random.default_rng(0)
    given = [*rng.uniform(0.5, 2, (3, ROWS)), np.array(0.7)]
    for on, off in zip(compile_native(after)(*given), compile_native(before)(*given), strict=True):
        np.testing.assert_allclose(on, off, rtol=1e-15 * 8)


@pytest.mark.parametrize("what", AS_THEY_WERE)
def test_divisions_stay(what):
    assert share_reciprocals(AS_THEY_WERE[what]) == AS_THEY_WERE[what]


STEPS = {
    "floor": (pt.floor, 1),
    "ceil": (lambda q: pt.ceil(-q), -1),
    "floor of a difference": (lambda q: pt.floor(q - 1), 0),
    "an integer": (lambda q: q.astype("int64"), 1),
    "equal": (lambda q: pt.eq(q, 1.0), True),
    "a remainder": (lambda q: q % 1, 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_discontinuous_functions_get_an_exact_quotient(name):
    x, y = pt.vector("x", shape=(ROWS,)), pt.scalar("y")
    jump, expected = STEPS[name]
    program = program_of([x, y], [jump(x / y), pt.exp(x) / y])
    assert ps.reciprocal in operations(program)
    # The reciprocal of 49 is rounded down.
    found, _ = compile_native(program)(np.full(ROWS, 49.0), np.array(49.0))
    np.testing.assert_array_equal(found, np.full(ROWS, expected))


def test_discontinuous_functions_in_steps_get_an_exact_quotient():
    x, widths = pt.vector("x", shape=(ROWS,)), pt.vector("widths", shape=(ROWS,))
    steps = scan(lambda x, w, s: pt.floor((s + x) / w), [x, widths], [pt.as_tensor(np.array(0.0))])
    graph = as_for_a_region([x, widths], steps)
    rewrite_scan_inner_graphs(graph)
    found = compile_native(optimize(lower(graph, [None, None])))(
        np.full(ROWS, 49.0), np.full(ROWS, 49.0)
    )
    np.testing.assert_array_equal(found[0], np.ones(ROWS))


@pytest.fixture(scope="module")
def divided():
    """Return a function that divides 50 numbers by one, with its reciprocal."""
    kernel = compile_native(share_reciprocals(dividing(ROWS, divisor=())))

    def divide(x, y):
        return kernel(np.resize(np.asarray(x, dtype=float), ROWS), np.array(y))[0]

    return divide


@pytest.mark.parametrize("y", EDGES)
def test_edges(divided, y):
    x = np.resize(EDGES, ROWS)
    with np.errstate(all="ignore"):
        expected = x / y
    np.testing.assert_array_max_ulp(divided(x, y), expected, maxulp=0 if _is_edge(y) else 2)
    np.testing.assert_array_equal(np.signbit(divided(x, y)), np.signbit(expected))


def _is_edge(y):
    return not SMALLEST <= abs(y) <= LARGEST


@settings(max_examples=100)
@given(st.lists(st.floats(), min_size=1, max_size=ROWS), st.floats())
def test_within_two_ulp_by_one_divisor(divided, x, y):
    x = np.resize(x, ROWS)
    with np.errstate(all="ignore"):
        np.testing.assert_array_max_ulp(divided(x, y), x / y, maxulp=2)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=30))
def test_within_two_ulp_by_many(pairs):
    x, y = np.array(pairs).T.copy()
    with np.errstate(all="ignore"):
        np.testing.assert_array_max_ulp(apply(quotient, x, y, 1 / y), x / y, maxulp=2)


def test_a_lane_does_not_depend_on_its_neighbors():
    x, y = (column.ravel() for column in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        found, expected = apply(quotient, x, y, 1 / y), x / y
    np.testing.assert_array_max_ulp(found, expected, maxulp=2)
    is_edge = [_is_edge(number) for number in y]
    np.testing.assert_array_equal(found[is_edge], expected[is_edge])


def test_python_form_is_the_division():
    assert quotient.impl(1.0, 3.0, np.nan) == 1 / 3
