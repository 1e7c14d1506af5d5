"""Small random models, each made by its seed alone: hierarchies of every kind below every likelihood."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_fastlogp
from pymc_fastlogp import Verification
from pymc_fastlogp.compilation.nutpie_model import CompiledModel
from tests.fuzz.draw import REAL, Draw
from tests.fuzz.likelihoods import observe


def random_model(seed: int) -> tuple[pm.Model, str]:
    """Return the model of a seed, and what it is made of."""
    draw = Draw(seed)
    precision = "float32" if draw.chance(0.08) else "float64"
    draw.chosen.append(precision)
    with pytensor.config.change_flags(floatX=precision), pm.Model() as model:
        observe(draw, draw.predictor())
        if draw.chance(0.2):
            draw.chosen.append("potential")
            pm.Potential("potential", -pt.sqr(draw.prior(REAL, (3,)).sum()))
    return model, ", ".join(draw.chosen)


def precision_of(model: pm.Model) -> str:
    """Return the type of floats that a model was made with."""
    floats = {x.dtype for x in model.continuous_value_vars}
    return "float32" if floats == {"float32"} else "float64"


def is_frozen(model: pm.Model, seed: int) -> bool:
    """Return whether the data of the model of a seed are constants of what is compiled."""
    return not model.data_vars or bool(seed % 2)


def check(model: pm.Model, seed: int = 0) -> Verification:
    """Compare the callback that samplers get with upstream's operations, at random, extreme and illegal points.

    Data that can be changed are, after that is compiled, and both are compared again. nutpie's callback takes no variables of
    float32: of these PyMC's function is compared.
    """
    data = [x.name for x in model.data_vars]
    with pytensor.config.change_flags(floatX=precision_of(model)):
        if precision_of(model) == "float32":
            return pymc_fastlogp.verify(
                model, n_random=4, seed=seed, freeze_model=is_frozen(model, seed)
            )
        if is_frozen(model, seed):
            compiled = pymc_fastlogp.compile_pymc_model(model, var_names=())
            return pymc_fastlogp.verify(model, n_random=4, seed=seed, compiled=compiled)
        compiled = pymc_fastlogp.compile_pymc_model(model, freeze_model=False, var_names=())
        first = _verify_open(model, seed, compiled)
        if not first:
            return first
        order = np.random.default_rng(seed).permutation(model[data[0]].get_value().shape[0])
        changed = {name: model[name].get_value()[order] for name in data}
        with model:
            pm.set_data(changed)
        # An index of zeros alone may select nothing that is left to select from.
        known = {x.name for x in compiled.shared_var_keys} & changed.keys()
        compiled = compiled.with_data(**{name: changed[name] for name in known})
        return _verify_open(model, seed, compiled)


def _verify_open(model: pm.Model, seed: int, compiled: CompiledModel) -> Verification:
    return pymc_fastlogp.verify(model, n_random=4, seed=seed, freeze_model=False, compiled=compiled)
