"""Evaluation of graphs without inputs node by node, without compiling, in this process or another.

A serialized graph refers to the shared data of its model by position, see :class:`~pymc_fastlogp.model_cache.key.Form`. A loaded graph reads the
data of the model it is loaded for, or the constants that it is given for these. Graphs with inner graphs, such as a ``Scan``, are rejected, because their ``perform`` compiles.
"""

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.tensor.random.type import RandomType


class Graph:
    """Graph whose inputs are constants and shared variables.

    Parameters
    ----------
    outputs : sequence of Variable
        The outputs.
    order : sequence of Apply
        The nodes in topological order.
    """

    def __init__(self, outputs: Sequence[Variable], order: Sequence[Apply]):
        self.outputs, self._order = outputs, order

    def __call__(self) -> list[Any]:
        """Evaluate the outputs."""
        found: dict[Variable, Any] = {}

        def get(x: Variable) -> Any:
            if x in found:
                return found[x]
            return x.data if isinstance(x, Constant) else x.get_value(borrow=True)

        for node in self._order:
            storage: list[list[Any]] = [[None] for _ in node.outputs]
            node.op.perform(node, [get(x) for x in node.inputs], storage)
            found.update((x, cell[0]) for x, cell in zip(node.outputs, storage, strict=True))
        return [get(x) for x in self.outputs]


def dump(fgraph: FunctionGraph, data: Sequence[SharedVariable] | None) -> bytes | None:
    """Serialize a graph; return None if the graph has an inner graph or reads a variable that is unknown in another process.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph, which may update states of generators.
    data : sequence of SharedVariable, optional
        Shared variables to which the graph refers by position. By default the values of shared variables are part of the bytes.
    """
    order = fgraph.toposort()
    inputs = {x for node in order for x in node.inputs if x.owner is None}
    if any(isinstance(node.op, HasInnerGraph) for node in order):
        return None
    numbers = container_positions(data or ())
    for x in {*inputs, *(x for x in fgraph.outputs if x.owner is None)}:
        if isinstance(x, SharedVariable):
            if data is not None and not is_generator(x) and id(x.container) not in numbers:
                return None
        elif not isinstance(x, Constant):
            return None
    file = BytesIO()
    try:
        _Pickler(file, numbers).dump((fgraph.outputs, order))
    except Exception:  # any object may refuse to be pickled
        return None
    return file.getvalue()


def load(content: bytes, data: Sequence[Variable]) -> Graph:
    """Load a serialized graph, which reads shared variables or constants as its data."""
    return Graph(*_Unpickler(BytesIO(content), data).load())


def constants_of(data: Sequence[SharedVariable]) -> list[Constant]:
    """Return the current values of data as constants."""
    return [x.type.make_constant(x.get_value(), name=x.name) for x in data]


def container_positions(data: Sequence[SharedVariable]) -> dict[int, int]:
    """Return positions in ``data`` by the identity of the container, which a shared variable has in common with its clones."""
    return {id(x.container): i for i, x in enumerate(data)}


def is_generator(x: Variable) -> bool:
    """Return whether a variable is the state of a random generator, which is seeded before use."""
    return isinstance(x.type, RandomType)


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, numbers: dict[int, int]):
        super().__init__(file)
        self._numbers = numbers

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, SharedVariable):
            return None
        return self._numbers.get(id(thing.container))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, data: Sequence[Variable]):
        super().__init__(file)
        self._data = data

    def persistent_load(self, number: int) -> Variable:
        return self._data[number]
