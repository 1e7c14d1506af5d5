"""Several short axes are unrolled as long as the number of copies stays below a limit."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FrozenFunctionGraph

from pymc_fastlogp.kernel.ir.traversal import loops_in
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.passes.unroll import MOST_COPIES, MOST_ENTRIES, unroll
from pymc_fastlogp.kernel.passes.unroll_sequential import unroll_in_sequential_loops
from tests.kernel.check import optimize
from tests.kernel.lowering import evaluated
from tests.kernel.native_kernel import compile_native

ROWS = 100


def sums_of_exponentials(x):
    """Return the logarithms of sums of exponentials along the last axis."""
    return pt.log(pt.sum(pt.exp(x - pt.max(x, axis=-1, keepdims=True)), axis=-1))


def total(x):
    return pt.sum(sums_of_exponentials(x))


def gradient(x):
    return pytensor.grad(total(x), x)


def log_determinants(x):
    """Return those of matrices whose entries are computed."""
    covariance = pt.exp(-pt.sqr(x)) + 4 * pt.eye(x.type.shape[-1])
    return pt.log(pt.diagonal(pt.linalg.cholesky(covariance), axis1=1, axis2=2)).sum(axis=1)


def lowered(build, shape):
    x = pt.tensor("x", shape=shape)
    return lower(FrozenFunctionGraph.from_io([x], [build(x)], dedup_nodes=True), [None])


def n_statements(program):
    return sum(len(loop.body) for loop in loops_in(program.steps))


def domains_over_rows(program):
    return {loop.domain for loop in loops_in(program.steps) if ROWS in loop.domain}


def test_code_does_not_grow_with_the_product_of_short_axes():
    eight, sixteen = (n_statements(optimize(lowered(total, (ROWS, k, k)))) for k in (8, 16))
    assert sixteen <= 2 * eight
    axis_more = n_statements(optimize(lowered(total, (ROWS, 8, 8, 8))))
    assert axis_more <= 2 * eight


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((ROWS, 16), [ROWS]),
        ((ROWS, 3, 3), [ROWS]),
        ((ROWS, 6, 6), [ROWS]),
        ((ROWS, 9, 4), [ROWS]),
        ((ROWS, 4, 10), [ROWS, 4]),
        ((4, ROWS, 10), [4, ROWS]),
        ((ROWS, 3, 3, 3), [ROWS]),
        ((ROWS, 5, 3, 4), [ROWS, 5]),
        ((ROWS, 2, 5, 8), [ROWS, 2, 5]),
    ],
)
def test_inner_axes_are_unrolled_up_to_a_limit(shape, left):
    program = unroll(lowered(lambda x: pt.exp(x).sum(), shape))
    exponential = program.steps[0]
    assert exponential.domain == tuple(left)
    assert len(exponential.body) == np.prod(shape) / np.prod(left) <= MOST_COPIES


@pytest.mark.parametrize("k", [3, 12])
def test_entries_of_matrices_whose_factors_are_straight_line_code_are_unrolled(k):
    assert k**2 <= MOST_ENTRIES
    x = pt.tensor("x", shape=(ROWS, k, k))
    determinants = log_determinants(x).sum()
    graph = FrozenFunctionGraph.from_io([x], [determinants], dedup_nodes=True)
    domains = domains_over_rows(unroll(unroll_in_sequential_loops(lower(graph, [None]))))
    assert domains == {(ROWS,)}


@pytest.mark.parametrize("build", [sums_of_exponentials, total, gradient])
@pytest.mark.parametrize(
    "shape", [(70, 3, 3), (70, 10, 10), (70, 7, 6), (9, 70, 5), (70, 4, 5, 6), (2, 3, 4, 70)]
)
def test_values_are_those_of_numpy(build, shape):
    at = np.random.default_rng(0).normal(size=shape)
    x = pt.tensor("x", shape=shape)
    [expected] = evaluated([x], [build(x)], [at])
    [found] = compile_native(optimize(lowered(build, shape)))(at)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
