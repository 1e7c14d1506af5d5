"""The key of a model is equal for equal models in any process, and differs after any change of the model."""

import sys
from functools import partial
from importlib.metadata import PackageNotFoundError

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import Interval, log
from pytensor.gradient import grad_clip, grad_scale

from pymc_fastlogp.model_cache.key import NotKeyedError, key_of
from tests import zoo
from tests.callbacks import models
from tests.conftest import PYTHON

# PyMC makes a class for each, which says nothing of what it computes.
NO_KEY = ("logit_normal", "custom_dist")
Y = np.array([0.5, 1.0, 2.0])


def normal(
    *,
    name="mu",
    prior=0.0,
    y=Y,
    dims=None,
    coords=None,
    transform=None,
    initval=None,
    likelihood=pm.Normal,
    check_bounds=True,
    total=None,
    data=None,
    stored=None,
    penalty=None,
):
    """A model in which each argument changes one thing."""
    with pm.Model(coords=coords or {"k": [1, 2, 3]}, check_bounds=check_bounds) as model:
        mu = pm.Normal(name, prior, 1, transform=transform, initval=initval, dims=dims)
        scale = pm.Data("scale", np.float64(1 if data is None else data))
        if stored is not None:
            pm.Deterministic("stored", stored(mu))
        if penalty is not None:
            pm.Potential("penalty", penalty * mu.sum())
        likelihood("y", mu, scale, observed=y, total_size=total)
    return model


CHANGES = {
    "name": {"name": "nu"},
    "number": {"prior": 1e-300},
    "data": {"y": np.array([0.5, 1.0, np.nextafter(2.0, 3)])},
    "sign of a zero": {"prior": -0.0},
    "type of data": {"y": Y.astype(int)},
    "length of data": {"y": np.append(Y, 1.0)},
    "dims": {"dims": "k"},
    "coordinates": {"coords": {"k": [1, 2, 4]}},
    "more coordinates": {"coords": {"k": [1, 2, 3], "l": [0]}},
    "transform": {"transform": Interval(-9, 9)},
    "initial value": {"initval": 0.25},
    "distribution": {"likelihood": pm.Laplace},
    "bounds": {"check_bounds": False},
    "total size": {"total": 30},
    "shared data": {"data": 2.0},
    "deterministic": {"stored": pt.exp},
    "potential": {"penalty": 1.0},
}


def test_equal_models_have_equal_keys():
    assert key_of(normal(), {}) == key_of(normal(), {})
    for make in (*models.DIRECT, models.ranks):
        assert key_of(make(), {}) == key_of(make(), {})


def test_static_method_logp_has_a_key():
    """PyMC keeps it as the class body has it, not as a function."""

    def correlations(eta):
        with pm.Model() as model:
            pm.LKJCorr("L", n=3, eta=eta)
        return model

    assert key_of(correlations(2), {}) == key_of(correlations(2), {}) != key_of(correlations(3), {})


@pytest.mark.parametrize("name", ["ZeroInflatedPoisson", "HurdlePoisson"])
def test_shapes_cached_in_an_op_do_not_change_the_key(name):
    """PyTensor caches shapes in the Op at the first request for the length of a dimension."""

    def counts():
        with pm.Model(coords={"t": range(3)}) as model:
            mu = pm.HalfNormal("mu", dims="t")
            getattr(pm, name)("y", 0.5, mu, observed=[0, 1, 2], dims="t")
        return model

    assert key_of(counts(), {}) == key_of(counts(), {})


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name not in NO_KEY])
def test_models_of_the_zoo_have_keys(name):
    assert key_of(zoo.make(name), {})


@pytest.mark.parametrize("name", NO_KEY)
def test_run_time_densities_have_no_key(name):
    with pytest.raises(NotKeyedError):
        key_of(zoo.make(name), {})


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_changes_the_key(change):
    assert key_of(normal(**change), {}) != key_of(normal(), {})


def test_keys_of_all_changes_differ():
    keys = [key_of(normal(**change), {}) for change in CHANGES.values()]
    assert len(set(keys)) == len(CHANGES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Interval(0, 2), Interval(0, 3)),
        (Interval(0, 2), Interval(None, 2)),
        (log, Interval(0, None)),
    ],
    ids=["bound", "side", "class"],
)
def test_variables_captured_by_a_transform_change_the_key(one, other):
    keys = [key_of(normal(transform=each), {}) for each in (one, other)]
    assert keys[0] != keys[1]


def test_coordinates_of_other_numbers_change_the_key():
    lists = [
        [1, 2, 3],
        [1, 2, 2**63],
        [1, 2, 2**63 + 1],
        [1.0, 2.0, 3.0],
        [1, 2, 3.0],
        [True, True, True],
        [1, 1, 1],
        [1, 1, True],
        [*np.arange(1, 4)],
        [*np.arange(1, 4, dtype="int32")],
    ]
    keys = {key_of(normal(coords={"k": x}), {}) for x in lists}
    assert len(keys) == len(lists)
    assert key_of(normal(coords={"k": [1, 2, 3]}), {}) in keys


def test_dates_change_the_key():
    """A Timestamp keeps all that it is outside of its dictionary."""
    keys = {
        key_of(normal(coords={"k": pd.date_range(start, periods=3)}), {})
        for start in ("2020-01-01", "2020-01-02", "2020-01-02")
    }
    assert len(keys) == 2


def test_a_model_keeps_its_key_when_it_was_compiled():
    model = models.hierarchy()
    before = key_of(model, {})
    with model:
        model.compile_logp(mode=PYTHON)
        model.compile_dlogp(mode=PYTHON)
    assert key_of(model, {}) == before


def test_options_change_the_key():
    keys = {key_of(normal(), {"var_names": names}) for names in (None, [], ["mu"])}
    assert len(keys) == 3


def test_set_data_changes_the_key():
    model = normal()
    before = key_of(model, {})
    with model:
        pm.set_data({"scale": 3.0})
    changed = key_of(model, {})
    with model:
        pm.set_data({"scale": 1.0})
    assert changed != before == key_of(model, {})


def test_order_of_edges_changes_the_key():
    """``a - b`` is not ``b - a``, nor is a variable that is used twice two that are equal."""

    def model(difference):
        with pm.Model() as made:
            a, b = pm.Normal("a"), pm.Normal("b")
            pm.Potential("p", difference(a, b))
        return key_of(made, {})

    keys = {
        model(f)
        for f in (
            lambda a, b: a - b,
            lambda a, b: b - a,
            lambda a, b: pt.exp(a) * pt.exp(a),
            lambda a, b: pt.exp(a) * pt.exp(b),
            lambda a, b: pt.exp(a) + pt.exp(b),
        )
    }
    assert len(keys) == 5


def test_inner_graphs_change_the_key():
    def model(step):
        with pm.Model() as made:
            a = pm.Normal("a")
            xs = pt.as_tensor(models.X[:5])
            import pytensor

            states = pytensor.scan(step, sequences=[xs], non_sequences=[a], return_updates=False)
            pm.Potential("p", states.sum())
        return key_of(made, {})

    assert model(lambda x, a: x * a) == model(lambda x, a: x * a)
    assert model(lambda x, a: x * a) != model(lambda x, a: x + a)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: grad_scale(x, 2.0), lambda x: grad_scale(x, 3.0)),
        (lambda x: grad_clip(x, -1, 1), lambda x: grad_clip(x, -2, 1)),
    ],
    ids=["scale", "clip"],
)
def test_gradient_overrides_change_the_key(one, other):
    """PyTensor compares these Ops as equal, but their gradients differ."""

    def model(step):
        with pm.Model() as made:
            pm.Potential("p", step(pm.Normal("x")))
        return key_of(made, {})

    assert model(one) == model(one)
    assert model(one) != model(other)


def test_sources_on_the_path_have_keys(monkeypatch):
    """The version of an installation was asked for, which sources that are not installed have not."""
    module = sys.modules["pymc_fastlogp.model_cache.key"]

    def version(package):
        if package == "pymc-fastlogp":
            raise PackageNotFoundError(package)
        return "0"

    module._versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(module, "version", version)
        assert key_of(normal(), {})
    module._versions.cache_clear()


class OwnTransform(Interval):
    """A class of no package that is known."""


def own_bounds(upper, *args):
    return 0.0, upper


def own_logp(value, mu):
    return -((value - mu) ** 2)


NOT_KEYED = {
    "a custom density": lambda: pm.CustomDist("c", 0.0, logp=own_logp),
    "a custom graph": lambda: pm.CustomDist("c", 0.0, dist=lambda mu, size: pm.Normal.dist(mu)),
    "a function in an object written in C": lambda: pm.Normal(
        "c", transform=Interval(bounds_fn=partial(own_bounds, 2.0))
    ),
    "a class that may change": lambda: pm.Normal("c", transform=OwnTransform(0, 1)),
    "a function that may change": lambda: pm.Normal(
        "c", transform=Interval(bounds_fn=lambda *args: (0, None))
    ),
}


@pytest.mark.parametrize("make", NOT_KEYED.values(), ids=NOT_KEYED)
def test_mutable_code_has_no_key(make):
    with pm.Model() as model:
        make()
    with pytest.raises(NotKeyedError):
        key_of(model, {})


def test_a_density_that_was_registered_by_the_user_has_no_key():
    """PyMC finds densities by the type of the Op: another function for a type of PyMC is not PyMC's."""
    from pymc.logprob.abstract import _logprob
    from pytensor.tensor.random.basic import GumbelRV

    with pm.Model() as model:
        pm.Gumbel("g", 0, 1)
    key_of(model, {})
    original = _logprob.dispatch(GumbelRV)
    try:
        _logprob.register(GumbelRV, lambda op, values, *inputs, **kwargs: values[0])
        with pytest.raises(NotKeyedError):
            key_of(model, {})
    finally:
        _logprob.register(GumbelRV, original)


def test_keys_are_equal_in_another_process(run_script):
    source = """
        from pymc_fastlogp.model_cache.key import key_of
        from tests.callbacks import models
        print(*(key_of(make(), {}) for make in (*models.DIRECT, models.ranks)))
        """
    results = [run_script(source, PYTHONHASHSEED=seed) for seed in "12"]
    assert results[0].stdout.split(), results[0].stderr
    assert results[0].stdout == results[1].stdout
