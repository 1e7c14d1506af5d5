"""Small random models, each made by its seed alone: hierarchies of every kind below every likelihood."""

import pymc as pm
import pytensor.tensor as pt

import pymc_fastlogp
from pymc_fastlogp import Verification
from tests.fuzz.draw import REAL, Draw
from tests.fuzz.likelihoods import observe


def random_model(seed: int) -> tuple[pm.Model, str]:
    """Return the model of a seed, and what it is made of."""
    draw = Draw(seed)
    with pm.Model() as model:
        observe(draw, draw.predictor())
        if draw.chance(0.2):
            draw.chosen.append("potential")
            pm.Potential("potential", -pt.sqr(draw.prior(REAL, (3,)).sum()))
    return model, ", ".join(draw.chosen)


def check(model: pm.Model, seed: int = 0) -> Verification:
    """Compare the callback that samplers get with upstream's operations, at random, extreme and illegal points."""
    compiled = pymc_fastlogp.compile_pymc_model(model)
    return pymc_fastlogp.verify(model, n_random=4, seed=seed, compiled=compiled)
