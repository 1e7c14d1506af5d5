"""The noise by which `verify` measures round-off: its size, and operations without noise."""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.verification.roundoff import Noise, numpy_mode

EPS = np.finfo("float64").eps
X = np.linspace(0.1, 2.0, 5000)


def noisy(build, *types, seed=0):
    """Return the compiled function of a graph of vectors of these types."""
    inputs = [pt.vector(dtype=dtype) for dtype in types or ("float64",)]
    noise = Noise(np.random.default_rng(seed))
    function = pytensor.function(inputs, build(*inputs), mode=numpy_mode(noise))

    def call(*arrays):
        with noise.on():
            return function(*arrays)

    return call


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_noise_is_of_the_size_of_the_last_digit(dtype):
    x = X.astype(dtype)
    eps = np.finfo(dtype).eps
    exact = x.astype("longdouble") ** 2
    error = (noisy(lambda x: x**2, dtype)(x) - exact) / exact / eps
    # Of the square and of the noise half a digit each, of the noise itself one.
    assert np.all(np.abs(error) <= 2)
    assert error.max() > 1
    assert error.min() < -1
    assert abs(error.mean()) < 0.1


def test_noise_differs_by_call_and_repeats_by_seed():
    first, second = noisy(pt.exp, seed=1), noisy(pt.exp, seed=1)
    once = first(X)
    assert np.array_equal(once, second(X))
    assert not np.array_equal(once, first(X))


@pytest.mark.parametrize(("op", "ufunc"), [(pt.add, np.add), (pt.mul, np.multiply)])
@pytest.mark.parametrize("n", [31, 32, 40])
def test_more_operands_than_numpy_takes(op, ufunc, n):
    inputs = [pt.vector(dtype="float32" if k % 2 else "float64") for k in range(n)]
    values = [np.linspace(0.5, 1.5 + k / n, 3).astype(x.type.dtype) for k, x in enumerate(inputs)]
    found = pytensor.function(inputs, op(*inputs), mode=numpy_mode())(*values)
    np.testing.assert_allclose(found, ufunc.reduce(np.array(values, "float64")), rtol=n * EPS)


EXACT = {
    "a sign": lambda x: -x,
    "a magnitude": lambda x: abs(x - 0.0),
    "a choice": lambda x: pt.switch(x > 1, x, 2.0),
    "a maximum": lambda x: pt.maximum(x, 1.0),
    "a rearrangement": lambda x: pt.concatenate([x[::-1], x[np.array([3, 3])]]),
    "a scatter": lambda x: pt.zeros(3)[np.array([2, 0])].set(x[:2]),
    "integers": lambda x: pt.sum(pt.floor(x).astype("int64") * 3),
}


@pytest.mark.parametrize("what", EXACT)
def test_exact_operations_have_no_noise(what):
    plain = pt.vector()
    expected = pytensor.function([plain], EXACT[what](plain), mode="FAST_COMPILE")(X)
    np.testing.assert_array_equal(noisy(EXACT[what])(X), expected)


def regular(x):
    """Return a matrix whose rows are not nearly the same."""
    return x[np.array([4999, 100, 200, 2500])].reshape((2, 2))


ROUNDING = {
    "a sum": pt.sum,
    "a product": lambda x: pt.prod(x[:20]),
    "a dot product": lambda x: pt.dot(x, x),
    "a product of matrices": lambda x: pt.dot(x[:4].reshape((2, 2)), x[4:8].reshape((2, 2))),
    "a cumulative sum of two": lambda x: pt.cumsum(x[:2]),
    "a Cholesky factor": lambda x: pt.linalg.cholesky(pt.diag(x[:3]))[np.arange(3), np.arange(3)],
    "a triangular solve": lambda x: pt.linalg.solve_triangular(pt.diag(x[:3]), x[3:6], lower=True),
    "a batch of Cholesky factors": lambda x: pt.linalg.cholesky(
        pt.stack([pt.diag(x[:3]), pt.diag(x[3:6])])
    )[:, np.arange(3), np.arange(3)],
    "an inverse": lambda x: pt.linalg.inv(regular(x)),
    "a determinant": lambda x: pt.linalg.det(regular(x)),
    "a solve": lambda x: pt.linalg.solve(regular(x), x[3:5]),
    "a solve by a factor": lambda x: pt.linalg.cho_solve((regular(x), True), x[3:5]),
    "eigenvalues": lambda x: pt.linalg.eigh(regular(x))[0],
    "a softmax": lambda x: pt.special.softmax(x[:3]),
    "the logarithm of a sum of exponentials": lambda x: pt.logsumexp(x[:3]),
    "its gradient": lambda x: pt.grad(pt.logsumexp(x[:3]), x)[:3],
    "a scan": lambda x: pytensor.scan(
        lambda v, w: v * w, sequences=[x], outputs_info=[pt.ones(())], return_updates=False
    )[1:20],
    "a matrix by a vector": lambda x: pt.dot(x[:4].reshape((2, 2)), x[4:6]),
}


@pytest.mark.parametrize("what", ROUNDING)
def test_reductions_and_products_have_noise(what):
    function = noisy(ROUNDING[what])
    results = np.array([function(X) for _ in range(20)])
    spread = np.ptp(results, axis=0) / np.abs(results).max(axis=0)
    assert np.all(spread > EPS / 2)
    assert np.all(spread <= 4 * EPS)


def test_a_cast_to_single_precision_rounds():
    """Otherwise a sum of cast values that is zero would have no noise."""
    found = noisy(lambda x: pt.cast(x, "float32"))(X)
    assert found.dtype == "float32"
    assert 0.3 < (found != X.astype("float32")).mean() < 0.7
    single = X.astype("float32")
    np.testing.assert_array_equal(noisy(lambda x: pt.cast(x, "float64"), "float32")(single), single)


def test_the_error_of_a_sum_taken_term_by_term_shows():
    x = np.full(200_000, 0.1)
    exact, term_by_term = math.fsum(x), np.cumsum(x)[-1]
    total = noisy(pt.sum)(x)
    assert abs(total - exact) <= 4 * EPS * exact
    assert abs(total - term_by_term) > 100 * EPS * exact


def test_a_cumulative_sum_hands_on_what_its_steps_are_off():
    x, exact = np.array([1.0, 1e8, -1e8, 0.0, 0.0]), np.array([1.0, 1e8 + 1, 1.0, 1.0, 1.0])
    errors = np.array([noisy(pt.cumsum, seed=seed)(x) - exact for seed in range(30)])
    step = 1e8 * EPS
    assert abs(errors[:, 0]).max() < 2 * EPS
    assert step / 4 < abs(errors[:, 2]).max() <= 2 * step
    # All later sums are off by the same, but for digits of their own.
    assert abs(errors[:, 3:] - errors[:, [2]]).max() < 8 * EPS


def test_a_cumulative_product_hands_on_what_its_steps_are_off():
    x = np.full(2000, 1.001)
    exact = x.astype("longdouble").cumprod()
    errors = np.array([noisy(pt.cumprod, seed=seed)(x) / exact - 1 for seed in range(20)])
    assert abs(errors[:, -1]).max() > 8 * EPS
    assert abs(errors[:, 0]).max() < 2 * EPS


def test_infinities_are_what_they_were_in_cumulative_sums():
    found = noisy(pt.cumsum)(np.array([1.0, np.inf, 1.0]))
    assert np.isfinite(found[0])
    assert list(found[1:]) == [np.inf, np.inf]


def test_equal_elements_share_half_of_their_noise():
    """Repeated rows round alike: their errors add up, where independent ones would cancel."""
    n = 10_000
    repeated, distinct = np.full(n, 0.3), np.linspace(0.2, 0.4, n)
    square = noisy(lambda x: x * x)

    def spread_of_mean_error(x):
        return np.std([(square(x) / (x * x) - 1).mean() / EPS for _ in range(20)])

    # A half times a uniform number from -1 to 1 has the standard deviation 0.29.
    assert 0.15 < spread_of_mean_error(repeated) < 0.5
    assert spread_of_mean_error(distinct) < 0.01


def test_operations_are_not_fused():
    x, y = pt.vectors("x", "y")
    function = pytensor.function([x, y], pt.exp(x) * y + x / y, mode=numpy_mode())
    nodes = function.maker.fgraph.toposort()
    assert len(nodes) == 4
    assert all(isinstance(node.op, Elemwise) for node in nodes)
    assert not any(isinstance(node.op.scalar_op, Composite) for node in nodes)


def test_a_scatter_has_the_noise_of_its_sums():
    """Into each of 50 elements go 100 numbers, one after the other: noise of 10 units."""
    index = np.arange(5000) % 50
    exact = X.astype("longdouble").reshape(100, 50).sum(axis=0)
    scatter = noisy(lambda x: pt.zeros(50)[index].inc(x))
    errors = np.array([(scatter(X) - exact) / exact / EPS for _ in range(20)])
    assert 8 < np.abs(errors).max() < 30


def test_mode_without_noise_equals_numpy():
    function = pytensor.function([x := pt.vector()], pt.exp(x), mode=numpy_mode())
    assert np.array_equal(function(X), np.exp(X))


def test_integers_beside_a_product_count():
    """PyTensor's BLAS rewrites drop such integers."""
    y, square, k = np.array([3.0, 2.0]), np.array([[1.0, 2.0], [3.0, 4.0]]), pt.lscalar()
    x = pt.vector(shape=(2,))
    function = pytensor.function([x, k], y - (pt.dot(square, x) + k), mode=numpy_mode())
    assert function([1.0, 1.0], 5).tolist() == [-5.0, -10.0]


def test_loops_of_an_element_are_not_run_in_python(monkeypatch):
    """The derivative of an incomplete beta function took verify of a hurdle model a quarter of an hour."""

    def in_python(*args):
        raise AssertionError("a loop in Python")

    a = pt.vector()
    slope = pt.grad(pt.betainc(a, 2.0, 0.25).sum(), a)
    at = np.array([0.5, 3.0])
    expected = pytensor.function([a], slope, mode="NUMBA")(at)
    monkeypatch.setattr(ScalarLoop, "perform", in_python)
    for noise in (None, Noise(np.random.default_rng(1))):
        function = pytensor.function([a], slope, mode=numpy_mode(noise))
        for _ in range(2):
            np.testing.assert_allclose(function(at), expected, rtol=1e-14)
