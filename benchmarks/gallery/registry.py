"""Registry of the gallery's models."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm

Build = Callable[[np.random.Generator], None]

SEED = 30


@dataclass(frozen=True)
class Entry:
    """One model of the gallery.

    Parameters
    ----------
    name : str
        What the command line, the canaries and the tables call it.
    source : str
        The notebook, chapter or package whose model it is: the docstring of its function.
    topic : str
        The module it stands in.
    build : callable
        Builds it inside of the context of a model, from a source of data.
    """

    name: str
    source: str
    topic: str
    build: Build

    def make(self) -> pm.Model:
        """Return the model with its data, which are the same each time."""
        with pm.Model() as model:
            self.build(np.random.default_rng(SEED))
        return model


MODELS: dict[str, Entry] = {}


def in_gallery(build: Build) -> Build:
    """Enter what builds a model under its name; its docstring names the source."""
    source = " ".join(inspect.getdoc(build).split()) if build.__doc__ else ""
    topic = build.__module__.rpartition(".")[2]
    MODELS[build.__name__] = Entry(build.__name__, source, topic, build)
    return build
