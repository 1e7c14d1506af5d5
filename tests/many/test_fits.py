"""Fits of one model with many data sets, of models, and of a function that builds models, in this process."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_fastlogp
from tests.many.conftest import GROUP, OPTIONS, data_set, fit_all, means, simple_model

DATA = {f"set {k}": data_set(k) for k in range(3)}


def assert_same_draws(tree: xr.DataTree, other: xr.DataTree) -> None:
    assert tree.children.keys() == other.children.keys()
    for name in tree.children:
        xr.testing.assert_identical(
            tree[name].to_dataset().drop_attrs(), other[name].to_dataset().drop_attrs()
        )


def test_draws_are_those_of_sample_with_the_data_and_the_seed_of_the_fit(model, here):
    for fit in fit_all(model, DATA, executor=here):
        with model:
            pm.set_data(DATA[fit.key])
        options = OPTIONS | {"random_seed": fit.random_seed, "cores": 1, "quiet": True}
        shared = {"freeze_model": False}
        expected = pymc_fastlogp.sample(model=model, compile_kwargs=shared, **options)
        assert_same_draws(fit.value, expected)


def test_the_model_keeps_its_data(grouped_model, here):
    before = grouped_model["seen"].get_value()
    fit_all(grouped_model, [data_set(1)], executor=here)
    np.testing.assert_array_equal(grouped_model["seen"].get_value(), before)
    assert "index" in {x.name for x in grouped_model.data_vars}


@pytest.mark.usefixtures("empty_memory")
def test_data_of_one_shape_are_compiled_once(model, here, compilations):
    found = means(fit_all(model, [data_set(k) for k in range(4)], executor=here, keep=["mu"]))
    assert len(compilations) == 1
    for k, mean in found.items():
        assert mean == pytest.approx(data_set(k)["seen"].mean(), abs=0.3)


def test_machine_code_is_found_on_disk(model, here, compilations, empty_memory):
    fit_all(model, [data_set(1)], executor=here)
    empty_memory()
    fit_all(simple_model(), [data_set(2)], executor=here)
    assert len(compilations) == 1


@pytest.mark.usefixtures("empty_memory")
def test_a_function_outside_of_known_packages_is_compiled_once_in_memory(here, compilations):
    def logp(value, mu):
        return -((value - mu) ** 2) / 2

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.CustomDist("y", mu, logp=logp, observed=pm.Data("seen", data_set(0)["seen"]))
    found = means(fit_all(model, [data_set(k) for k in range(3)], executor=here, keep=["mu"]))
    assert len(compilations) == 1
    for k, mean in found.items():
        assert mean == pytest.approx(data_set(k)["seen"].mean(), abs=0.3)


@pytest.mark.usefixtures("empty_memory")
def test_data_of_other_lengths_than_the_model_has_are_compiled_once(model, here, compilations):
    found = means(
        fit_all(model, [data_set(k, 10 + k) for k in range(4)], executor=here, keep=["mu"])
    )
    assert len(compilations) == 2
    for k, mean in found.items():
        assert mean == pytest.approx(data_set(k, 10 + k)["seen"].mean(), abs=0.3)


def test_coordinates_are_exchanged_with_the_data(grouped_model, here):
    rows = np.arange(100, 106)
    data = {"row": rows, "index": GROUP[:6], **data_set(3, 6)}
    [first, second] = fit_all(
        grouped_model, [{"row": np.arange(12), "index": GROUP, **data_set(1)}, data], executor=here
    )
    assert first.result().posterior["eta"].sizes["row"] == 12
    eta = second.result().posterior["eta"]
    np.testing.assert_array_equal(eta["row"], rows)
    np.testing.assert_array_equal(eta[..., 0], second.value.posterior["a"][..., 0])
    np.testing.assert_array_equal(second.value.observed_data["y"], data["seen"])


def test_data_that_no_data_set_replaces_stay_in_the_result(grouped_model, here):
    [fit] = fit_all(grouped_model, [data_set(1)], executor=here)
    np.testing.assert_array_equal(fit.result().constant_data["index"], GROUP)


@pytest.mark.parametrize(
    "options", [{"compile_kwargs": {"freeze_model": True}}, {"reparametrize": True}]
)
def test_frozen_data(grouped_model, here, options):
    for fit in fit_all(grouped_model, [data_set(1), data_set(2)], executor=here, **options):
        of_a = np.bincount(GROUP, data_set(fit.key + 1)["seen"]) / 4
        assert fit.result().posterior["a"].mean(("chain", "draw")).values == pytest.approx(
            of_a, abs=0.5
        )


def test_a_model_that_pymc_samples(here):
    with pm.Model() as model:
        mu = pm.Poisson("mu", 3)
        pm.Normal("y", mu, 1.0, observed=pm.Data("seen", data_set(0)["seen"]))
    found = means(fit_all(model, {"a": data_set(4)}, executor=here, keep=["mu"]))
    assert found["a"] == pytest.approx(4, abs=0.5)


def test_models(here):
    models = {k: simple_model(8 + k) for k in range(2)}
    for k, model in models.items():
        with model:
            pm.set_data(data_set(5 + k, 9))
    found = means(fit_all(models, executor=here, keep=["mu"]))
    assert found == {k: pytest.approx(data_set(5 + k, 9)["seen"].mean(), abs=0.3) for k in models}


@pytest.mark.usefixtures("empty_memory")
def test_a_function_that_builds_models(here, compilations):
    def build(k):
        model = simple_model()
        with model:
            pm.set_data(data_set(k))
        return model

    found = means(fit_all(build, range(3), executor=here, keep=["mu"]))
    assert found == {k: pytest.approx(data_set(k)["seen"].mean(), abs=0.3) for k in range(3)}
    assert len(compilations) == 1


def test_threads_do_not_share_data(model):
    data = [data_set(10 * k) for k in range(6)]
    with ThreadPoolExecutor(3) as executor:
        found = means(fit_all(model, data, executor=executor, keep=["mu"]))
    assert found == {k: pytest.approx(x["seen"].mean(), abs=0.3) for k, x in enumerate(data)}


class TestKeep:
    def test_variables(self, grouped_model, here):
        [fit] = fit_all(grouped_model, [data_set(1)], executor=here, keep=["a"])
        assert isinstance(fit.value, xr.Dataset)
        assert [*fit.value] == ["a"]

    def test_function(self, model, here):
        [fit] = fit_all(model, [data_set(1)], executor=here, keep=lambda x: x.posterior["mu"].size)
        assert fit.value == 200


class TestErrors:
    def test_a_fit_that_raises_is_a_result(self, model, here):
        data = {"good": data_set(1), "bad": {"seen": np.full(12, np.nan)}, "last": data_set(2)}
        fits = {fit.key: fit for fit in fit_all(model, data, executor=here, keep=["mu"])}
        assert [key for key, fit in fits.items() if fit.error is None] == ["good", "last"]
        error = fits["bad"].error
        assert isinstance(error, pm.exceptions.SamplingError)
        assert any("Traceback" in note for note in error.__notes__)
        assert fits["bad"].value is None
        with pytest.raises(pm.exceptions.SamplingError, match="cannot start"):
            fits["bad"].result()

    def test_an_error_that_cannot_be_pickled_is_described(self, model, here):
        class LocalError(Exception):
            pass

        def keep(idata):
            raise LocalError("no")

        [fit] = fit_all(model, [data_set(1)], executor=here, keep=keep)
        with pytest.raises(RuntimeError, match="LocalError: no"):
            fit.result()

    def test_other_names_than_the_first_data_set(self, grouped_model, here):
        first = {"index": GROUP, **data_set(1)}
        [_, fit] = fit_all(grouped_model, [first, data_set(2)], executor=here)
        with pytest.raises(
            ValueError, match="the data set has seen, the first one has index, seen"
        ):
            fit.result()

    def test_divergences_and_problems_are_part_of_a_fit(self, here):
        with pm.Model() as model:
            x = pm.Normal("x")
            pm.Potential("wall", -pm.Data("slope", 0.0) * pm.math.maximum(x, 0))
        [fit] = fit_all(model, [{"slope": 1e5}], executor=here)
        assert fit.error is None
        assert fit.n_divergences > 0
        assert f"{fit.n_divergences} divergences" in fit.problems[0]


class TestArguments:
    @pytest.mark.parametrize("name", ["cores", "callback", "step", "quiet"])
    def test_refused(self, model, name):
        with pytest.raises(TypeError, match=f"sample_many takes no {name}"):
            pymc_fastlogp.sample_many(model, [], **{name: 1})

    def test_misspelled(self, model):
        with pytest.raises(TypeError, match="did you mean"):
            pymc_fastlogp.sample_many(model, [], target_acept=0.9)

    def test_unknown_data(self, model):
        with pytest.raises(ValueError, match="no data or dimension 'other'"):
            pymc_fastlogp.sample_many(model, [{"other": 1}])

    def test_data_sets_are_dictionaries(self, model):
        with pytest.raises(TypeError, match="a data set is int"):
            pymc_fastlogp.sample_many(model, [1])

    def test_data_sets_for_several_models(self, model):
        with pytest.raises(TypeError, match="for one model"):
            pymc_fastlogp.sample_many([model], [data_set(1)])

    def test_no_data_sets(self, model):
        with pytest.raises(TypeError, match="data_sets is missing"):
            pymc_fastlogp.sample_many(model)
        assert fit_all(model, []) == []

    def test_keys_that_are_equal_as_text(self, model, here):
        with pytest.raises(ValueError, match="two data sets have the key '1'"):
            fit_all(model, {1: data_set(1), "1": data_set(2)}, executor=here)


class TestSeeds:
    def test_depend_on_the_key_alone(self, model, here):
        def seeds(data, **options):
            fits = fit_all(model, data, executor=here, **options)
            return {fit.key: fit.random_seed for fit in fits}

        first = seeds(DATA)
        assert len({*first.values()}) == len(DATA)
        assert seeds(dict(reversed(DATA.items()))) == first
        assert seeds({"set 1": DATA["set 1"]}) == {"set 1": first["set 1"]}
        assert seeds(DATA, random_seed=2) != first
