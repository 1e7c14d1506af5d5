"""Give two compilations of one model the same start.

PyMC rewrites the log density before it takes the gradient, in place. Some expressions in it
belong to the model, not to the one log density: ``CholeskyCovPacked`` keeps the indices of the
diagonal as a graph, which no copy of the model copies. They are simplified by the first
compilation, and a second one of the same model can end with another graph. To compare two
sides, that has to have happened before both.
"""

from typing import TYPE_CHECKING

from pymc_fastlogp.config import switched

if TYPE_CHECKING:
    import pymc as pm


def settle(model: "pm.Model") -> None:
    """Do to the graphs that ``model`` keeps what its first compilation would do, plugin off."""
    from pymc_fastlogp._upstream.pymc import rewrite_pregrad

    with switched(False):
        rewrite_pregrad(model.logp())
