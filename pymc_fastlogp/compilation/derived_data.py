"""Split a graph into the part that depends on data alone, computed once for each data set, and the part that is evaluated for each point.

Data are marked by :class:`~pymc_fastlogp.analysis.known_data.KnownData`. The largest expressions of marked data and constants become shared variables, whose
values another graph computes. For ``sum(y * log(mu)) - sum(gammaln(y + 1))`` these are the data ``y`` and the second sum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph import clone_replace
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType

from pymc_fastlogp.analysis.known_data import KnownData
from pymc_fastlogp.compilation import interpreter


class DerivedData(NamedTuple):
    """Variables that stand for expressions of data.

    Attributes
    ----------
    variables : list of SharedVariable
        The variables, with the values for the current data.
    graph : FunctionGraph
        The expressions, as functions of the data.
    """

    variables: list[SharedVariable]
    graph: FunctionGraph


def mark(x: Variable, shape: tuple[int, ...]) -> Variable:
    """Return data of a shape as known."""
    return KnownData(shape)(x)


def derive(outputs: Sequence[Variable]) -> tuple[list[Variable], DerivedData]:
    """Return a graph in which variables stand for the largest expressions of marked data."""
    nodes = [*toposort(outputs)]
    derived = _derived(nodes)
    read = {x for node in nodes if node.outputs[0] not in derived for x in node.inputs}
    largest = [x for node in nodes for x in node.outputs if x in derived and x in read]
    graph = FunctionGraph(outputs=largest, clone=True)
    values = interpreter.Graph(graph.outputs, graph.toposort())()
    variables = [_stand_in(x, value) for x, value in zip(largest, values, strict=True)]
    new = clone_replace(list(outputs), dict(zip(largest, variables, strict=True)))
    return new, DerivedData(variables, graph)


def _derived(nodes: Sequence[Apply]) -> set[Variable]:
    """Return the variables that depend on marked data and constants alone, and need no compiler."""
    constants: set[Variable] = set()
    derived: set[Variable] = set()
    for node in nodes:
        others = [x for x in node.inputs if not isinstance(x, Constant) and x not in constants]
        if isinstance(node.op, KnownData):
            derived.update(node.outputs)
        elif isinstance(node.op, HasInnerGraph | RandomVariable) or not derived.issuperset(others):
            continue
        else:
            (derived if others else constants).update(node.outputs)
    return derived


def _stand_in(x: Variable, value: np.ndarray) -> SharedVariable:
    """Return the shared variable of an expression; axes of unknown length get that of the value, unless it could be broadcast."""
    value = np.asarray(value, order="C")
    shape = [
        n if known is None and n != 1 else known
        for known, n in zip(x.type.shape, value.shape, strict=True)
    ]
    return TensorSharedVariable(
        type=TensorType(x.type.dtype, shape), value=value, strict=True, name=None
    )
