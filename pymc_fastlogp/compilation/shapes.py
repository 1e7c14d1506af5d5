"""Shapes of the stored variables of a model with shared data, which may determine them, as for a ``Deterministic`` with one value per row.

nutpie compiles two functions that evaluate shapes. Here PyTensor rewrites one graph to a function of the lengths of data, and the graph is
evaluated node by node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_fastlogp.compilation import interpreter
from pymc_fastlogp.compilation.model_source import Shapes

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.graph.fg import FunctionGraph


@dataclass(frozen=True)
class ShapeGraph:
    """Graph that computes shapes from data.

    Attributes
    ----------
    names, dims : tuple of str
        Names of the variables and of the dimensions.
    content : bytes
        The serialized graph, see :mod:`pymc_fastlogp.compilation.interpreter`.
    """

    names: tuple[str, ...]
    dims: tuple[str, ...]
    content: bytes

    def at(self, data: Sequence[SharedVariable]) -> Shapes:
        """Return the shapes with the current values of the data."""
        return self.function(data)()

    def function(self, data: Sequence[SharedVariable]) -> Callable[[], Shapes]:
        """Return a function that returns the shapes with the values of the data at its call."""
        graph = interpreter.load(self.content, data)

        def shapes() -> Shapes:
            values = graph()
            stored, lengths = values[: len(self.names)], values[len(self.names) :]
            return Shapes(
                {
                    name: tuple(map(int, np.ravel(x)))
                    for name, x in zip(self.names, stored, strict=True)
                },
                {name: int(x) for name, x in zip(self.dims, lengths, strict=True)},
            )

        return shapes


def shape_graph(model: "pm.Model", data: Sequence[SharedVariable]) -> ShapeGraph | None:
    """Return the graph of the shapes of a model, None if shapes depend on random numbers or on other variables than the data.

    Parameters
    ----------
    model : pymc.Model
        The model, not frozen.
    data : sequence of SharedVariable
        The data that shapes may depend on.
    """
    fgraph, names = _graph(model)
    reads = {x for node in fgraph.toposort() for x in node.inputs}
    if any(map(interpreter.is_generator, reads)):
        return None
    content = interpreter.dump(fgraph, data)
    return None if content is None else ShapeGraph(names, tuple(model.dim_lengths), content)


def _graph(model: "pm.Model") -> tuple["FunctionGraph", tuple[str, ...]]:
    """Return a graph of shapes and lengths, and the names of the variables.

    A variable without a transform shares its name with its value variable.
    """
    import pytensor
    import pytensor.tensor as pt
    from pymc.initial_point import make_initial_point_expression
    from pytensor.compile.mode import FAST_COMPILE

    from pymc_fastlogp.compilation.graphs import deferred

    starts = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies=dict(model.rvs_to_initial_values),
        jitter_rvs=set(),
        default_strategy="support_point",
        return_transformed=True,
    )
    values = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    named = dict(zip(values, starts, strict=True))
    named |= {x.name: x for x in (*model.free_RVs, *model.deterministics) if x.name not in named}
    shapes = [pt.as_tensor(x.shape) for x in named.values()]
    function = pytensor.function(
        [],
        [*shapes, *map(pt.as_tensor, model.dim_lengths.values())],
        givens=[(rv, model.rvs_to_values[rv]) for rv in model.observed_RVs],
        mode=deferred(FAST_COMPILE),
        on_unused_input="ignore",
    )
    return function.maker.fgraph, tuple(named)
