"""The initial point of a model, without compiling anything.

PyMC compiles the function of the initial point for PyTensor's virtual machine without C, which calls ``perform`` of one node after
the other. So do we, on the same graph with the same rewrites: the results are equal bit for bit. What
:mod:`pymc_fastlogp.compilation.interpreter` refuses is left to PyMC.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.model_source import Start

Shapes = Sequence[tuple[int, ...]]


class InitialPoint:
    """A function from a seed to an unconstrained point, as nutpie calls it.

    Parameters
    ----------
    graph : Graph
        Initial values of the value variables, in their order, and then the next states of generators.
    shapes : sequence of tuple of int
        Of the value variables.
    """

    def __init__(self, graph: interpreter.Graph, shapes: Shapes):
        self._graph, self._shapes = graph, shapes
        # In the order in which PyMC gives them seeds.
        self._rngs = find_rng_nodes(list(graph.outputs))
        self._lock = threading.Lock()

    def __call__(self, seed: Any = None) -> np.ndarray:
        """Return the point, shape ``(n_dim,)``."""
        with self._lock:
            reseed_rngs(self._rngs, seed)
            values = [np.asarray(x) for x in self._graph()[: len(self._shapes)]]
        for value, shape in zip(values, self._shapes, strict=True):
            if value.shape != tuple(shape):
                raise ValueError(f"an initial value has shape {value.shape}: give one of {shape}.")
        return np.concatenate([value.ravel().astype(np.float64) for value in values])


def dumped(start: Start) -> bytes | None:
    """Return the graph of the initial values as bytes, None if it is better left to PyMC.

    Parameters
    ----------
    start : Start
        The model and where its chains start. The bytes refer to its data, if it has any, or else contain their values.
    """
    return interpreter.dumped(start.graph, start.data)


def load(content: bytes, shapes: Shapes, data: Sequence[SharedVariable] = ()) -> InitialPoint:
    """Return the function whose graph was dumped, with the values that the data have now."""
    return InitialPoint(interpreter.loaded(content, data), shapes)
