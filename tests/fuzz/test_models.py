"""A fixed slice of the fuzz, and seeds that once failed."""

import numpy as np
import pymc as pm
import pytest
from pytensor.gradient import DisconnectedInputError

from tests.fuzz.compare import refused_upstream, trouble_with
from tests.fuzz.likelihoods import LIKELIHOODS, OBSERVED
from tests.fuzz.models import random_model

SLICE = range(8)


@pytest.mark.parametrize("seed", SLICE)
def test_plugin_agrees_with_upstream(seed):
    assert not trouble_with(seed)


def test_a_seed_makes_the_same_model_again():
    (first, made_of), (second, again) = random_model(3), random_model(3)
    assert made_of == again
    assert first.point_logps() == second.point_logps()


@pytest.mark.slow
def test_every_likelihood_is_drawn():
    drawn = {name for seed in range(400) for name in random_model(seed)[1].split(", ")}
    # Their own names have commas.
    assert {OBSERVED + name.partition(",")[0] for name in LIKELIHOODS} <= drawn


def test_models_that_nutpie_refuses_are_no_finding():
    with pm.Model() as model:
        zeros = pm.Data("zeros", np.zeros(3))
        pm.Normal("y", pm.Flat("slope") * zeros, observed=np.ones(3))
    assert refused_upstream(model, seed=1) == {DisconnectedInputError}
