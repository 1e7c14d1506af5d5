"""Disagreement of the model or the graph of a seed."""

import faulthandler
import logging
import os
import warnings
from collections.abc import Callable
from functools import wraps

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_fastlogp
from tests.fuzz.agreement import findings
from tests.fuzz.evaluation import off_in_numba
from tests.fuzz.models import check, is_frozen, precision_of, random_model
from tests.fuzz.programs import points, random_program
from tests.fuzz.shrink import shrunk

# Seconds for one model or graph, then its process ends with a traceback of where it was.
LIMIT = 600.0
# Begins the description of a graph that PyTensor does not compile with the plugin off.
REFUSED = "refused upstream: "


def prepare() -> None:
    """Set flags for this process and its children, and compile once what is slow the first time."""
    pytensor.config.on_opt_error = "raise"
    # What runs node by node in Python is not worth compiling, and nobody reads where its nodes were made.
    pytensor.config.cxx = ""
    pytensor.config.traceback__limit = 0
    # Nothing is to be read of a model that another run has kept.
    os.environ["PYMC_FASTLOGP_CACHE"] = "0"
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    x = pt.vector("x")
    off_in_numba([x], [pt.exp(x).sum()])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), observed=[1.0, 2.0])
    assert check(model)


def _in_time(trouble: Callable[[int], str]) -> Callable[[int], str]:
    """Return a function that ends the process where a seed takes too long."""

    @wraps(trouble)
    def limited(seed: int) -> str:
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            return trouble(seed)
        finally:
            faulthandler.cancel_dump_traceback_later()

    return limited


@_in_time
def trouble_with_graph(seed: int) -> str:
    """Return what is wrong with the graph of a seed and the least program that shows it, nothing if nothing is."""
    try:
        program = random_program(seed)
        found = next(findings(program, points(program, seed)), None)
    except Exception as error:
        return f"{REFUSED}{type(error).__name__}: {error}"
    if found is None:
        return ""
    return "\n".join(map(str, reversed(shrunk(program, found))))


@_in_time
def trouble_with(seed: int) -> str:
    """Return what is wrong with the model of a seed, nothing if nothing is."""
    model, made_of = None, "not built"
    try:
        model, made_of = random_model(seed)
        verification = check(model, seed)
    except Exception as error:
        if model is not None and type(error) in refused_upstream(model, seed):
            return ""
        return f"{type(error).__name__}: {error}\n{made_of}"
    return "" if verification else f"{verification}\n{made_of}"


def refused_upstream(model: pm.Model, seed: int) -> set[type[Exception]]:
    """Return the error of upstream's compiler or function with the plugin off, of the floats and the data that `check` compiles with."""
    precision = precision_of(model)
    try:
        with pytensor.config.change_flags(floatX=precision), pymc_fastlogp.disabled():
            if precision != "float32":
                nutpie.compile_pymc_model(model, freeze_model=is_frozen(model, seed))
            function = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
            function.set_extra_values({})
            function(np.zeros(sum(x.size for x in model.initial_point().values())))
    except Exception as error:
        return {type(error)}
    return set()


WAYS = {"models": trouble_with, "graphs": trouble_with_graph}
