"""The models of PyMC's documentation, as they are written there, with simulated data of the same size.

Each is named after its notebook. Those with discrete unknowns are left out: NUTS alone does not sample them.
"""

import numpy as np
import pymc as pm

from benchmarks.gallery import (  # noqa: F401
    core,
    matrices,
    mixtures,
    processes,
    recursions,
    regression,
    rethinking,
    studies,
)
from benchmarks.gallery.registry import MODELS


def make(name: str) -> pm.Model:
    """Return a model by its name."""
    with pm.Model() as model:
        MODELS[name](np.random.default_rng(30))
    return model


__all__ = ["MODELS", "make"]
