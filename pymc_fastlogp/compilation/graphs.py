"""Graphs of a model, rewritten and not linked: logp with its gradient, stored values, and initial values.

The graphs repeat nutpie's steps and are rewritten for the mode NUMBA, so draws are bit-identical. Three compilations are left out:

- nutpie compiles two functions that evaluate shapes. Here the shapes come from the types, if they are static.
- PyTensor links each graph, which imports Numba or, for PyTensor's virtual machine, compiles C code. Here a callback calls the kernel itself, and
  :class:`RewrittenFunction` links at its first call.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import pytensor
import pytensor.tensor as pt
from pymc.initial_point import convert_str_to_rv_dict, make_initial_point_expression
from pymc.pytensorf import collect_default_updates, find_rng_nodes, replace_rng_nodes
from pytensor.compile.maker import FunctionMaker
from pytensor.compile.mode import FAST_COMPILE, Mode, get_mode
from pytensor.graph import clone_replace, rewrite_graph
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import TensorType

from pymc_fastlogp._upstream.nutpie import Functions, functions_by_nutpie, shapes_by_nutpie
from pymc_fastlogp.compilation.derived_data import derive, mark
from pymc_fastlogp.compilation.model_source import ModelSource
from pymc_fastlogp.kernel.graph.held_constants import HoldConstants
from pymc_fastlogp.kernel.graph.linking import register_with_numba
from pymc_fastlogp.models.compile_lock import free_dead_graphs

if TYPE_CHECKING:
    import pymc as pm

Shape = tuple[int, ...]


class RewrittenFunction:
    """PyTensor function that is rewritten now and linked at its first call.

    Attributes
    ----------
    maker : FunctionMaker
        The maker, whose ``fgraph`` is rewritten.
    """

    def __init__(self, maker: FunctionMaker):
        self.maker = maker

    def create(self) -> "RewrittenFunction":
        """Return the object itself, for PyTensor, which asks a maker for a function."""
        return self

    @cached_property
    def linked(self) -> Any:
        """PyTensor's linked function."""
        register_with_numba()
        HoldConstants().apply(self.maker.fgraph)
        return self.maker.create()

    @property
    def vm(self) -> Any:
        """Virtual machine of the linked function."""
        return self.linked.vm

    def get_shared(self) -> list[Any]:
        """Return the shared variables of the function, as PyTensor's functions do."""
        return [x.variable for x in self.maker.inputs if x.implicit]

    def __call__(self, *arguments: Any) -> Any:
        """Call the linked function."""
        return self.linked(*arguments)


class _DeferredMode(Mode):
    """Mode whose functions are :class:`RewrittenFunction`."""

    is_linked_later = True

    @property
    def function_maker(self) -> Any:
        return lambda *arguments, **options: RewrittenFunction(FunctionMaker(*arguments, **options))


def deferred(mode: Mode, *, check_bounds: bool = True) -> Mode:
    """Return a mode with the rewrites of ``pymc.compile``, whose functions are :class:`RewrittenFunction`."""
    check = (
        "local_check_parameter_to_ninf_switch" if check_bounds else "local_remove_check_parameter"
    )
    query = mode.provided_optimizer.including("random_make_inplace", check)
    # Only Numba needs large constants as inputs; `linked` applies the rewrite.
    return _DeferredMode(linker=mode.linker, optimizer=query.excluding("fastlogp_held_constants"))


class _Stored(NamedTuple):
    """Stored variable and its slice of all stored values."""

    name: str
    variable: Variable
    place: slice
    shape: Shape


def functions_of(source: ModelSource, var_names: Sequence[str] | None) -> Functions:
    """Return the rewritten functions of a model.

    Parameters
    ----------
    source : ModelSource
        The model.
    var_names : sequence of str, optional
        Names of the variables that are stored besides the value variables.
    """
    model = source.model
    known = source.shapes.stored if source.shapes else None
    shapes = known or _static_shapes(model) or shapes_by_nutpie(model)
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    stored = _stored([*values, *_other_variables(model, values, var_names)], shapes)
    if find_rng_nodes([x.variable for x in stored]):  # PyMC updates states of generators
        return functions_by_nutpie(model, source, var_names)
    n_dim = stored[len(values) - 1].place.stop
    point = pt.TensorType("float64", shape=(n_dim,))(name="_unconstrained_point")
    slices = [point[x.place] for x in stored[: len(values)]]
    given = {
        value: part.reshape(x.shape).astype(value.dtype)
        for value, part, x in zip(values, slices, stored[: len(values)], strict=True)
    }
    mode = deferred(get_mode("NUMBA"), check_bounds=model.check_bounds)
    outputs, derived = _logp_and_gradient(source, values), None
    if source.fixed_data:
        outputs, derived = derive(outputs)
    logp = clone_replace(outputs, given)
    computed = [_raveled(x.variable) for x in stored[len(values) :]]
    # The slices of the value variables, in order, make up the point.
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
        derived,
    )


def initial_value_graph(source: ModelSource) -> FunctionGraph:
    """Return the rewritten graph of the initial values and the next states of generators.

    Shared variables in the graph keep their current values.
    """
    model = source.model
    overrides = convert_str_to_rv_dict(model, source.initial_values)
    expressions = make_initial_point_expression(
        free_rvs=model.free_RVs,
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={**model.rvs_to_initial_values, **overrides},
        jitter_rvs=source.jittered,
        default_strategy=source.strategy,
        return_transformed=True,
    )
    values = replace_rng_nodes(expressions)
    states = collect_default_updates(inputs=[], outputs=values)
    return pytensor.function([], values, updates=states, mode=deferred(FAST_COMPILE)).maker.fgraph


def _static_shapes(model: "pm.Model") -> dict[str, Shape] | None:
    """Return shapes of value variables, free variables and deterministics by name, None unless all shapes are static."""
    variables = [*model.value_vars, *model.free_RVs, *model.deterministics]
    if all(isinstance(x.type, TensorType) and None not in x.type.shape for x in variables):
        return {x.name: x.type.shape for x in variables}
    return None


def _other_variables(
    model: "pm.Model", values: Sequence[Variable], var_names: Iterable[str] | None
) -> list[Variable]:
    """Return the stored variables that are no value variables."""
    names = {value.name for value in values}
    others = [x for x in model.unobserved_value_vars if x.name not in names]
    wanted = None if var_names is None else {*var_names}
    return [x for x in others if wanted is None or x.name in wanted]


def _stored(variables: Sequence[Variable], shapes: Mapping[str, Any]) -> list[_Stored]:
    stored, begin = [], 0
    for x in variables:
        shape = shapes[x.name]
        end = begin + prod(shape)
        stored.append(_Stored(x.name, x, slice(begin, end), shape))
        begin = end
    return stored


def _logp_and_gradient(source: ModelSource, values: Sequence[Variable]) -> list[Variable]:
    """Return logp, rewritten, and its gradient. Data of fixed shapes are marked."""
    model, rewrites = source.model, ["canonicalize", "stabilize"]
    if not model.check_bounds:
        rewrites.append("local_remove_check_parameter")
    logp = model.logp()
    if source.fixed_data:
        marked = {x: mark(x, shape) for x, shape in source.fixed_data.items()}
        logp = clone_replace(logp, marked)
    logp = rewrite_graph(logp, include=rewrites)
    free_dead_graphs([logp])
    gradients = pt.grad(logp, list(values))
    return [logp, pt.concatenate([_raveled(x) for x in gradients])]


def _raveled(x: Variable) -> Any:
    return pt.as_tensor(x, allow_xtensor_conversion=True).ravel()
