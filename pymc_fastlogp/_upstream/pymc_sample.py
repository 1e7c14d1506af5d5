"""Private steps of ``pm.sample`` that :func:`pymc_fastlogp.sample` repeats.

If an import of this file fails, ``pm.sample`` samples, and the other parts of the package work.
"""

from functools import cache
from importlib.metadata import version
from inspect import signature
from typing import Any

import pymc as pm
from pymc.backends.arviz import (
    find_constants,
    find_observations,
    make_attrs,
)
from pymc.progress_bar.marimo_progress import in_marimo_notebook
from pymc.progress_bar.progress import NutpieProgressBarManager
from pymc.sampling import mcmc
from pymc.sampling.mcmc import setup_cores_blas_cores
from pymc.sampling.parallel import _cpu_count as cpu_count
from pymc.sampling.parallel import (
    _initialize_multiprocessing_context as initialize_multiprocessing_context,
)
from pymc.step_methods import NUTS
from pytensor import function

__all__ = [
    "NutpieProgressBarManager",
    "attrs_of_pymc",
    "cpu_count",
    "data_of_groups",
    "in_marimo_notebook",
    "initialize_multiprocessing_context",
    "make_attrs",
    "other_step_method",
    "setup_cores_blas_cores",
    "step_keywords",
]


def data_of_groups(model: pm.Model) -> dict[str, dict[str, Any]]:
    """Return the variables of the data groups that PyMC adds to nutpie's draws, without PyMC's function, which imports nutpie."""
    return {"constant_data": find_constants(model), "observed_data": find_observations(model)}


@cache
def attrs_of_pymc() -> dict[str, str]:
    """Return the attributes of ``inference_library=pymc``, for which ``arviz_base`` reads a file each time."""
    return {"inference_library": "pymc", "inference_library_version": version("pymc")}


def other_step_method(model: pm.Model) -> str | None:
    """Return the reason why PyMC samples a variable by another step method than NUTS although gradients exist, None if there is none.

    Packages can register step methods, such as BART for its trees, which have no gradient.
    """
    for value in model.value_vars:
        rv = model.values_to_rvs[value]
        method = max(mcmc.STEP_METHODS, key=lambda x: x._competence(rv, True))
        if not issubclass(method, NUTS):
            return f"{method.__name__} samples {rv.name}"
    return None


def step_keywords() -> set[str]:
    """Return the keywords that ``pm.sample`` passes on: names of step methods, and arguments of NUTS and of ``pytensor.function``."""
    functions = [function, *(kind.__init__ for kind in NUTS.__mro__)]
    names = {name for each in functions for name in signature(each).parameters}
    return names | {method.name for method in mcmc.STEP_METHODS}
