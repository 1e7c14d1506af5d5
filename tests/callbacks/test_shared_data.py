"""Models with shared data: the cache finds them for other data, bit for bit equal to a fresh compilation."""

from unittest.mock import patch

import numpy as np
import nutpie
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_fastlogp
from pymc_fastlogp._upstream.nutpie import shapes_by_nutpie
from pymc_fastlogp.compilation.shapes import shape_graph
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.model_cache.key import form_of
from tests.callbacks import models
from tests.callbacks.calls import expand
from tests.conftest import PYTHON


def regression(n=30, seed=0, *, groups=4, stores_rows=False):
    """Rows in groups; the data, lengths and coordinates depend on the arguments."""
    rng = np.random.default_rng([n, seed])
    coords = {"group": [f"g{seed}{i}" for i in range(groups)], "row": range(seed, seed + n)}
    with pm.Model(coords=coords) as model:
        group = pm.Data("group_index", rng.integers(groups, size=n))
        x = pm.Data("x", rng.normal(size=(n, 2)), dims=("row", "column"))
        y = pm.Data("y_data", rng.normal(size=n), dims="row")
        a, b = pm.Normal("a", y.mean(), 1, dims="group"), pm.Normal("b", dims="column")
        sigma = pm.HalfNormal("sigma", 2)
        mu = a[group] + x @ b
        if stores_rows:
            mu = pm.Deterministic("mu", mu, dims="row")
        pm.Normal("y", mu, sigma, observed=y)
    return model


def shared(model):
    return pymc_fastlogp.compile_pymc_model(model, freeze_model=False)


@pytest.fixture
def named():
    """A model whose data have named dimensions."""
    with pm.Model(coords={"obs": range(30)}) as model:
        data = pmd.Data("y_data", np.linspace(-1, 1, 30), dims="obs")
        pmd.Normal("y", pmd.Normal("a"), 1, observed=data)
    return model


def test_data_of_named_dimensions_are_read_by_nutpies_own_callback(named, caplog):
    with caplog.at_level("INFO", logger="pymc_fastlogp"):
        compiled = shared(named)
    assert "y_data has named dimensions and may change" in caplog.text
    changed = compiled.with_data(y_data=np.ones(30))
    assert isinstance(changed, nutpie.compile_pymc.CompiledPyMCModel)


@pytest.mark.slow
def test_draws_with_data_of_named_dimensions_are_those_of_nutpie(named):
    options = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1, "progressbar": False}
    found = pymc_fastlogp.sample(**options, model=named, compile_kwargs={"freeze_model": False})
    expected = pm.sample(**options, model=named, nuts_sampler="nutpie")
    np.testing.assert_array_equal(found.posterior["a"], expected.posterior["a"])


def fresh(model):
    with patch.dict("os.environ", {store.ENVIRONMENT_VARIABLE: "0"}):
        return shared(model)


def assert_equal(found, expected):
    """Return whether two compiled models are equal to the last bit."""
    assert found.shape_info[:2] == expected.shape_info[:2]
    assert [*map(tuple, found.shape_info[2])] == [*map(tuple, expected.shape_info[2])]
    assert found.dims == expected.dims
    assert found.coords.keys() == expected.coords.keys()
    for name, coord in found.coords.items():
        assert type(coord) is type(expected.coords[name])
        assert coord.equals(expected.coords[name])
    assert found.shared_data.keys() == expected.shared_data.keys()
    for seed in range(3):
        x = found.initial_point_func(seed)
        np.testing.assert_array_equal(x, expected.initial_point_func(seed))
        (logp, gradient), (other, other_gradient) = (
            each.logp_dlogp(x) for each in (found, expected)
        )
        assert logp == other
        np.testing.assert_array_equal(gradient, other_gradient)
        for one, two in zip(expand(found, x), expand(expected, x), strict=True):
            np.testing.assert_array_equal(one, two)


def draws(compiled):
    options = {"draws": 30, "tune": 60, "chains": 1, "seed": 3, "progress_bar": False}
    return nutpie.sample(compiled, **options)["posterior"]


@pytest.mark.parametrize("n", [30, 47, 1])
def test_new_data_need_no_compilation(n, folder, builds):
    shared(regression())
    model = regression(n, seed=1)
    found = shared(model)
    assert len(builds) == 1
    expected = fresh(model)
    assert len(builds) == 2
    assert_equal(found, expected)
    pd.testing.assert_index_equal(found.coords["group"], pd.Index([f"g1{i}" for i in range(4)]))
    for name, values in draws(found).data_vars.items():
        np.testing.assert_array_equal(values, draws(expected)[name])


@pytest.mark.parametrize("make", models.DIRECT, ids=lambda make: make.__name__)
def test_a_model_is_found_again(make, folder, builds):
    for _ in range(2):
        found = shared(make())
    assert len(builds) == 1
    assert_equal(found, fresh(make()))


def test_new_lengths_of_stored_variables_need_compilation(folder, builds):
    for n in (30, 40, 30, 40):
        model = regression(n, seed=n, stores_rows=True)
        found = shared(model)
        assert dict(zip(found.shape_info[0], found.shape_info[2], strict=True))["mu"] == (n,)
        assert_equal(found, fresh(model))
    shared(regression(30, groups=5, stores_rows=True))
    # Four of them are fresh.
    assert len(builds) - 4 == 3


def test_set_data_counts_when_a_model_is_compiled_again(folder, builds):
    model, other = regression(20), regression(33, seed=5)
    shared(model)
    with model:
        pm.set_data({x.name: x.get_value() for x in other.data_vars}, coords={"row": range(5, 38)})
    assert_equal(shared(model), fresh(model))
    assert len(builds) == 2


def test_data_are_those_of_when_the_model_was_compiled(folder):
    """A cached model copies the data at compilation, like a fresh one; nutpie has ``with_data`` for other data."""
    for _ in range(2):
        model = regression()
        compiled = shared(model)
        x = compiled.initial_point_func(0)
        before = compiled.logp_dlogp(x)[0]
        with model:
            pm.set_data({"y_data": np.full(30, 100.0)})
        np.testing.assert_array_equal(compiled.initial_point_func(0), x)
        assert compiled.logp_dlogp(x)[0] == before


def test_cached_model_takes_new_data(folder, builds):
    shared(regression())
    other = regression(47, seed=2)
    found = shared(regression(30, seed=1))
    assert len(builds) == 1
    changed = found.with_data(**{x.name: x.get_value() for x in other.data_vars})
    x = found.initial_point_func(0)
    assert changed.logp_dlogp(x)[0] == fresh(other).logp_dlogp(x)[0] != found.logp_dlogp(x)[0]
    with pytest.raises(KeyError, match="Unknown shared variable"):
        found.with_data(nothing=1)
    with pytest.raises(ValueError, match="must have rank 1"):
        found.with_data(y_data=np.ones((2, 2)))


def data_only(value, *, name="d", static=None, prior=0.0):
    with pm.Model() as model:
        if value.dtype == "float32":  # of which pm.Data makes float64
            d = pytensor.shared(value, name=name, shape=(None,))
        else:
            d = pm.Data(name, value, shape=static)
        mu = pm.Normal("mu", prior, 1)
        pm.Normal("y", mu, 1, observed=d)
    return model


Y = np.array([0.5, 1.0, 2.0])
CHANGES = {
    "type": {"value": Y.astype("float32")},
    "integers": {"value": Y.astype(int)},
    "number of dimensions": {"value": Y[:, None]},
    "name": {"value": Y, "name": "e"},
    "static length": {"value": Y, "static": (3,)},
    "a constant": {"value": Y, "prior": 1.0},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_data_of_another_type_have_another_form(change, folder, builds):
    model = data_only(**change)
    assert form_of(model, {}).key != form_of(data_only(Y), {}).key
    shared(data_only(Y))
    assert_equal(shared(model), fresh(model))
    assert len(builds) == 3


@pytest.mark.parametrize("value", [Y + 1, Y[:1], Y[:0], np.append(Y, np.inf)])
def test_data_of_the_same_type_have_the_same_form(value):
    assert form_of(data_only(value), {}).key == form_of(data_only(Y), {}).key


def test_a_static_length_is_checked(folder):
    shared(data_only(Y, static=(3,)))
    found = shared(data_only(Y + 1, static=(3,)))
    with pytest.raises(ValueError, match="cannot be evaluated"):
        found.with_data(d=np.ones(4)).logp_dlogp(np.zeros(1))


def by_value(n):
    """A parameter whose length is the value of shared data."""
    with pm.Model() as model:
        length = pm.Data("length", np.int64(n))
        z = pm.Normal("z", size=length)
        pm.Deterministic("positions", pt.arange(length) * z.sum())
    return model


def test_shapes_that_depend_on_values(folder, builds):
    for n in (2, 5, 2, 5):
        compiled = shared(by_value(n))
        assert compiled.n_dim == n
        assert compiled.coords["unconstrained_parameter"][-1] == f"z_{n - 1}"
        assert_equal(compiled, fresh(by_value(n)))
    assert len(builds) == 2 + 4


def test_shapes_that_depend_on_parameters_are_left_to_nutpie():
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        pm.Deterministic("above", x[pt.nonzero(x < 1e9)])
    data = form_of(model, {}).data
    assert shape_graph(model, data) is None


def test_data_that_do_not_fit_each_other_are_left_to_upstream(folder, builds):
    shared(regression(stores_rows=True))
    model = regression(stores_rows=True)
    with model:
        model["x"].set_value(np.ones((29, 2)))
    with pytest.raises(Exception, match=r"shape|broadcast|[Dd]imension"):
        shared(model)


def test_unnamed_shared_variables_change_the_key(folder, builds):
    """A shared variable without a name, in the model and in an initial value."""

    def model(value):
        scale = pytensor.shared(np.float64(value))
        with pm.Model() as made:
            pm.Normal("x", 0, scale, initval=scale * 3)
        return made

    shared(model(1.0))
    for value in (1.0, 2.0):
        found = shared(model(value))
        assert found.initial_point_func(0)[0] == pytest.approx(3 * value, abs=1)
        assert_equal(found, fresh(model(value)))
    assert len(builds) == 3


@pytest.mark.parametrize(
    "make", [*models.DIRECT, models.ranks, regression, lambda: regression(stores_rows=True)]
)
def test_shapes_are_those_of_nutpie(make):
    model = make()
    data = form_of(model, {}).data
    found = shape_graph(model, data).at(data)
    assert found.stored == {name: tuple(shape) for name, shape in shapes_by_nutpie(model).items()}
    assert found.dims == {name: x.eval(mode=PYTHON) for name, x in model.dim_lengths.items()}


def test_another_process_finds_the_model_without_compiling(folder, run_script):
    source = """
        import sys
        import pymc_fastlogp
        from tests.callbacks.test_shared_data import regression
        compiled = pymc_fastlogp.compile_pymc_model(regression(20, seed=8), freeze_model=False)
        print(repr(float(compiled.logp_dlogp(compiled.initial_point_func(0))[0])))
        print("pymc_fastlogp.compilation.build" in sys.modules)
        """
    compiled = shared(regression(20, seed=8))
    expected = repr(float(compiled.logp_dlogp(compiled.initial_point_func(0))[0]))
    assert run_script(source).stdout.split() == [expected, "False"]


@pytest.mark.parametrize("name", ["shapes", "model"])
@pytest.mark.parametrize("content", [b"", b"what is this", "of the other"])
def test_a_damaged_file_is_made_again(name, content, folder, builds):
    shared(regression())
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_size)
    assert len(paths) == 2
    path = paths[name == "model"]
    path.write_bytes(paths[name != "model"].read_bytes() if content == "of the other" else content)
    assert_equal(shared(regression(31)), fresh(regression(31)))
    n_builds = len(builds)
    shared(regression(32))
    assert len(builds) == n_builds == (3 if name == "model" else 2)
