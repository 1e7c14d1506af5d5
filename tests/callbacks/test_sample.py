"""``sample`` against ``pm.sample``: the same draws and groups, and the arguments that go to PyMC."""

import datetime
import logging
import os
import signal
from decimal import Decimal
from inspect import signature

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from pymc.progress_bar.progress import NutpieProgressBarManager
from pymc.sampling import mcmc
from pymc.step_methods import Metropolis
from pymc.step_methods.compound import Competence
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_fastlogp
from pymc_fastlogp.sampling.draws import common_length
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


def test_log_likelihood_on_request():
    stored = {"log_likelihood": True, "no_such_key": 1}
    with (
        pytest.warns(FutureWarning, match="compute_log_likelihood"),
        pytest.warns(UserWarning, match="no_such_key"),
    ):
        idata = pymc_fastlogp.sample(model=models.hierarchy(), **OPTIONS, idata_kwargs=stored)
    assert idata.log_likelihood["y"].shape == (2, 20, len(models.Y))


@pytest.mark.parametrize("wanted", [None, 0, 1])
def test_unconstrained_draws_are_stored_on_a_true_value(wanted):
    stored = {"include_transformed": wanted}
    idata = pymc_fastlogp.sample(model=models.constrained(), **OPTIONS, idata_kwargs=stored)
    assert ("unconstrained_posterior" in idata.children) == bool(wanted)


def test_takes_the_model_of_the_context():
    with models.one_number():
        idata = pymc_fastlogp.sample(**OPTIONS)
    assert idata.posterior["x"].shape == (2, 20)


@pytest.fixture
def given(monkeypatch):
    """Record the arguments of ``pm.sample``, which returns ``"PyMC"``."""
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
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_of_pymc_alone_go_to_pymc(given, options, reason, caplog):
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
def test_compile_options_of_nutpie_do_not_reach_pymcs_samplers(given, options):
    with pm.Model() as model:
        pm.Normal("x") if options else pm.Poisson("k", 1)
    wanted = {"freeze_model": False, "mode": "FAST_COMPILE"}
    pymc_fastlogp.sample(10, model=model, compile_kwargs=wanted, **options)
    assert given[0]["compile_kwargs"] == {"mode": "FAST_COMPILE"}


def test_compile_options_reach_nutpie_through_pm_sample(given):
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


def test_bad_input_is_refused_in_one_line():
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

    own = {"reparametrize", "store", "threads", "workers"}
    assert described(pymc_fastlogp.sample, own) == described(pm.sample)
    for parameter in signature(pymc_fastlogp.sample).parameters.values():
        assert parameter.annotation is not parameter.empty, parameter.name
        assert parameter.name in pymc_fastlogp.sample.__doc__


def test_a_model_as_the_first_argument_is_refused():
    with pytest.raises(TypeError, match=r"draws first, .* write sample\(model=model\)$"):
        pymc_fastlogp.sample(models.one_number())


@pytest.mark.parametrize("by_keyword", [False, True])
def test_a_model_of_bambi_is_refused_with_the_patch_that_samples_it(by_keyword):
    class BambiModel:
        formula, backend = "y ~ x", None
        build = fit = __repr__ = None

    given = {"model": BambiModel()} if by_keyword else {"draws": BambiModel()}
    with pytest.raises(TypeError, match=r"not one of type BambiModel: write `with pymc_fastlogp\."):
        pymc_fastlogp.sample(**given)


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


PAIRS = [("a", 1), ("b", 2), ("c", 3)]
# What nutpie accepts, and what it refuses.
COORDINATES = {
    "strings": ["a", "b", "c"],
    "integers": [3, 4, 5],
    "times": pd.date_range("2026-01-01", periods=3),
    "small integers": np.array([1, 2, 3], "uint8"),
    "dates": [datetime.date(2026, 1, day) for day in (1, 2, 3)],
    "periods": pd.period_range("2026-01", periods=3, freq="M"),
    "intervals": pd.interval_range(0, 3),
    "mixed": ["a", 1, 2.5],
    "missing": [None, "a", "b"],
    "decimals": [Decimal(1), Decimal(2), Decimal(3)],
}


def labeled(values) -> pm.Model:
    """A model of which each group has one coordinate."""
    with pm.Model(coords={"g": values}) as model:
        a = pm.Normal("a", pm.Data("x", [1.0, 2.0, 3.0], dims="g"), dims="g")
        pm.Normal("y", a, 1.0, observed=[1.0, 2.0, 3.0], dims="g")
    return model


def by_own_sampler(model, **options):
    """Sample as ``pm.sample`` does without nutpie, in mode FAST_COMPILE."""
    options |= {"nuts_sampler": "pymc", "compile_kwargs": {"mode": "FAST_COMPILE"}}
    return pm.sample(model=model, compute_convergence_checks=False, **OPTIONS, **options)


@pytest.mark.parametrize("way", [{}, {"nuts": {"adaptation": "draw_diag"}}], ids=["lib", "nutpie"])
@pytest.mark.parametrize("kind", COORDINATES)
def test_coordinates_are_those_of_pymc(kind, way):
    model = labeled(COORDINATES[kind])
    found = pymc_fastlogp.sample(model=model, **OPTIONS, **way)
    expected = by_own_sampler(model)
    for group in ("posterior", "constant_data", "observed_data"):
        for idata in (found, expected):
            assert [*idata[group].coords][-1] == "g"
        there, here = (x[group].coords["g"].values.tolist() for x in (expected, found))
        assert [*map(str, here)] == [*map(str, there)]
        assert [*map(type, here)] == [*map(type, there)]


@pytest.mark.parametrize(
    "values",
    [
        PAIRS,
        pd.MultiIndex.from_tuples(PAIRS, names=["p", "q"]),
        [("a",), ("b", 1), "c"],
    ],
    ids=["tuples", "multi-index", "lengths"],
)
def test_a_tuple_is_one_entry_of_a_coordinate(values):
    idata = pymc_fastlogp.sample(
        model=labeled(values),
        discard_tuned_samples=False,
        idata_kwargs={"include_transformed": True},
        **OPTIONS,
    )
    assert {"warmup_posterior", "constant_data", "observed_data"} < {*idata.children}
    for name in ("posterior", "warmup_posterior", "constant_data", "observed_data"):
        assert idata[name].coords["g"].values.tolist() == [*values]
    assert idata.posterior["a"].dims == ("chain", "draw", "g")


def with_data_of_two_lengths():
    """A model in which unused data have another length than their dimension, and data without named dimensions."""
    with pm.Model() as model:
        seen = pm.Data("seen", np.zeros(3), dims="row")
        pm.Data("unused", np.zeros(3), dims="row")
        pm.Data("matrix", np.zeros((2, 2)))
        pm.Normal("y", pm.Normal("x") + seen, observed=np.zeros(3), dims="row")
    model["unused"].set_value(np.ones(2))
    return model


def test_data_groups_are_those_of_pymc():
    found = pymc_fastlogp.sample(model=with_data_of_two_lengths(), **OPTIONS)
    expected = by_own_sampler(with_data_of_two_lengths())
    for group in ("constant_data", "observed_data"):
        here, there = found[group].to_dataset(), expected[group].to_dataset()
        xr.testing.assert_identical(here.drop_attrs(), there.drop_attrs())
        assert here.attrs.keys() == there.attrs.keys()
    assert np.isnan(found.constant_data["unused"][-1])


@pytest.fixture
def partly_named():
    """A model with data and a Deterministic of which one of two dimensions has no name."""
    with pm.Model(coords={"g": range(3)}) as model:
        x = pm.Data("x", np.arange(6.0).reshape(3, 2), dims=("g", None))
        b = pm.Normal("b", shape=2)
        pm.Deterministic("product", x * b, dims=("g", None))
        pm.Normal("y", x @ b, observed=np.ones(3), dims="g")
    return model


@pytest.mark.parametrize(
    "options",
    [{}, {"reparametrize": True}, FROZEN, NOT_FROZEN],
    ids=["default", "reparametrized", "frozen", "not frozen"],
)
def test_dimensions_without_a_name_are_those_of_pymc(partly_named, options):
    found = pymc_fastlogp.sample(model=partly_named, **OPTIONS, **options)
    expected = by_own_sampler(partly_named)
    for group, name in (("posterior", "product"), ("constant_data", "x"), ("observed_data", "y")):
        here, there = (idata[group].to_dataset()[name] for idata in (found, expected))
        assert here.dims == there.dims
        assert {*here.coords} == {*there.coords}
        for dim in here.coords:
            assert here[dim].equals(there[dim])
    assert partly_named.named_vars_to_dims["x"] == ("g", None)


@pytest.mark.parametrize(
    "call", ["explain", "verify", "reparametrize", "compile_pymc_model", "benchmark"]
)
def test_every_function_takes_dimensions_without_a_name(partly_named, call):
    options = {"rounds": 1, "wait": False} if call == "benchmark" else {}
    result = getattr(pymc_fastlogp, call)(partly_named, **options)
    assert partly_named.named_vars_to_dims["x"] == ("g", None)
    if call == "reparametrize":
        assert result.named_vars_to_dims == partly_named.named_vars_to_dims


@pytest.fixture
def with_slash():
    """A model with a Deterministic of a dimension whose name has a slash."""
    with pm.Model(coords={"a/b": range(3)}) as model:
        pm.Deterministic("y", pm.Normal("x") * np.ones(3), dims="a/b")
    return model


@pytest.mark.parametrize("options", [{}, {"nuts_sampler": "pymc"}], ids=["ours", "pymc"])
def test_slashes_in_names_are_refused_before_sampling(given, with_slash, options):
    with pytest.raises(ValueError, match="the dimension 'a/b' of y has a slash") as error:
        pymc_fastlogp.sample(model=with_slash, **OPTIONS, **options)
    assert "\n" not in str(error.value)
    assert given == []


def test_slashes_in_names_that_are_not_stored_are_left_alone(with_slash):
    idata = pymc_fastlogp.sample(model=with_slash, var_names=["x"], **OPTIONS)
    assert [*idata.posterior] == ["x"]


@pytest.fixture
def ctrl_c(monkeypatch):
    """Send Ctrl-C as soon as a chain is reported to have draws."""
    sent = []

    def update(self, chains):
        if not sent and chains[0].finished_draws > 1000:
            sent.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(NutpieProgressBarManager, "update", update)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "options", [{}, {"nuts": {"adaptation": "draw_diag"}}], ids=["lib", "nutpie"]
)
def test_interrupted_chains_have_one_length(options):
    n = 3_000_000
    options = {**OPTIONS, "chains": 3, "draws": n, "model": models.one_number(), **options}
    with pytest.warns(UserWarning, match=f"interrupted: of {n} draws, chains have") as warned:
        idata = pymc_fastlogp.sample(**options)
    n_draws = idata.posterior.sizes["draw"]
    assert 0 < n_draws < n
    said = f"{n_draws}, 0, 0. The result has the first {n_draws} of chain 0."
    assert any(said in str(warning.message) for warning in warned)
    assert idata.posterior.sizes["chain"] == idata.sample_stats.sizes["chain"] == 1
    assert idata.posterior["x"].notnull().all()


def stand_in(lengths, draws=10) -> xr.DataTree:
    """Draws of chains of several lengths."""
    is_there = np.arange(draws) < np.array(lengths)[:, None]
    x = (("chain", "draw"), np.where(is_there, 1.0, np.nan))
    stats = xr.Dataset({"step_size": x}, {"chain": range(len(lengths))})
    stats.attrs["inference_library_settings"] = f'{{"settings": {{"num_draws": {draws}}}}}'
    groups = {"posterior": xr.Dataset({"x": x}, stats.coords), "sample_stats": stats}
    warmup = xr.Dataset({"x": (("chain", "draw"), np.ones((len(lengths), 4)))})
    groups |= {"warmup_posterior": warmup, "observed_data": xr.Dataset({"y": ("i", [1.0])})}
    return xr.DataTree.from_dict(groups)


@pytest.mark.parametrize(
    ("lengths", "chains", "n_draws"),
    [
        ([10, 10, 7, 0], [0, 1, 2], 7),
        ([10, 1, 0], [0], 10),
        ([3, 10, 9], [1, 2], 9),
        ([0, 0], [0, 1], 0),
    ],
)
def test_chains_are_kept_that_have_the_most_draws_together(lengths, chains, n_draws):
    with pytest.warns(UserWarning, match=f"chains have {', '.join(map(str, lengths))}."):
        idata = common_length(stand_in(lengths))
    assert idata.posterior.coords["chain"].values.tolist() == chains
    for group in ("posterior", "sample_stats"):
        assert idata[group].sizes == {"chain": len(chains), "draw": n_draws}
    assert idata.warmup_posterior.sizes == {"chain": len(chains), "draw": 4}
    assert idata.observed_data.sizes == {"i": 1}
    assert idata.posterior["x"].notnull().all()


def test_complete_chains_are_unchanged(recwarn):
    idata = stand_in([10, 10])
    assert common_length(idata) is idata
    assert not recwarn.list


# Statistics of single events, which nutpie's store may lack.
OF_EVENTS = ("divergence_draw", "divergence_message", "divergence_energy_error")


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (models.hierarchy, {}),
        (models.constrained, {"discard_tuned_samples": False}),
        (models.constrained, {"idata_kwargs": {"include_transformed": True}}),
        (models.hierarchy, {"reparametrize": True, "tune": 0, "var_names": ["mu", "a"]}),
        (lambda: labeled(PAIRS), {}),
    ],
    ids=["plain", "warm-up", "unconstrained", "reparametrized", "tuples"],
)
def test_draws_in_a_store_are_those_in_memory(make, options, tmp_path):
    options = {**OPTIONS, "draws": 150, "random_seed": 1, **options}
    found = pymc_fastlogp.sample(model=make(), store=tmp_path / "new" / "draws", **options)
    expected = pymc_fastlogp.sample(model=make(), **options)
    assert found.groups == expected.groups
    for group in expected.children:
        here, there = found[group].to_dataset(), expected[group].to_dataset()
        there = there.drop_vars([*OF_EVENTS, "transformation_update_id"], errors="ignore")
        xr.testing.assert_identical(here.drop_attrs(), there.drop_attrs())
        assert {x: here[x].dtype for x in here} == {x: there[x].dtype for x in there}
    assert found.posterior.attrs.keys() <= expected.posterior.attrs.keys()
    for name in ("inference_library", "inference_library_version", "tuning_steps"):
        assert found.posterior.attrs[name] == expected.posterior.attrs[name]
    stored = xr.open_datatree(tmp_path / "new" / "draws", engine="zarr", consolidated=False)
    assert {*expected.posterior} <= {*stored["posterior"]}


def test_draws_in_a_store_are_read_when_they_are_used(tmp_path):
    idata = pymc_fastlogp.sample(model=models.hierarchy(), store=str(tmp_path), **OPTIONS)
    assert not any(idata.posterior[x].variable._in_memory for x in idata.posterior)
    assert np.isfinite(idata.posterior["mu"].mean())


def test_a_store_of_nutpie_is_a_setting_of_nuts(tmp_path):
    import nutpie

    nuts = {"zarr_store": nutpie.zarr_store.LocalStore(str(tmp_path)), "store_mass_matrix": True}
    idata = pymc_fastlogp.sample(model=models.hierarchy(), nuts=nuts, **OPTIONS)
    assert idata.posterior["mu"].shape == (2, 20)
    assert "mass_matrix_inv" in idata.sample_stats
    assert "observed_data" in idata.children


def test_a_store_that_cannot_be_used_is_refused_before_sampling(tmp_path, given):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(FileExistsError, match="is not empty: give store a new path"):
            pymc_fastlogp.sample(model=models.one_number(), store=path)
    new = tmp_path / "new"
    with pm.Model() as discrete:
        pm.Poisson("k", 1)
    with pytest.raises(ValueError, match=r"store needs nutpie, .* k is discrete"):
        pymc_fastlogp.sample(model=discrete, store=new)
    with pytest.raises(ValueError, match="leave out one of them"):
        pymc_fastlogp.sample(model=models.one_number(), store=new, nuts={"zarr_store": None})
    assert (tmp_path / "file").read_text() == "mine"
    assert not new.exists()
    assert given == []
