"""``reparametrize``: a model whose effects are sampled where their data want them."""

import logging
from typing import TYPE_CHECKING

from pymc_fastlogp.models.freeze import can_be_frozen, frozen_copy
from pymc_fastlogp.models.validate import model_with_variables, refuse_discrete
from pymc_fastlogp.sampling.compile_model import compile_pymc_model

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


def reparametrize(model: "pm.Model | None" = None) -> "pm.Model":
    """Return a model with the same variables and posterior, which samplers explore with fewer gradients.

    Effects of groups, ``Normal(mu, sigma)`` with random parameters or ``mu + sigma * raw``, are neither centered nor non-centered then, but each group
    is where its data want it to be: the sampler moves in the effect minus what is expected of it, given mean, scale and a Gaussian summary of the
    likelihood of the group. Names, dims, deterministics, draws and densities are those of the model as written; only value variables
    of effects have another transform. The summaries are found by a pilot, which compiles the model once and takes some hundredths of a second
    for the rest; where they are bad, sampling may be slow, but stays correct.

    ``pymc_fastlogp.sample(..., reparametrize=True)`` does the same, and samples with what the pilot has compiled. It also moves correlated parameters
    in linear coordinates, which the variables of a model cannot express.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open. It stays as it is.

    Returns
    -------
    pymc.Model
        A new model; a clone where nothing is to be done, and the model itself where PyMC cannot copy it, inside of another or with symbolic initial
        values. The log says of each variable what was done, or why nothing.
        Summaries are of the data that the model has now: after ``pm.set_data``, reparametrize the model anew.

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

    model = model_with_variables("reparametrize", model)
    refuse_discrete(model)
    if not can_be_frozen(model):
        logger.info(
            "all variables stay as they are: PyMC cannot copy a model inside of another, or with symbolic initial values"
        )
        return model
    found = select_parametrization(model, lambda new: compile_pymc_model(new, freeze_model=False))
    sites = {} if found is None else found.sites
    try:
        return with_sites(model, sites).model
    except KeyError:  # an effect that is one because of data, such as a scale of 1
        return with_sites(frozen_copy(model), sites).model
