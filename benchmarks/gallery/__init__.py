"""Models outside of the suite: those of PyMC's documentation and of its users, with simulated data of the same size.

The former are named after their notebooks. Those with discrete unknowns are left out: NUTS alone does not sample them.
``python -m benchmarks.gallery`` measures them.
"""

import pymc as pm

from benchmarks.gallery import (  # noqa: F401
    choices,
    core,
    counts,
    effects,
    formulas,
    limits,
    long_tables,
    matrices,
    media,
    mixtures,
    processes,
    recursions,
    regression,
    rethinking,
    smooth,
    studies,
)
from benchmarks.gallery.registry import MODELS, Entry


def make(name: str) -> pm.Model:
    """Return a model by its name."""
    return MODELS[name].make()


__all__ = ["MODELS", "Entry", "make"]
