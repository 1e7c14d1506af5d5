"""Logp with its gradient, and what is stored, as graphs of the unconstrained point.

The graphs are those of nutpie, step by step, and are rewritten for the mode NUMBA, so that draws are equal bit for bit. What is left out are three
compilations: nutpie evaluates shapes by two functions, where types know them, and PyTensor links each graph with Numba, where a
callback calls the kernel itself, see :mod:`pymc_fastlogp.compilation.deferred_linking`.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import find_rng_nodes
from pytensor.compile.mode import get_mode
from pytensor.graph import clone_replace, rewrite_graph
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from pymc_fastlogp._upstream.nutpie import Functions, functions_by_nutpie, shapes_by_nutpie
from pymc_fastlogp.compilation.deferred_linking import unlinked
from pymc_fastlogp.compilation.model_source import Start

if TYPE_CHECKING:
    import pymc as pm

Shape = tuple[int, ...]


class _Stored(NamedTuple):
    """A variable that is stored, and where."""

    name: str
    variable: Variable
    place: slice
    shape: Shape


def functions_of(start: Start, var_names: Sequence[str] | None) -> Functions:
    """Return the functions of a model.

    Parameters
    ----------
    start : Start
        The model.
    var_names : sequence of str, optional
        What is stored besides the value variables.
    """
    model = start.model
    shapes = start.shapes or _known_shapes(model) or shapes_by_nutpie(model)
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    stored = _stored([*values, *_others(model, values, var_names)], shapes)
    if find_rng_nodes([x.variable for x in stored]):  # PyMC takes care of states of generators
        return functions_by_nutpie(model, start, var_names)
    n_dim = stored[len(values) - 1].place.stop
    point = pt.TensorType("float64", shape=(n_dim,))(name="_unconstrained_point")
    parts = [point[x.place] for x in stored[: len(values)]]
    given = {
        value: part.reshape(x.shape).astype(value.dtype)
        for value, part, x in zip(values, parts, stored[: len(values)], strict=True)
    }
    mode = unlinked(get_mode("NUMBA"), check_bounds=model.check_bounds)
    logp = clone_replace(_logp_and_gradient(model, values), given)
    computed = [_raveled(x.variable) for x in stored[len(values) :]]
    # The parts are all of the point, one after the other.
    expanded = pt.concatenate([point, *computed])
    return Functions(
        n_dim,
        stored[-1].place.stop,
        pytensor.function([point], logp, mode=mode),
        pytensor.function([point], [expanded], givens=list(given.items()), mode=mode),
        ([x.name for x in stored], [x.place for x in stored], [x.shape for x in stored]),
        [
            model.rvs_to_values[rv].name
            for rv in model.free_RVs
            if model.rvs_to_transforms.get(rv) is not None
        ],
    )


def _known_shapes(model: "pm.Model") -> dict[str, Shape] | None:
    """Return shapes of value variables, free variables and deterministics by name, None unless types know all of them."""
    variables = [*model.value_vars, *model.free_RVs, *model.deterministics]
    if all(isinstance(x.type, TensorType) and None not in x.type.shape for x in variables):
        return {x.name: x.type.shape for x in variables}
    return None


def _others(
    model: "pm.Model", values: Sequence[Variable], var_names: Iterable[str] | None
) -> list[Variable]:
    """Return what is stored besides value variables."""
    names = {value.name for value in values}
    others = [x for x in model.unobserved_value_vars if x.name not in names]
    wanted = None if var_names is None else {*var_names}
    return [x for x in others if wanted is None or x.name in wanted]


def _stored(variables: Sequence[Variable], shapes: Mapping[str, Any]) -> list[_Stored]:
    found, begin = [], 0
    for x in variables:
        shape = shapes[x.name]
        end = begin + prod(shape)
        found.append(_Stored(x.name, x, slice(begin, end), shape))
        begin = end
    return found


def _logp_and_gradient(model: "pm.Model", values: Sequence[Variable]) -> list[Variable]:
    """Return both, rewritten before the gradient is taken."""
    rewrites = ["canonicalize", "stabilize"]
    if not model.check_bounds:
        rewrites.append("local_remove_check_parameter")
    logp = rewrite_graph(model.logp(), include=rewrites)
    gradients = pt.grad(logp, list(values))
    return [logp, pt.concatenate([_raveled(x) for x in gradients])]


def _raveled(x: Variable) -> Any:
    return pt.as_tensor(x, allow_xtensor_conversion=True).ravel()
