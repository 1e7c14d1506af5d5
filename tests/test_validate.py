"""`explain`, `verify` and `benchmark` take the same arguments and raise the same errors."""

from inspect import signature

import numpy as np
import pymc as pm
import pytest
from pymc.model.transform import optimization
from pytensor.compile.sharedvalue import SharedVariable

import pymc_fastlogp
from pymc_fastlogp import benchmark, explain, verify
from pymc_fastlogp.models import validate

ASKERS = [explain, verify, benchmark]
FAST = {benchmark: {"rounds": 1, "seconds_per_round": 0.001, "wait": False}}

pytestmark = pytest.mark.parametrize("ask", ASKERS, ids=lambda ask: ask.__name__)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        scale = pm.Data("scale", np.ones(40))
        pm.Normal("y", pm.Normal("a"), scale, observed=np.zeros(40))
    return model


@pytest.mark.parametrize("bad", [None, 3, "model", pm.Model, [1, 2]])
def test_wrong_argument_names_what_to_pass(ask, bad):
    with pytest.raises(TypeError) as caught:
        ask(bad)
    what = "" if bad is None else f", not one of type {type(bad).__name__}"
    assert str(caught.value) == f"{ask.__name__} needs a PyMC model{what}: {validate.PASS_ONE}"


class BambiModel:
    """The attributes by which a model of Bambi is recognized, and a repr that no error prints."""

    formula, backend = "y ~ x", None

    def build(self):
        raise AssertionError

    fit = __repr__ = build


def test_model_of_bambi_is_refused_with_the_attribute_to_pass(ask):
    with pytest.raises(TypeError) as caught:
        ask(BambiModel())
    assert str(caught.value) == (
        f"{ask.__name__} needs a PyMC model, not one of type BambiModel: {validate.BAMBI_BUILDS}"
    )


def test_model_without_free_variable_is_refused(ask):
    with pm.Model() as observed:
        pm.Normal("y", observed=[1.0])
    for bad in (pm.Model(), observed):
        with pytest.raises(ValueError, match=f"^{ask.__name__} needs a free variable: give"):
            ask(bad)


def test_refuses_discrete_variables_alone(ask):
    with pm.Model() as model:
        pm.Poisson("k", 3.0)
    if ask is explain:
        assert explain(model)["k"]
        return
    with pytest.raises(ValueError, match=f"{ask.__name__} needs a continuous .* marginalize k"):
        ask(model)


class GotModelError(Exception):
    """Raised where the work would begin."""


@pytest.mark.parametrize("freeze_model", [True, False])
def test_takes_the_model_of_the_context_and_freezes_it_if_asked(
    ask, freeze_model, model, monkeypatch
):
    def found(*args, **kwargs):
        raise GotModelError(validate.validated_model(*args, **kwargs))

    monkeypatch.setitem(ask.__globals__, "validated_model", found)
    with model, pytest.raises(GotModelError) as caught:
        ask(freeze_model=freeze_model)
    [of_context] = caught.value.args
    assert of_context.named_vars.keys() == model.named_vars.keys()
    assert isinstance(of_context["scale"], SharedVariable) != freeze_model


@pytest.mark.skipif(
    not hasattr(optimization, "freeze_model"), reason="before PyMC 6.4 no model keeps functions"
)
def test_functions_that_a_model_keeps_are_not_asked(ask, model, monkeypatch):
    def found(*args, **kwargs):
        raise GotModelError(validate.validated_model(*args, **kwargs))

    monkeypatch.setitem(ask.__globals__, "validated_model", found)
    keeping = optimization.freeze_model(model)
    with pytest.raises(GotModelError) as caught:
        ask(keeping, freeze_model=False)
    [given] = caught.value.args
    assert type(given) is pm.Model
    assert isinstance(given["scale"], SharedVariable)
    assert given.logp() is not given.logp()


def test_freezes_unless_told_not_to(ask):
    assert signature(ask).parameters["freeze_model"].default is True


def test_warns_that_the_plugin_is_switched_off_and_goes_on(ask, model):
    with pymc_fastlogp.disabled():
        with pytest.warns(
            UserWarning, match="^pymc_fastlogp is switched off: PYMC_FASTLOGP=0"
        ) as said:
            assert ask(model, **FAST.get(ask, {}))
        assert not pymc_fastlogp.is_enabled()
    assert [warning.filename for warning in said] == [__file__]


def test_untested_versions_are_told_to_install_others(ask, model, monkeypatch):
    monkeypatch.setattr(validate, "untested_reason", lambda: "pymc 7.0 is not tested")
    monkeypatch.setattr(validate, "is_registered", lambda: False)
    with pytest.raises(RuntimeError) as caught:
        ask(model)
    said = "pymc_fastlogp stays off: pymc 7.0 is not tested; install a tested version."
    assert str(caught.value) == said


def test_the_flag_that_excludes_all_rules_is_named(ask, run_script):
    process = run_script(
        f"""
        import pymc as pm, pymc_fastlogp
        with pm.Model() as model:
            pm.Normal("a")
        pymc_fastlogp.{ask.__name__}(model)
        """,
        PYTENSOR_FLAGS="optimizer_excluding=fastlogp",
    )
    [last] = process.stderr.splitlines()[-1:]
    assert last == (
        "RuntimeError: pymc_fastlogp stays off: PyTensor's flag optimizer_excluding names fastlogp."
    )
