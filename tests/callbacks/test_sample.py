"""``sample`` against ``pm.sample``: the same draws and groups, and what it leaves to PyMC."""

import logging
from inspect import signature

import numpy as np
import pymc as pm
import pytest
from pymc.sampling import mcmc
from pymc.step_methods import Metropolis
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_fastlogp
from tests.callbacks import models

OPTIONS = {"draws": 20, "tune": 50, "chains": 2, "cores": 1, "progressbar": False, "quiet": True}
FROZEN = {"compile_kwargs": {"freeze_model": True}}
NOT_FROZEN = {"compile_kwargs": {"freeze_model": False}}


@pytest.mark.parametrize(
    "options",
    [
        {"random_seed": 3},
        {"random_seed": np.random.default_rng(5), "target_accept": 0.95},
        {"random_seed": [7, 8], "nuts": {"target_accept": 0.9, "max_treedepth": 3}},
        {"random_seed": 1, "discard_tuned_samples": False, "var_names": ["mu", "a"]},
        {"random_seed": 1, "initvals": {"mu": 2.0}, "idata_kwargs": {"include_transformed": True}},
        {"random_seed": 1, "backend": "numba"},
    ],
    ids=["seed", "generator", "nuts", "stored", "initial", "backend"],
)
def test_draws_and_groups_are_those_of_pymc(options):
    copied = {
        name: np.random.default_rng(5)
        if name == "random_seed" and not isinstance(x, int | list)
        else x
        for name, x in options.items()
    }
    found = pymc_fastlogp.sample(model=models.hierarchy(), **OPTIONS, **options)
    expected = pm.sample(model=models.hierarchy(), **OPTIONS, **copied, **FROZEN)
    assert set(found.groups) == set(expected.groups)
    for group in expected.children:
        assert set(found[group].data_vars) == set(expected[group].data_vars), group
        assert found[group].sizes == expected[group].sizes
    for name in expected.posterior.data_vars:
        np.testing.assert_array_equal(found.posterior[name], expected.posterior[name])
    for name in ("county", "a_dim_0"):
        assert (name in found.posterior.coords) == (name in expected.posterior.coords)
    assert found.posterior.attrs.keys() == expected.posterior.attrs.keys()


def test_log_likelihood_on_request_and_what_pymc_warns_of():
    stored = {"log_likelihood": True, "no_such_key": 1}
    with (
        pytest.warns(FutureWarning, match="compute_log_likelihood"),
        pytest.warns(UserWarning, match="no_such_key"),
    ):
        idata = pymc_fastlogp.sample(model=models.hierarchy(), **OPTIONS, idata_kwargs=stored)
    assert idata.log_likelihood["y"].shape == (2, 20, len(models.Y))


@pytest.mark.parametrize("wanted", [None, 0, 1])
def test_unconstrained_draws_are_asked_for_by_what_is_true(wanted):
    stored = {"include_transformed": wanted}
    idata = pymc_fastlogp.sample(model=models.constrained(), **OPTIONS, idata_kwargs=stored)
    assert ("unconstrained_posterior" in idata.children) == bool(wanted)


def test_takes_the_model_of_the_context():
    with models.one_number():
        idata = pymc_fastlogp.sample(**OPTIONS)
    assert idata.posterior["x"].shape == (2, 20)


@pytest.fixture
def given(monkeypatch):
    """What ``pm.sample`` is called with, which then returns ``"PyMC"``."""
    calls = []
    plain = pm.sample

    from functools import wraps

    @wraps(plain)
    def recorded(*args, **kwargs):
        calls.append(kwargs)
        return "PyMC"

    monkeypatch.setattr(pm, "sample", recorded)
    return calls


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nuts_sampler": "pymc"}, "nuts_sampler is pymc"),
        ({"init": "adapt_diag"}, "init is given"),
        ({"step": object()}, "step is given"),
        ({"callback": print}, "callback is given"),
        ({"return_inferencedata": False}, "return_inferencedata is given"),
        ({"return_inferencedata": None}, "return_inferencedata is given"),
        ({"init": None}, "init is given"),
        ({"initvals": [{"x": 1.0}]}, "initvals is not one dictionary"),
        ({"compile_kwargs": {"mode": "JAX"}}, "mode is given"),
        ({"metropolis": {}}, "metropolis is given"),
        ({"max_treedepth": 5}, "max_treedepth is given"),
        ({"nuts": {"gradient_backend": "pytensor"}}, "gradient_backend is given"),
        ({"backend": "jax"}, "backend is given"),
        ({"nuts": {"draws": 7}}, "draws is given twice"),
        ({"nuts": {"seed": 7, "chains": 3}}, "chains is given twice"),
        ({"nuts": {"target_accept": 0.9}, "target_accept": 0.9}, "target_accept is given twice"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_only_pymc_takes_goes_to_pymc(given, options, reason, caplog):
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        assert pymc_fastlogp.sample(10, model=models.one_number(), **options) == "PyMC"
    assert any(reason in text for text in caplog.messages)
    assert options.items() <= given[0].items()


def test_discrete_models_go_to_pymc(given):
    with pm.Model() as model:
        pm.Poisson("k", 1)
    assert pymc_fastlogp.sample(10, model=model) == "PyMC"


@pytest.mark.parametrize(
    "options",
    [{"nuts_sampler": "pymc"}, {"initvals": [{}]}, {"init": "adapt_diag"}, {}],
    ids=lambda x: min(x, default="discrete"),
)
def test_what_says_how_nutpie_compiles_is_not_for_pymcs_own_samplers(given, options):
    with pm.Model() as model:
        pm.Normal("x") if options else pm.Poisson("k", 1)
    wanted = {"freeze_model": False, "mode": "FAST_COMPILE"}
    pymc_fastlogp.sample(10, model=model, compile_kwargs=wanted, **options)
    assert given[0]["compile_kwargs"] == {"mode": "FAST_COMPILE"}


def test_what_says_how_nutpie_compiles_is_for_nutpie_by_pm_sample(given):
    wanted = {"freeze_model": False, "mode": "NUMBA"}
    pymc_fastlogp.sample(10, model=models.one_number(), compile_kwargs=wanted)
    assert given[0]["compile_kwargs"] == wanted


def test_variables_of_a_registered_step_method_go_to_pymc(given, monkeypatch, caplog):
    class OfTrees(Metropolis):
        @staticmethod
        def competence(var, has_grad):
            return Competence.IDEAL if var.name == "x" else Competence.INCOMPATIBLE

    monkeypatch.setattr(mcmc, "STEP_METHODS", [*mcmc.STEP_METHODS, OfTrees])
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        assert pymc_fastlogp.sample(10, model=models.one_number(), **NOT_FROZEN) == "PyMC"
    assert any("OfTrees samples x" in text for text in caplog.messages)
    assert given[0]["compile_kwargs"] == {}


def test_models_without_a_gradient_go_to_pymc(given, caplog):
    class Halved(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0] / 2

    with pm.Model() as model:
        pm.Potential("p", Halved()(pm.Normal("x")))
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        assert pymc_fastlogp.sample(10, model=model, **NOT_FROZEN) == "PyMC"
    assert any("no gradient" in text for text in caplog.messages)
    assert given[0]["compile_kwargs"] == {}


def test_goes_to_pymc_when_switched_off(given):
    with pymc_fastlogp.disabled():
        assert pymc_fastlogp.sample(10, model=models.one_number()) == "PyMC"


def test_bad_input_is_one_line():
    with pm.Model() as nothing:
        pass
    with pytest.raises(ValueError, match="needs a free variable"):
        pymc_fastlogp.sample(model=nothing)
    with pytest.raises(ValueError, match="random_seed"):
        pymc_fastlogp.sample(model=models.one_number(), random_seed=-1)


def test_signature_is_that_of_pymc_plus_own_arguments():
    def described(function, left_out=()):
        found = signature(function).parameters.values()
        return [(x.name, x.kind, x.default) for x in found if x.name not in left_out]

    assert described(pymc_fastlogp.sample, {"reparametrize"}) == described(pm.sample)
    for parameter in signature(pymc_fastlogp.sample).parameters.values():
        assert parameter.annotation is not parameter.empty, parameter.name
        assert parameter.name in pymc_fastlogp.sample.__doc__


def test_a_model_as_the_first_argument_is_refused():
    with pytest.raises(TypeError, match=r"draws first, .* write sample\(model=model\)$"):
        pymc_fastlogp.sample(models.one_number())


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("random_sed", "random_seed"),
        ("target_acept", "target_accept"),
        ("n_chains", "chains"),
        ("max_tree_depth", "max_treedepth"),
        ("metropolys", "metropolis"),
        ("reparameterise", "reparametrize"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"nuts_sampler": "pymc"}], ids=["nutpie", "pymc"])
def test_misspelled_keywords_are_refused(given, keyword, meant, options):
    with pytest.raises(TypeError, match=f'"{keyword}": did you mean "{meant}"'):
        pymc_fastlogp.sample(model=models.one_number(), **{keyword: 1}, **options)
    assert given == []


@pytest.mark.parametrize("keyword", ["max_treedepth", "step_scale", "mode", "metropolis", "zyx"])
def test_keywords_that_are_not_misspelled_go_to_pymc(given, keyword):
    options = {keyword: object(), "nuts_sampler": "pymc"}
    assert pymc_fastlogp.sample(10, model=models.one_number(), **options) == "PyMC"
    assert options.items() <= given[0].items()


def test_only_arguments_that_are_not_the_default_go_to_pymc(given):
    model = models.one_number()
    pymc_fastlogp.sample(10, model=model, nuts_sampler="pymc", chains=None, progressbar=False)
    expected = {"draws": 10, "model": model, "nuts_sampler": "pymc", "progressbar": False}
    assert given == [expected]


def test_dropped_reparametrization_warns(given):
    options = {"model": models.one_number(), "reparametrize": True}
    with pytest.warns(UserWarning, match="reparametrize=True is ignored: .* nuts_sampler is pymc"):
        assert pymc_fastlogp.sample(nuts_sampler="pymc", **options) == "PyMC"
    with (
        pymc_fastlogp.disabled(),
        pytest.warns(UserWarning, match="because the plugin is switched off"),
    ):
        assert pymc_fastlogp.sample(**options) == "PyMC"
    assert all("reparametrize" not in arguments for arguments in given)
