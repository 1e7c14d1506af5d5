"""``python -m tests.fuzz.compare SEED ...``: a line for each seed, with what is wrong with its model; after ``--graphs``, with its graph.

One that takes too long ends the process, with a traceback of where it was.
"""

import faulthandler
import logging
import sys
import warnings

import nutpie
import pymc as pm
import pytensor

import pymc_fastlogp
from tests.fuzz.agreement import findings
from tests.fuzz.models import check, is_frozen, precision_of, random_model
from tests.fuzz.programs import points, random_program
from tests.fuzz.shrink import shrunk

# Seconds for one model or graph.
LIMIT = 600.0
# Stands for the end of a line.
NEXT_LINE = " | "
# Begins the line of a graph that PyTensor does not compile with the plugin off.
REFUSED = "refused upstream: "


def main() -> None:
    """Compare the models or graphs of the seeds on the command line."""
    pytensor.config.on_opt_error = "raise"
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    first, *others = sys.argv[1:]
    is_graph = first == "--graphs"
    # What runs node by node in Python is not worth compiling.
    pytensor.config.cxx = "" if is_graph else pytensor.config.cxx
    for seed in map(int, others if is_graph else [first, *others]):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        trouble = trouble_with_graph(seed) if is_graph else trouble_with(seed)
        print(seed, NEXT_LINE.join(trouble.splitlines()), flush=True)


def trouble_with_graph(seed: int) -> str:
    """Return what is wrong with the graph of a seed and the least program that shows it, nothing if nothing is."""
    program = random_program(seed)
    try:
        found = next(findings(program, points(program, seed)), None)
    except Exception as error:
        return f"{REFUSED}{type(error).__name__}: {error}"
    if found is None:
        return ""
    return "\n".join(map(str, reversed(shrunk(program, found))))


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
    """Return what upstream's compiler raises with the plugin off, of the floats and the data that `check` compiles with."""
    precision = precision_of(model)
    try:
        with pytensor.config.change_flags(floatX=precision), pymc_fastlogp.disabled():
            if precision == "float32":
                model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
            else:
                nutpie.compile_pymc_model(model, freeze_model=is_frozen(model, seed))
    except Exception as error:
        return {type(error)}
    return set()


if __name__ == "__main__":
    main()
