"""Apply the in-place rewrites of a model's first compilation, so that later compilations start from the same graph.

PyMC rewrites the log density in place before it takes the gradient. A subexpression may belong to the model rather than to one log density: for example
``CholeskyCovPacked`` stores the indices of the diagonal as a graph, which copies of the model share. The first
compilation simplifies such a graph, so the second one can end with another graph. A comparison of two compilations applies the rewrites before both.
"""

from typing import TYPE_CHECKING

from pymc_fastlogp.config import switched

if TYPE_CHECKING:
    import pymc as pm


def apply_in_place_rewrites(model: "pm.Model") -> None:
    """Rewrite the graphs that a model stores as its first compilation would, with the plugin off."""
    from pymc_fastlogp._upstream.pymc import rewrite_pregrad

    with switched(False):
        rewrite_pregrad(model.logp())
