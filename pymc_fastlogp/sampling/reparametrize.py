"""``reparametrize``: a model whose effects of groups are reparametrized from their data."""

import logging
from typing import TYPE_CHECKING

from pymc_fastlogp.models.freeze import can_be_frozen, frozen_copy
from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.validate import model_with_variables, refuse_discrete
from pymc_fastlogp.sampling.compile_model import compile_pymc_model

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


def reparametrize(model: "pm.Model | None" = None) -> "pm.Model":
    """Return a model with the same variables and posterior, which samplers explore with fewer gradients.

    Effects of groups are ``Normal(mu, sigma)`` with random parameters, or ``mu + sigma * raw``. Reparametrized effects are neither centered nor non-centered:
    the sampler moves in the effect minus its expectation, given mean, scale and a Gaussian summary of the
    likelihood of the group. Names, dims, deterministics, draws and densities stay the same; only value variables
    of effects have another transform. A pilot run, which compiles the model once, estimates the summaries. Bad summaries make sampling slow, not wrong.

    ``pymc_fastlogp.sample(..., reparametrize=True)`` does the same, and samples with the compiled model of the pilot. It also samples correlated parameters
    in linear coordinates, which the variables of a model cannot express.

    Parameters
    ----------
    model : pymc.Model, optional
        The model, which is not changed; by default the model of the open context.

    Returns
    -------
    pymc.Model
        A new model, or a clone if nothing is reparametrized. The model itself if PyMC cannot copy the model: a model inside of another, or with symbolic initial
        values. Log lines name the reparametrized variables, and the reason for each other one.
        Summaries are of the current data: after ``pm.set_data``, reparametrize the model again.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If the model has no free variables, or discrete ones.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau")
    ...     a = pm.Normal("a", 0, tau, shape=5)
    ...     y = pm.Normal("y", a, 0.1, observed=np.arange(5.0))
    >>> new = pymc_fastlogp.reparametrize(model)
    >>> [variable.name for variable in new.free_RVs]
    ['tau', 'a']
    >>> new.rvs_to_values[new["a"]]
    a_site__
    """
    from pymc_fastlogp.reparametrization.model_with_sites import with_sites
    from pymc_fastlogp.reparametrization.selection import select_parametrization

    model = without_tables(model_with_variables("reparametrize", model)).model
    refuse_discrete(model)
    if not can_be_frozen(model):
        logger.info(
            "no variable is reparametrized: PyMC cannot copy a model inside of another, or with symbolic initial values"
        )
        return model
    found = select_parametrization(model, lambda new: compile_pymc_model(new, freeze_model=False))
    sites = {} if found is None else found.sites
    try:
        return with_sites(model, sites).model
    except KeyError:  # an effect only with the current data, such as a scale of 1
        return with_sites(frozen_copy(model), sites).model
