"""Direct callbacks against those that nutpie compiles with Numba: the same numbers, status and draws."""

import warnings

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from nutpie.compile_pymc import CompiledPyMCModel

import pymc_fastlogp
from pymc_fastlogp.callbacks.native import DirectCallback
from pymc_fastlogp.models.validate import validated_model
from tests.callbacks import models
from tests.callbacks.calls import expand, logp, points


def test_numba_compiles_nothing(pair):
    assert isinstance(pair.direct, CompiledPyMCModel)
    assert isinstance(pair.direct.compiled_logp_func, DirectCallback)
    assert isinstance(pair.direct.compiled_expand_func, DirectCallback)


def test_logp_gradient_and_values_are_equal_bit_for_bit(pair):
    for x in points(pair.nutpie):
        (status, value, gradient), expected = logp(pair.direct, x), logp(pair.nutpie, x)
        assert (status, value) == expected[:2]
        np.testing.assert_array_equal(gradient, expected[2])
        status, values = expand(pair.direct, x)
        assert status == 0
        np.testing.assert_array_equal(values, expand(pair.nutpie, x)[1])


def test_initial_points_are_equal_bit_for_bit(pair):
    for seed in (0, 1, 12345, 2**40):
        x = pair.direct.initial_point_func(seed)
        np.testing.assert_array_equal(x, pair.nutpie.initial_point_func(seed))


def test_status_is_that_of_nutpie(pair):
    x = points(pair.nutpie, 1)[0]
    far, unknown = np.full(len(x), 1e300), np.full(len(x), np.nan)
    statuses = [logp(pair.direct, each)[0] for each in (x, far, unknown)]
    assert statuses == [logp(pair.nutpie, each)[0] for each in (x, far, unknown)]
    assert statuses[0] == 0
    assert statuses[2] == 3
    assert logp(pair.direct, x, len(x) + 1)[0] == logp(pair.nutpie, x, len(x) + 1)[0] == -1
    n = pair.direct.n_expanded + 1
    assert expand(pair.direct, x, n)[0] == expand(pair.nutpie, x, n)[0] == -1


def test_metadata_equals_nutpies(pair):
    for name in ("n_dim", "n_expanded", "reparameterized_names", "dims"):
        assert getattr(pair.direct, name) == getattr(pair.nutpie, name), name
    names, slices, shapes = pair.direct.shape_info
    assert [names, slices] == [*pair.nutpie.shape_info[:2]]
    assert [*map(list, shapes)] == [*map(list, pair.nutpie.shape_info[2])]
    assert {k: list(v) for k, v in pair.direct.shapes.items()} == {
        k: list(v) for k, v in pair.nutpie.shapes.items()
    }
    assert pair.direct.coords.keys() == pair.nutpie.coords.keys()
    for name, values in pair.direct.coords.items():
        assert list(values) == list(pair.nutpie.coords[name])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adaptation": "low_rank"},
        {"store_unconstrained": True, "store_gradient": True, "store_mass_matrix": True},
    ],
    ids=["plain", "low rank", "stored"],
)
def test_draws_are_equal_bit_for_bit(pair, options):
    options = {"draws": 30, "tune": 60, "chains": 2, "cores": 2, "seed": 4, **options}
    found, expected = (
        nutpie.sample(each, progress_bar=False, **options) for each in (pair.direct, pair.nutpie)
    )
    assert found.groups == expected.groups
    for group in ("posterior", "warmup_posterior", "unconstrained_posterior"):
        for name in expected[group].data_vars if group in expected else ():
            np.testing.assert_array_equal(found[group][name], expected[group][name])


def test_sampling_does_not_block(pair):
    sampler = nutpie.sample(
        pair.direct, draws=20, tune=20, chains=1, seed=1, progress_bar=False, blocking=False
    )
    assert sampler.wait().posterior.sizes["draw"] == 20


@pytest.fixture(scope="module")
def compiled():
    return pymc_fastlogp.compile_pymc_model(models.hierarchy(), freeze_model=False)


class TestDataThatChange:
    def test_new_data_of_another_length_count(self, compiled):
        x = points(compiled, 1)[0]
        before = logp(compiled, x)[1]
        model = models.hierarchy()
        with model:
            pm.set_data({"x": 2 * models.X})
        expected = nutpie.compile_pymc_model(model)
        changed = compiled.with_data(x=2 * models.X)
        assert logp(changed, x)[1] == pytest.approx(logp(expected, x)[1], rel=1e-12)
        assert logp(compiled, x)[1] == before

    def test_invalid_data_fail_as_upstream(self, compiled):
        """An index that is out of range, and rows that do not fit, are upstream's errors."""
        x = points(compiled, 1)[0]
        for changes in ({"group": models.GROUP + 5}, {"x": models.X[:7]}):
            status, *_ = logp(compiled.with_data(**changes), x)
            assert status == 1
            with pytest.raises(ValueError, match="cannot be evaluated"):
                compiled.with_data(**changes).logp_dlogp(x)

    @pytest.mark.parametrize("length", [2, 4])
    def test_a_length_that_is_part_of_the_type_is_kept(self, length):
        """The kernel counts on it, and nutpie does not look at it."""
        with pm.Model() as model:
            pm.Normal("x", pytensor.shared(np.arange(3.0), name="s", shape=(3,)), shape=3)
        for compiled in (
            pymc_fastlogp.compile_pymc_model(model, freeze_model=False),
            nutpie.compile_pymc_model(model),
        ):
            x = np.zeros(3)
            assert logp(compiled.with_data(s=np.ones(3)), x)[0] == 0
            assert logp(compiled.with_data(s=np.ones(length)), x)[0] == 1

    def test_unknown_data_are_nutpies_error(self, compiled):
        with pytest.raises(KeyError, match="Unknown shared variable"):
            compiled.with_data(z=1)

    def test_frozen_data_are_not_replaced_silently(self):
        compiled = pymc_fastlogp.compile_pymc_model(models.hierarchy())
        with pytest.raises(ValueError, match="x was frozen"):
            compiled.with_data(x=2 * models.X)


def test_variable_without_elements_has_logp_zero():
    with pm.Model() as model:
        pm.Normal("x", shape=0)
    assert logp(pymc_fastlogp.compile_pymc_model(model), np.zeros(0))[:2] == (0, 0.0)


@pytest.mark.parametrize("inner", [False, True])
def test_unfreezable_model_is_compiled_unfrozen(inner):
    with pm.Model() as outer:
        if inner:
            with pm.Model("inner") as model:
                pm.Normal("x")
        else:
            model = outer
            pm.Normal("x", initval=pt.ones(()) * 2)
    compiled = pymc_fastlogp.compile_pymc_model(model)
    x = compiled.initial_point_func(1)
    np.testing.assert_array_equal(x, nutpie.compile_pymc_model(model).initial_point_func(1))
    assert compiled.logp_dlogp(x)[0] == pytest.approx(-0.5 * x[0] ** 2 - 0.5 * np.log(2 * np.pi))


def test_stored_variables_can_be_chosen():
    compiled = pymc_fastlogp.compile_pymc_model(models.hierarchy(), var_names=["mu"])
    trace = nutpie.sample(compiled, draws=5, tune=20, chains=1, seed=1, progress_bar=False)
    expected = nutpie.compile_pymc_model(models.hierarchy(), var_names=["mu"], freeze_model=True)
    assert compiled.n_expanded == expected.n_expanded
    assert "mu" in trace.posterior
    assert "a" not in trace.posterior


@pytest.mark.parametrize("by", ["name", "variable"])
def test_initial_points_can_be_chosen(by):
    model = models.one_number()
    x = "x" if by == "name" else model["x"]
    for value, jittered in ((3.0, set()), (4.0, set()), (4.0, {model["x"]}), (4.0, None)):
        options = {"initial_points": {x: value}, "jitter_rvs": jittered}
        compiled = pymc_fastlogp.compile_pymc_model(model, **options)
        point = compiled.initial_point_func(1)
        np.testing.assert_array_equal(
            point, nutpie.compile_pymc_model(model, **options).initial_point_func(1)
        )
        assert (point == value) == (jittered == set())


@pytest.mark.parametrize("name", ["s", "m::s", "s_log__"])
def test_initial_points_of_a_model_with_a_name(name):
    with pm.Model(name="m") as model:
        pm.HalfNormal("s")
    options = {"initial_points": {name: 3.0}, "jitter_rvs": set()}
    compiled = pymc_fastlogp.compile_pymc_model(model, **options)
    expected = nutpie.compile_pymc_model(model, **options).initial_point_func(1)
    np.testing.assert_array_equal(compiled.initial_point_func(1), expected)


@pytest.mark.parametrize("freeze_model", [None, False, True])
def test_initial_points_that_depend_on_other_variables_are_refused(freeze_model):
    with pm.Model() as model:
        pm.Normal("b", pm.Normal("a"))
    options = {"initial_points": {"b": model["a"] + 1}, "freeze_model": freeze_model}
    with pytest.raises(ValueError, match="depends on other random variables"):
        pymc_fastlogp.compile_pymc_model(model, **options)


def test_initial_point_of_a_scale_is_given_constrained_or_unconstrained():
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("s"), shape=3)
        pm.Normal("y", a, 1.0, observed=[1.0, -2.0, 3.0])
    options = {"reparametrize": True, "jitter_rvs": {a}}
    starts = [
        pymc_fastlogp.compile_pymc_model(model, initial_points=x, **options).initial_point_func(1)
        for x in ({"s": 2.0}, {"s_log__": np.log(2.0)})
    ]
    np.testing.assert_allclose(*starts)


class TestPython:
    def test_gives_logp_and_gradient(self, pair):
        x = points(pair.nutpie, 1)[0]
        value, gradient = pair.direct.logp_dlogp(x)
        assert value == logp(pair.nutpie, x)[1]
        np.testing.assert_array_equal(gradient, logp(pair.nutpie, x)[2])

    def test_gives_values_that_are_not_finite(self, pair):
        value, gradient = pair.direct.logp_dlogp(np.full(pair.direct.n_dim, np.nan))
        assert np.isnan(value)
        assert gradient.shape == (pair.direct.n_dim,)

    @pytest.mark.parametrize("shape", [(), (0,), (1000,), (1, 1)])
    def test_refuses_other_shapes(self, pair, shape):
        with pytest.raises(ValueError, match="give one of shape"):
            pair.direct.logp_dlogp(np.zeros(shape))


class TestVerify:
    @pytest.mark.parametrize("make", models.DIRECT, ids=lambda make: make.__name__)
    def test_compiled_model_agrees(self, make):
        compiled = pymc_fastlogp.compile_pymc_model(make())
        assert pymc_fastlogp.verify(make(), compiled=compiled)

    def test_model_compiled_from_other_data_differs(self):
        changed = models.hierarchy()
        with changed:
            pm.set_data({"x": models.X + 1e-6})
        compiled = pymc_fastlogp.compile_pymc_model(changed)
        result = pymc_fastlogp.verify(models.hierarchy(), compiled=compiled)
        assert not result

    def test_refuses_another_model(self):
        compiled = pymc_fastlogp.compile_pymc_model(models.one_number())
        with pytest.raises(ValueError, match=r"other variables than .*sigma_a"):
            pymc_fastlogp.verify(models.hierarchy(), compiled=compiled)

    @pytest.mark.parametrize("freeze_model", [True, False])
    def test_the_order_of_variables_does_not_matter(self, freeze_model):
        """Freezing a model changes it."""

        def line():
            x = np.linspace(0, 1, 5)
            with pm.Model() as model:
                a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 1, shape=2)
                pm.Normal("y", a + b[0] * x, pm.math.exp(b[1]), observed=x**2)
            return model

        compiled = pymc_fastlogp.compile_pymc_model(line(), freeze_model=freeze_model)
        assert pymc_fastlogp.verify(line(), compiled=compiled, freeze_model=not freeze_model)

    def test_refuses_a_model_compiled_by_nutpie(self):
        compiled = nutpie.compile_pymc_model(models.one_number(), **pymc_fastlogp.compile_kwargs())
        with pytest.raises(TypeError, match=r"pass the result of pymc_fastlogp.compile_pymc_model"):
            pymc_fastlogp.verify(models.one_number(), compiled=compiled)


class TestModelsWithoutChecks:
    """PyMC forgets it of a model whose data it freezes."""

    @staticmethod
    def counts():
        """Return a model of which PyMC's check is wrong on purpose: the probabilities do not add up to one."""
        with pm.Model(check_bounds=False) as model:
            a = pm.Normal("a", shape=2)
            p = pm.math.stack([pm.math.exp(a[0]), pm.math.exp(a[1])])
            pm.Multinomial("y", n=5, p=p, observed=[2, 3])
        return model

    @pytest.mark.parametrize("options", [{}, {"freeze_model": False}, {"reparametrize": True}])
    def test_compiled_density_is_that_without_checks(self, options):
        x = np.array([0.3, 0.4])
        expected = self.counts().compile_logp()({"a": x})
        compiled = pymc_fastlogp.compile_pymc_model(self.counts(), **options)
        compiled = getattr(compiled, "original", compiled)
        np.testing.assert_allclose(compiled.logp_dlogp(x)[0], expected, rtol=1e-14)

    def test_verify_keeps_checks_off(self):
        verified = validated_model("verify", self.counts(), freeze_model=True)
        assert not verified.check_bounds
        assert pymc_fastlogp.verify(self.counts())

    def test_reparametrize_keeps_checks_off(self):
        with pm.Model(check_bounds=False) as model:
            tau = pm.HalfNormal("tau")
            a = pm.Normal("a", 0, tau, shape=5)
            pm.Normal("y", a, 0.1, observed=np.arange(5.0))
        assert not pymc_fastlogp.reparametrize(model).check_bounds


class TestLeftToNutpie:
    def test_other_backends_and_numba_arguments_go_to_nutpie(self, monkeypatch):
        calls = []
        monkeypatch.setattr(nutpie, "compile_pymc_model", lambda *a, **kw: calls.append(kw))
        model = models.one_number()
        pymc_fastlogp.compile_pymc_model(model, backend="jax", gradient_backend="jax")
        pymc_fastlogp.compile_pymc_model(model, nogil=True)
        with pymc_fastlogp.disabled():
            pymc_fastlogp.compile_pymc_model(model)
        assert [kw["backend"] for kw in calls] == ["jax", "numba", "numba"]
        assert calls[0]["gradient_backend"] == "jax"
        assert calls[1]["nogil"]

    def test_unknown_nutpie_compiles_by_itself(self, monkeypatch):
        from pymc_fastlogp._upstream import nutpie as private

        assert private.differs() is None
        monkeypatch.setattr(private, "STEPS", ("_no_such_step",))
        assert private.differs() == "no _no_such_step"
        compiled = pymc_fastlogp.compile_pymc_model(models.one_number())
        assert type(compiled) is CompiledPyMCModel


def test_excluded_kernels_leave_the_graph_to_numba(run_script):
    """The whole graph is Numba's."""
    result = run_script(
        """
        import logging
        import pymc_fastlogp
        from tests.callbacks import models
        logging.basicConfig(level=logging.WARNING)
        logging.getLogger("pymc_fastlogp").setLevel(logging.INFO)
        compiled = pymc_fastlogp.compile_pymc_model(models.one_number())
        print(type(compiled.compiled_logp_func).__name__, compiled.logp_dlogp([1.0])[0])
        """,
        PYTENSOR_FLAGS="optimizer_excluding=fastlogp_fused_kernel",
    )
    name, value = result.stdout.split()
    assert name == "DirectCallback"
    assert float(value) == pytest.approx(-1.4189385332)
    assert "Numba compiles the graph of logp" in result.stderr


def test_sums_of_many_operands_warn_of_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path))
    monkeypatch.setattr("pytensor.tensor.rewriting.elemwise.config.cxx", "")
    rng, index = np.random.default_rng(0), np.arange(200) % 5
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=5), pm.Normal("b")
        s = pm.HalfNormal("s", shape=5)
        pm.Normal("y", a[index] + b * rng.normal(size=200), s[index], observed=rng.normal(size=200))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pymc_fastlogp.compile_pymc_model(model)


def test_refuses_models_that_cannot_be_sampled():
    with pm.Model() as nothing:
        pass
    with pytest.raises(ValueError, match="needs a free variable"):
        pymc_fastlogp.compile_pymc_model(nothing)
    with pm.Model() as discrete:
        pm.Poisson("k", 1)
    with pytest.raises(ValueError, match="discrete variables k"):
        pymc_fastlogp.compile_pymc_model(discrete)
    with pytest.raises(ValueError, match="gradient_backend"):
        pymc_fastlogp.compile_pymc_model(models.one_number(), gradient_backend="jax")
