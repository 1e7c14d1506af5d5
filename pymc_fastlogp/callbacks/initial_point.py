"""The initial point of a model, without compiling anything.

PyMC compiles the function of the initial point for PyTensor's virtual machine without C, which calls ``perform`` of one node after
the other. So do we, on the same graph with the same rewrites: the results are equal bit for bit. Graphs with inner graphs, as of a
``Scan``, are left to PyMC, since their ``perform`` compiles.
"""

import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph

from pymc_fastlogp.callbacks.start import Start

Shapes = Sequence[tuple[int, ...]]


class InitialPoint:
    """A function from a seed to an unconstrained point, as nutpie calls it.

    Parameters
    ----------
    outputs : sequence of Variable
        Initial values of the value variables, in their order, and then the next states of generators.
    order : sequence of Apply
        The nodes that compute them.
    shapes : sequence of tuple of int
        Of the value variables.
    """

    def __init__(self, outputs: Sequence[Variable], order: Sequence[Apply], shapes: Shapes):
        self._values, self._order, self._shapes = outputs[: len(shapes)], order, shapes
        # In the order in which PyMC gives them seeds.
        self._rngs = find_rng_nodes(list(outputs))
        self._lock = threading.Lock()

    def __call__(self, seed: Any = None) -> np.ndarray:
        """Return the point, shape ``(n_dim,)``."""
        with self._lock:
            reseed_rngs(self._rngs, seed)
            values = self._evaluate()
        for value, shape in zip(values, self._shapes, strict=True):
            if value.shape != tuple(shape):
                raise ValueError(f"an initial value has shape {value.shape}: give one of {shape}.")
        return np.concatenate([value.ravel().astype(np.float64) for value in values])

    def _evaluate(self) -> list[np.ndarray]:
        found: dict[Variable, Any] = {}

        def get(x: Variable) -> Any:
            if x in found:
                return found[x]
            return x.data if isinstance(x, Constant) else x.get_value(borrow=True)

        for node in self._order:
            storage: list[list[Any]] = [[None] for _ in node.outputs]
            node.op.perform(node, [get(x) for x in node.inputs], storage)
            found.update((x, cell[0]) for x, cell in zip(node.outputs, storage, strict=True))
        return [np.asarray(get(x)) for x in self._values]


def dumped(start: Start) -> bytes | None:
    """Return the graph of the initial values as bytes, None if it is better left to PyMC.

    Parameters
    ----------
    start : Start
        The model and where its chains start.
    """
    fgraph = start.graph
    order = fgraph.toposort()
    inputs = {x for node in order for x in node.inputs if x.owner is None}
    if any(isinstance(node.op, HasInnerGraph) for node in order):
        return None
    if not all(isinstance(x, Constant | SharedVariable) for x in inputs):
        return None
    try:
        return pickle.dumps((fgraph.outputs, order))
    except Exception:  # any object may refuse to be pickled
        return None


def load(content: bytes, shapes: Shapes) -> InitialPoint:
    """Return the function whose graph was dumped."""
    outputs, order = pickle.loads(content)
    return InitialPoint(outputs, order, shapes)
