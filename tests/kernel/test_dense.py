"""Tiled factorizations and inverses: row counts around the tile sizes, and their accuracy."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.linalg import cholesky

from pymc_fastlogp.kernel.ir.loops import Call
from pymc_fastlogp.kernel.ir.traversal import all_loops
from pymc_fastlogp.kernel.lower.dense import LARGEST
from pymc_fastlogp.ops import LowerInverse
from tests.kernel.covered.linalg import covariance
from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

ROWS = [*range(13, 27), 31, 32, 33, 40, 63, 64, 65, 100, 127, LARGEST]


def kernel(build, *arrays):
    inputs = [pt.tensor(f"x{i}", dtype="float64", shape=x.shape) for i, x in enumerate(arrays)]
    return program_of(inputs, [build(*inputs)])


def evaluated(build, *arrays):
    [result] = compile_native(kernel(build, *arrays))(*arrays)
    return result


def calls(program):
    return [s.function for loop in all_loops(program) for s in loop.body if isinstance(s, Call)]


@pytest.mark.parametrize("n", ROWS)
def test_factor_agrees_with_numpy(n):
    given = covariance(n)
    found = evaluated(cholesky, given)
    assert calls(kernel(cholesky, given)) == ["factor"]
    assert not np.triu(found, 1).any()
    np.testing.assert_allclose(found, np.linalg.cholesky(given), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", ROWS)
def test_inverse_agrees_with_numpy(n):
    given = np.linalg.cholesky(covariance(n))
    found = evaluated(LowerInverse(), given)
    assert calls(kernel(LowerInverse(), given)) == ["inverse"]
    assert not np.triu(found, 1).any()
    expected = np.tril(np.linalg.inv(given @ given.T))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_upper_factor_and_batch_agree_with_numpy():
    given = covariance(19, 3)
    upper = evaluated(lambda x: cholesky(x, lower=False), given[0])
    np.testing.assert_allclose(upper, np.linalg.cholesky(given[0]).T, rtol=1e-12, atol=1e-13)
    batch = evaluated(cholesky, given)
    np.testing.assert_allclose(batch, np.linalg.cholesky(given), rtol=1e-12, atol=1e-13)


def test_only_the_triangle_is_read():
    given = covariance(30)
    with_nan = np.where(np.tri(30, dtype=bool), given, np.nan)
    np.testing.assert_array_equal(evaluated(cholesky, with_nan), evaluated(cholesky, given))


@pytest.mark.parametrize("place", [0, 7, 8, 15, 29])
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, -np.inf])
def test_factor_of_an_indefinite_matrix_is_nan(place, value):
    given = covariance(30)
    given[place, place] = value
    assert np.isnan(evaluated(cholesky, given)).all()


def test_inverse_of_a_singular_matrix_is_nan():
    given = np.tril(covariance(30))
    given[11, 11] = 0
    assert np.isnan(evaluated(LowerInverse(), given)[np.tril_indices(30)]).all()


def test_error_is_at_most_four_times_that_of_lapack():
    """Errors of factor and inverse of an ill-conditioned kernel, to long double, are at most four times LAPACK's."""
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long double is no better than double")
    x = np.linspace(0, 10, 60)
    given = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(60)
    exact = factor_of(given.astype(np.longdouble))
    errors = [np.abs(f(given) - exact).max() for f in (ours, np.linalg.cholesky)]
    assert errors[0] < 4 * errors[1]
    factor = np.linalg.cholesky(given)
    exact = inverse_of(factor.astype(np.longdouble))
    found = evaluated(LowerInverse(), factor)
    lapack = np.linalg.inv(factor)
    lapack = np.tril(lapack.T @ lapack)
    assert np.abs(found - exact).max() < 4 * np.abs(lapack - exact).max()


def ours(given):
    return evaluated(cholesky, given)


def factor_of(a):
    factor = np.zeros_like(a)
    for j in range(len(a)):
        factor[j, j] = np.sqrt(a[j, j] - (factor[j, :j] ** 2).sum())
        factor[j + 1 :, j] = (a[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[j, j]
    return factor


def inverse_of(factor):
    n = len(factor)
    inverse = np.zeros_like(factor)
    for i in range(n):
        unit = np.zeros(n, factor.dtype)
        unit[i] = 1
        inverse[i] = (unit - factor[i, :i] @ inverse[:i]) / factor[i, i]
    return np.tril(inverse.T @ inverse)
