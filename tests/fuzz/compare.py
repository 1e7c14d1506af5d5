"""``python -m tests.fuzz.compare SEED ...``: a line for each seed, with what is wrong with its model.

A model that takes too long ends the process, with a traceback of where it was.
"""

import faulthandler
import logging
import sys
import warnings

import nutpie
import pymc as pm
import pytensor

import pymc_fastlogp
from tests.fuzz.models import check, random_model

# Seconds for one model.
LIMIT = 600.0


def main() -> None:
    """Compare the models of the seeds on the command line."""
    pytensor.config.on_opt_error = "raise"
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for seed in map(int, sys.argv[1:]):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        trouble = trouble_with(seed)
        print(seed, " | ".join(trouble.splitlines()), flush=True)


def trouble_with(seed: int) -> str:
    """Return what is wrong with the model of a seed, nothing if nothing is."""
    model, made_of = None, "not built"
    try:
        model, made_of = random_model(seed)
        verification = check(model, seed)
    except Exception as error:
        if model is not None and refused_upstream(model) is type(error):
            return ""
        return f"{type(error).__name__}: {error}\n{made_of}"
    return "" if verification else f"{verification}\n{made_of}"


def refused_upstream(model: pm.Model) -> type[Exception] | None:
    """Return what nutpie raises with the plugin off."""
    try:
        with pymc_fastlogp.disabled():
            nutpie.compile_pymc_model(model)
    except Exception as error:
        return type(error)
    return None


if __name__ == "__main__":
    main()
