"""Unrolled products with small and triangular matrices: the multiplications that remain, and non-finite operands."""

from itertools import product

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp.kernel.ir.expressions import Compute
from pymc_fastlogp.kernel.ir.loops import Accumulate, Call
from pymc_fastlogp.kernel.ir.traversal import expressions
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.lower.unrolled_products import structural_zeros
from tests.kernel.covered.linalg import filled
from tests.kernel.native_kernel import compile_native


def matrix(name, *shape):
    return pt.tensor(name, shape=shape, dtype="float64")


PACKED, SQUARE, SCALE = matrix("v", 10), matrix("a", 4, 4), matrix("s", 4)
TRIANGLE = filled(PACKED, 4)
ABOVE = np.triu(np.ones((4, 4), dtype=bool), 1)
NOWHERE = np.zeros((4, 4), dtype=bool)

VOIDS = {
    "an input": (SQUARE, NOWHERE),
    "zeros": (pt.zeros((4, 4)), ~NOWHERE),
    "a constant": (pt.constant(np.eye(4)), ~np.eye(4, dtype=bool)),
    "a triangle": (TRIANGLE, ABOVE),
    "transposed": (TRIANGLE.T, ABOVE.T),
    "in a batch of one": (TRIANGLE[None], ABOVE[None]),
    "scaled by rows": (SCALE[:, None] * TRIANGLE, ABOVE),
    "scaled by columns": (TRIANGLE.T * SCALE, ABOVE.T),
    "added to": (pt.inc_subtensor(TRIANGLE[0, 1:], 1.0), ABOVE & (np.arange(4) > 0)[:, None]),
    "masked": (SQUARE * np.tril(np.ones((4, 4))), ABOVE),
    "a function of a triangle": (pt.exp(TRIANGLE), NOWHERE),
    "set into others": (SQUARE[np.tril_indices(4)].set(PACKED), NOWHERE),
    "set where is not known": (pt.zeros((4, 4))[pt.lvector("i"), 0].set(1.0), NOWHERE),
    "of open length": (pt.matrix("x"), None),
    "repeated from an open length": (pt.alloc(pt.vector("x"), 4, 4), NOWHERE),
    "large": (pt.zeros((5, 4)), None),
}


@pytest.mark.parametrize("name", VOIDS)
def test_known_zeros_are_recognized(name):
    x, expected = VOIDS[name]
    found = structural_zeros(x, most=16)
    assert found is expected is None or np.array_equal(found, expected)


def program(inputs, output):
    fgraph = FunctionGraph(inputs, [output], clone=True)
    return lower(fgraph, [None] * len(inputs))


def multiplications(steps):
    exprs = {e for loop in steps for e in expressions(loop)}
    return sum(isinstance(e, Compute) and e.op == ps.mul and e.dtype == "float64" for e in exprs)


LONG, WIDE = pt.tensor("x", shape=(None, 10)), pt.tensor("x", shape=(10, None))
SHORT = pt.tensor("x", shape=(50, 10))
LARGER = matrix("v", 55)
TRIANGLES = {
    # A multiplication for each entry of the triangle, and for each row or column with entries beside it.
    "of four columns": ([matrix("x", 50, 4), PACKED], lambda x, v: x @ filled(v, 4).T, 10 + 3),
    "transposed": ([matrix("x", 50, 4), PACKED], lambda x, v: x @ filled(v, 4), 10 + 3),
    "of ten rows": ([WIDE, LARGER], lambda x, v: filled(v, 10) @ x, 55 + 9),
    "of ten columns, for BLAS": ([LONG, LARGER], lambda x, v: x @ filled(v, 10).T, 55 + 9),
    "dense": ([matrix("x", 50, 4), matrix("a", 4, 4)], lambda x, a: x @ a, 16),
}


@pytest.mark.parametrize("name", TRIANGLES)
def test_triangular_products_have_the_least_multiplications(name):
    inputs, build, expected = TRIANGLES[name]
    lowered = program(inputs, build(*inputs))
    statements = [s for loop in lowered.steps for s in loop.body]
    assert not any(isinstance(s, Accumulate | Call) for s in statements)
    assert multiplications(lowered.steps) == expected


LEFT_TO_LOOPS = {
    "of ten columns": ([SHORT, LARGER], lambda x, v: x @ filled(v, 10).T),
    "with a vector": ([matrix("x", 4), PACKED], lambda x, v: filled(v, 4) @ x),
    "with fewer rows": ([matrix("x", 5, 4), matrix("v", 15)], lambda x, v: filled(v, 5) @ x),
    "dense, of five rows": ([matrix("a", 5, 5), matrix("x", 5, 50)], lambda a, x: a @ x),
    "of a band": (
        [matrix("a", 6, 6), matrix("x", 6, 50)],
        lambda a, x: (a * np.tril(np.ones((6, 6)), 3)) @ x,
    ),
}


@pytest.mark.parametrize("name", LEFT_TO_LOOPS)
def test_large_products_stay_loops(name):
    inputs, build = LEFT_TO_LOOPS[name]
    lowered = program(inputs, build(*inputs))
    assert any(isinstance(s, Accumulate) for loop in lowered.steps for s in loop.body)


NUMBERS = (0.0, 1.5, -2.0, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_zero_times_non_finite_is_nan(is_transposed):
    """Each number beside each scale and each entry, in each column."""
    x, v, s = pt.tensor("x", shape=(None, 3)), matrix("v", 6), matrix("s", 3)
    triangle = s[:, None] * filled(v, 3)
    lowered = program([x, v, s], x @ (triangle.T if is_transposed else triangle))
    run = compile_native(lowered)
    rows = np.array(list(product(NUMBERS, repeat=3)))
    for entry, scale, where in product(NUMBERS, NUMBERS, range(3)):
        packed, scales = np.full(6, 0.5), np.ones(3)
        packed[2 * where], scales[where] = entry, scale
        with np.errstate(invalid="ignore"):
            dense = np.zeros((3, 3))
            dense[np.tril_indices(3)] = packed
            dense *= scales[:, None]
            # Not by BLAS, which may not look at what it multiplies by zero.
            factor = dense.T if is_transposed else dense
            expected = (rows[:, :, None] * factor).sum(axis=1)
        np.testing.assert_array_equal(run(rows, packed, scales)[0], expected)
