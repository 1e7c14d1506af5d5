"""Private steps of ``pm.sample`` that :func:`pymc_fastlogp.sample` repeats.

A file of its own: where one of these names is gone, ``pm.sample`` samples, and all else works.
"""

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import pymc as pm
from pymc.backends.arviz import (
    dict_to_dataset,
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

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = [
    "NutpieProgressBarManager",
    "cpu_count",
    "data_groups",
    "in_marimo_notebook",
    "initialize_multiprocessing_context",
    "make_attrs",
    "other_step_method",
    "setup_cores_blas_cores",
    "step_keywords",
]


def data_groups(model: pm.Model, coords: Mapping[str, Any]) -> dict[str, "DataTree"]:
    """Return the groups of data that PyMC adds to nutpie's draws, which it does by a function that imports nutpie.

    Parameters
    ----------
    model : pymc.Model
        The model.
    coords : mapping of str to ndarray
        Coordinates by dimension. PyMC's own conversion makes a matrix of tuples.
    """
    from xarray import DataTree

    dims = {name: list(x) for name, x in model.named_vars_to_dims.items()}
    groups = {"constant_data": find_constants(model), "observed_data": find_observations(model)}
    return {
        name: DataTree(
            dict_to_dataset(data, inference_library=pm, coords=coords, dims=dims, sample_dims=[])
        )
        for name, data in groups.items()
    }


def other_step_method(model: pm.Model) -> str | None:
    """Say which variable PyMC gives to another step method than NUTS where all have gradients, None if it is none.

    Others than PyMC's own may be registered, as that of BART, whose trees no gradient knows of.
    """
    for value in model.value_vars:
        rv = model.values_to_rvs[value]
        method = max(mcmc.STEP_METHODS, key=lambda x: x._competence(rv, True))
        if not issubclass(method, NUTS):
            return f"{method.__name__} samples {rv.name}"
    return None


def step_keywords() -> set[str]:
    """Return the keywords that ``pm.sample`` hands on: names of step methods, and arguments of NUTS, also those for ``pytensor.function``."""
    functions = [function, *(kind.__init__ for kind in NUTS.__mro__)]
    names = {name for each in functions for name in signature(each).parameters}
    return names | {method.name for method in mcmc.STEP_METHODS}
