"""Invalid or unusual data give upstream's value or upstream's error."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_fastlogp
from pymc_fastlogp import disabled
from tests.faults.compare import PYTHON, assert_as_upstream, directly, logp_and_gradient
from tests.faults.models import GROUP, GROUPS, OBSERVED, N, X, grouped


def slow(value):
    return pytest.param(value, marks=pytest.mark.slow)


# One in `make test`, all in `make test-all`.
KINDS = ["normal", *(slow(kind) for kind in OBSERVED if kind != "normal")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [np.nan, *map(slow, (np.inf, -np.inf, 1e308))])
def test_nan_covariate_agrees(kind, number):
    x = X.copy()
    x[3] = number
    # Upstream's rewrites turn the checks of most densities into -inf, which its Ops alone raise for.
    assert_as_upstream(lambda: grouped(kind, x), mode="NUMBA" if kind != "normal" else PYTHON)


@pytest.mark.parametrize("kind", ["normal", *map(slow, ("student", "censored", "gamma"))])
@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_infinite_observation_agrees(kind, number):
    y = OBSERVED[kind].copy()
    y[3] = number
    assert_as_upstream(lambda: grouped(kind, y=y))


@pytest.mark.parametrize("number", [slow(1e154), slow(1e160), 1e308])
@pytest.mark.parametrize("column", ["x", "y"])
def test_overflowing_squares_agree(number, column):
    """The result is not finite exactly where upstream's is not, without a warning."""
    data = {"x": X.copy(), "y": OBSERVED["normal"].copy()}
    data[column][3] = number
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Upstream's own constants may overflow.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="pytensor")
        found = logp_and_gradient(grouped(**data))[0]
    with disabled():
        expected = logp_and_gradient(grouped(**data), PYTHON)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("as_data", [False, True], ids=["constants", "data"])
def test_few_rows_agree_with_upstream(kind, n, as_data):
    y = OBSERVED[kind][:n]
    assert_as_upstream(lambda: grouped(kind, X[:n], GROUP[:n], y, as_data))


@pytest.mark.parametrize("shape", [(1, 1), (0, 5), *map(slow, ((1, 5), (5, 1), (5, 0), (1, 0)))])
def test_short_axes_agree(shape):
    y = np.linspace(-1, 1, np.prod(shape)).reshape(shape)

    def make():
        with pm.Model() as model:
            row = pm.Normal("row", shape=(shape[0], 1))
            column = pm.Normal("column", shape=(1, shape[1]))
            pm.Normal("y", row + column, pm.HalfNormal("noise"), observed=y)
        return model

    assert_as_upstream(make)


def every_third_backwards(values):
    return np.repeat(values, 3)[::-3][::-1]


def column_of(values):
    return np.column_stack([values, values + 1])[:, 0]


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


@pytest.mark.parametrize("arranged", [every_third_backwards, slow(column_of), slow(read_only)])
@pytest.mark.parametrize("as_data", [False, True], ids=["constants", "data"])
def test_array_layouts_agree(arranged, as_data):
    arrays = [arranged(each) for each in (X, GROUP, OBSERVED["poisson"])]
    found = directly(grouped("poisson", *arrays, as_data))
    expected = directly(grouped("poisson", as_data=as_data))
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])
    assert_as_upstream(lambda: grouped("poisson", *arrays, as_data))


def test_foreign_byte_order_fails_as_upstream():
    for on in (True, False):
        with pymc_fastlogp.config.switched(on), pytest.raises(TypeError, match="Unsupported dtype"):
            grouped(x=X.astype(">f8"))


def with_group(k, as_data):
    group = GROUP.copy()
    group[7] = k
    return grouped("poisson", group=group, as_data=as_data)


@pytest.mark.parametrize("k", [GROUPS, slow(10**6), slow(-GROUPS - 1)])
@pytest.mark.parametrize("as_data", [False, True], ids=["constants", "data"])
def test_empty_group_agrees(k, as_data):
    """Upstream's Ops raise, but its code for Numba reads what is behind the array."""
    with disabled(), pytest.raises(IndexError, match="out of bounds"):
        logp_and_gradient(with_group(k, as_data), PYTHON)
    with pytest.raises(IndexError, match="out of bounds"):
        logp_and_gradient(with_group(k, as_data))
    with pytest.raises(ValueError, match="cannot be evaluated"):
        directly(with_group(k, as_data))


@pytest.mark.parametrize(
    "build",
    [
        lambda x, i: pt.exp(x)[i],
        lambda x, i: pt.exp(x[i]) * 2,
        lambda x, i: pytensor.grad(pt.exp(x[i]).sum(), x),
        lambda x, i: pt.exp(x)[i.astype("uint8")] + 1,
        lambda x, i: (x * 2)[i].inc(pt.exp(x[:3])),
        lambda x, i: (x * 2)[i].set(pt.exp(x[:3])),
        lambda x, i: pt.concatenate([x, x])[i] * 2,
    ],
    ids=["gather", "gather first", "gradient", "small integers", "inc", "set", "joined"],
)
def test_a_constant_index_out_of_range_raises_when_it_is_called(build):
    index = np.array([0, 9, 1])
    x = pt.tensor("x", shape=(4,), dtype="float64")
    function = pytensor.function([x], build(x, index), mode="NUMBA")
    with pytest.raises(IndexError, match="out of bounds"):
        function(np.arange(4.0))


class TestDataThatAreReplaced:
    def test_data_replaced_between_calls_count(self):
        model = grouped("poisson", as_data=True)
        function = model.compile_logp(mode="NUMBA")
        point = model.initial_point()
        for x, group in ((X, GROUP), (2 * X, GROUP[::-1].copy()), (X[::-1], GROUP)):
            with model:
                pm.set_data({"x": x, "group": group})
            with disabled():
                expected = grouped("poisson", x, group).compile_logp(mode=PYTHON)(point)
            np.testing.assert_allclose(function(point), expected, rtol=1e-12)

    def test_replaced_data_that_do_not_fit_raise(self):
        model = grouped("poisson", as_data=True)
        function = model.compile_logp(mode="NUMBA")
        point = model.initial_point()
        with model:
            pm.set_data({"group": GROUP + 1})
        with pytest.raises(IndexError, match="out of bounds"):
            function(point)
        with model:
            pm.set_data({"group": GROUP, "x": X[: N // 2]})
        with pytest.raises(ValueError, match=r"(?i)shape|length|broadcast"):
            function(point)
        with model:
            pm.set_data({"x": X})
        assert np.isfinite(function(point))
