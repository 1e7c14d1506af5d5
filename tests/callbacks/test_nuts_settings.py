"""Settings of NUTS: names and values that nutpie refuses are errors of one line before the model is compiled."""

from importlib import import_module
from inspect import signature

import nutpie
import pytest

import pymc_fastlogp
from pymc_fastlogp._upstream.nutpie_library import SETTINGS, library, refusal
from pymc_fastlogp.sampling import nuts_settings
from tests.callbacks import models


@pytest.mark.parametrize(
    ("nuts", "error", "message"),
    [
        ({"target_accep": 0.9}, TypeError, '"target_accep": did you mean "target_accept"'),
        ({"max_tree_depth": 9}, TypeError, '"max_tree_depth": did you mean "max_treedepth"'),
        ({"adaptations": "diag"}, TypeError, '"adaptations": did you mean "adaptation"'),
        ({"zyx": 1}, TypeError, 'no setting "zyx" for the sampler nuts'),
        ({"seed": 7}, TypeError, r"write sample\(random_seed=...\)"),
        ({"draws": 7}, TypeError, r"write sample\(draws=...\)"),
        ({"blocking": False}, TypeError, r"call nutpie.sample\(.*, blocking=...\)"),
        ({"maxdepth": 9, "max_treedepth": 9}, TypeError, "max_treedepth is nutpie's maxdepth"),
        ([("maxdepth", 9)], TypeError, "give a dictionary of settings"),
        ({"maxdepth": -1}, ValueError, r'nuts\["maxdepth"\] is -1: .* negative'),
        ({"max_treedepth": 2.5}, ValueError, r"is 2.5: .* integer"),
        ({"target_accept": "high"}, ValueError, "is 'high': must be real number"),
        ({"target_accept": 80}, ValueError, "target_accept is 80: give a probability"),
        ({"adaptation": "lowrank"}, ValueError, "is 'lowrank': give one of diag, .*low_rank"),
        ({"sampler": "hmc"}, ValueError, "is 'hmc': give one of nuts, mclmc"),
        ({"mass_matrix_gamma": 1.0}, ValueError, "not available for diag adaptation"),
    ],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_settings_of_nuts_that_nutpie_refuses_are_errors_before_compilation(
    monkeypatch, nuts, error, message
):
    # A call of None would raise another error. The function hides the module of the same name.
    monkeypatch.setattr(import_module("pymc_fastlogp.sampling.sample"), "compiled_model", None)
    with pytest.raises(error, match=message):
        pymc_fastlogp.sample(model=models.one_number(), nuts=nuts)


def test_target_accept_is_validated_and_is_given_once():
    with pytest.raises(ValueError, match=r"target_accept is 1.5: give a probability"):
        pymc_fastlogp.sample(model=models.one_number(), target_accept=1.5)
    with pytest.raises(TypeError, match="target_accept is given twice"):
        pymc_fastlogp.sample(
            model=models.one_number(), target_accept=0.9, nuts={"target_accept": 0.9}
        )


@pytest.mark.parametrize(
    "nuts",
    [{"mass_matrix_gamma": 1e-4, "adaptation": "low_rank"}, {"step_size": 0.1, "sampler": "mclmc"}],
    ids=lambda x: str(x) if isinstance(x, dict) else "",
)
def test_settings_of_an_adaptation_and_of_a_sampler_are_accepted(nuts):
    nuts_settings.refuse({"nuts": nuts})


def test_settings_are_left_to_nutpie_if_its_release_is_unknown(monkeypatch):
    monkeypatch.setattr("pymc_fastlogp._upstream.nutpie_library.RELEASES", frozenset())
    nuts_settings.refuse({"nuts": {"target_accep": 0.9}})


def test_all_names_of_settings_are_known_by_nutpie():
    of_function = {*signature(nutpie.sample).parameters} - {"kwargs"}
    passed, own = nuts_settings.PASSED_BY_SAMPLE.keys(), nuts_settings.OF_NUTPIE
    assert of_function == {*passed, *nuts_settings.OTHER_RESULTS, *own} & of_function
    for name in SETTINGS:
        error = refusal(library(), {name: object()}, sampler="nuts", adaptation="diag")
        assert not isinstance(error, AttributeError), name
