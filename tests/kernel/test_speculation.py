"""Errors of programs whose loops are built for late checks that hold."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert

from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

ROWS = 100
TOO_LARGE = Assert("too large")


@pytest.fixture
def x():
    return pt.vector("x", shape=(ROWS,))


@pytest.fixture
def logp(x):
    """Return a sum over rows that is -inf unless all of them are positive."""
    return pt.switch(pt.all(x > 0), pt.sum(pt.exp(x)), -np.inf)


def rows(first):
    values = np.ones(ROWS)
    values[0] = first
    return values


@pytest.mark.parametrize(
    "through", [lambda logp: logp, lambda logp: pt.cumsum(pt.stack([logp, 1.0]))[0]]
)
def test_check_of_the_speculated_value_has_no_fallback(x, logp, through):
    program = program_of([x], [TOO_LARGE(logp, through(logp) < 50.0) * 2])
    assert program.fallback is None
    kernel = compile_native(program)
    assert kernel(rows(-1.0))[0] == -np.inf
    with pytest.raises(AssertionError, match="too large"):
        kernel(rows(1.0))


def test_check_of_another_value_runs_in_the_fallback(x, logp):
    program = program_of([x], [TOO_LARGE(logp, pt.max(x) < 50.0) * 2])
    assert program.fallback is not None
    kernel = compile_native(program)
    assert kernel(rows(-1.0))[0] == -np.inf
    np.testing.assert_allclose(kernel(rows(1.0))[0], 2 * ROWS * np.e, rtol=1e-14)
    with pytest.raises(AssertionError, match="too large"):
        kernel(rows(60.0))
