"""Where the models of the gallery are entered."""

from collections.abc import Callable

import numpy as np

Build = Callable[[np.random.Generator], None]

MODELS: dict[str, Build] = {}


def in_gallery(build: Build) -> Build:
    """Enter what builds a model, inside of its context, from a source of data, under its name."""
    MODELS[build.__name__] = build
    return build
