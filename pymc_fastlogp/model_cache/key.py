"""The key of a model in the cache: a hash of everything that its compiled form depends on.

Two models with equal keys compile to the same code. What goes in is the graph as the user wrote it, before any rewriting, with its data:
each Op by its class and its ``__props__``, each constant by its elements, transforms and coordinates by their content. Classes and functions
go in by name, so they have to be those of packages whose version goes in, too; anything else could change without its name. A model with
something that is not keyed so is not cached.

Of a model that is not frozen, types and names of shared data go in instead of their values, and no coordinates: no rewrite looks at
them. What does depend on them are lengths, which :mod:`pymc_fastlogp.compilation.shapes` adds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import io_toposort
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.random.type import RandomType

from pymc_fastlogp._upstream.pymc_dispatch import functions_for
from pymc_fastlogp.kernel.native.code import compiler, state_of_sources

if TYPE_CHECKING:
    import pymc as pm

# Packages whose classes and functions are known by their names, since their versions are part of the key.
PACKAGES = ("pymc", "pytensor", "numpy", "scipy", "pandas")
KNOWN = {*PACKAGES, "nutpie", "builtins", "pymc_fastlogp", "numbers", "operator", "functools"}
# What of PyTensor's configuration decides what a graph is rewritten to.
OPTIONS = (
    "floatX",
    "optimizer",
    "optimizer_excluding",
    "optimizer_including",
    "optimizer_requiring",
    "warn_float64",
    "cast_policy",
    "scan__allow_gc",
    "numba__fastmath",
    "optdb__position_cutoff",
    "optdb__max_use_ratio",
    "tensor__cmp_sloppy",
)
OWN = Path(__file__).parents[1]
DEEPEST = 50


class NotKeyedError(Exception):
    """Something that is not known by its content; the text names it."""


def key_of(model: "pm.Model", options: Mapping[str, Any]) -> str:
    """Return the key of a model, as hexadecimal digits.

    Parameters
    ----------
    model : pymc.Model
        The model as the user made it, not frozen.
    options : mapping
        What else decides the result, by name.

    Raises
    ------
    NotKeyedError
        If the model has a part whose content has no sure key.
    """
    writer = _Writer()
    _write(writer, model, options)
    writer.add(dict(model.coords))
    return writer.hash.hexdigest()


class Form(NamedTuple):
    """A model without the values of its shared data.

    Attributes
    ----------
    key : str
        Hexadecimal digits, equal for models that differ in values, lengths and coordinates alone.
    data : tuple of SharedVariable
        The shared data, in the same order for equal keys.
    """

    key: str
    data: tuple[SharedVariable, ...]

    def key_at(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Return the key of the model where what is stored has these shapes."""
        return sha256(f"{self.key} {sorted(shapes.items())}".encode()).hexdigest()


def form_of(model: "pm.Model", options: Mapping[str, Any]) -> Form:
    """Return the key of a model whose data are not frozen, and its data; arguments and errors are those of :func:`key_of`."""
    writer = _Writer(with_shared_values=False)
    _write(writer, model, options)
    return Form(writer.hash.hexdigest(), tuple(writer.shared))


def _write(writer: "_Writer", model: "pm.Model", options: Mapping[str, Any]) -> None:
    """Write all of a model but its coordinates, and what else its code depends on."""
    variables = [*model.free_RVs, *model.observed_RVs, *model.deterministics, *model.potentials]
    values = [model.rvs_to_values[rv] for rv in model.basic_RVs]
    writer.graph([v for v in values if not _is_data(v)], [*variables, *filter(_is_data, values)])
    for rv in model.basic_RVs:
        writer.add((rv.name, model.rvs_to_values[rv].name, model.rvs_to_values[rv].type))
        writer.add(model.rvs_to_transforms.get(rv))
        writer.add(model.rvs_to_initial_values.get(rv))
    writer.add([x.name for x in variables])
    writer.add([len(x) for x in (model.free_RVs, model.observed_RVs, model.deterministics)])
    writer.add({name: [*dims] for name, dims in model.named_vars_to_dims.items()})
    writer.graph([], list(model.dim_lengths.values()))
    writer.add([*model.dim_lengths, model.check_bounds])
    writer.add(dict(options))
    writer.add({name: getattr(config, name) for name in OPTIONS})
    writer.add([compiler(), state_of_sources(OWN), *_versions()])


@cache
def _versions() -> tuple[str, ...]:
    # What a model needs is imported, and says its version at once; nutpie is imported late, and its installation is asked.
    names = (*PACKAGES, "pymc_fastlogp")
    imported = [f"{package} {import_module(package).__version__}" for package in names]
    return (*imported, f"nutpie {version('nutpie')}")


def _is_data(value: Variable) -> bool:
    return value.owner is not None or isinstance(value, Constant | SharedVariable)


class _Writer:
    """Writes what it is given to a hash, each thing with its kind and its end, so that nothing runs together.

    Of shared variables it writes the values, or else the names, and collects them.
    """

    def __init__(self, *, with_shared_values: bool = True) -> None:
        self.hash = sha256()
        self.shared: list[SharedVariable] = []
        self._with_shared_values = with_shared_values
        self._places: dict[Variable, str] = {}
        self._n_variables = 0
        self._depth = 0

    def text(self, *parts: object) -> None:
        """Write words."""
        for part in parts:
            word = str(part).encode()
            self.hash.update(b"%d:" % len(word))
            self.hash.update(word)

    def add(self, thing: Any) -> None:
        """Write anything, by its content."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotKeyedError(f"what {type(thing).__name__} refers to goes on and on")
        for kinds, write in WRITERS:
            if isinstance(thing, kinds):
                write(self, thing)
                break
        else:
            self.instance(thing)
        self._depth -= 1

    def graph(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Write a graph: its nodes in an order that depends on the graph alone, and what its outputs are."""
        outputs = list(outputs)
        for x in inputs:
            self._place(x, "input")
            self.add(x.type)
        for node in io_toposort([], outputs):
            if node.outputs[0] in self._places:
                continue
            self.op(node.op)
            for x in node.inputs:
                self.variable(x)
            for x in node.outputs:
                self._place(x, "result")
                self.add(x.type)
        for x in outputs:
            self.variable(x)

    def variable(self, x: Variable) -> None:
        """Write which variable this is; what is not a result of a node is written where it is first met."""
        place = self._places.get(x)
        if place is not None:
            self.text("at", place)
        elif isinstance(x, Constant):
            self._place(x, "constant")
            self.add(x.type)
            self.add(x.data)
        elif isinstance(x, SharedVariable):
            self._place(x, "shared")
            self.add(x.type)
            # A generator is seeded before it is used.
            if isinstance(x.type, RandomType):
                return
            if self._with_shared_values:
                self.add(x.get_value(borrow=True))
            else:
                self.text(x.name)
                self.shared.append(x)
        elif x.owner is not None:
            self.graph([], [x])
        else:
            raise NotKeyedError(f"the variable {x} that is no part of the model")

    def op(self, op: Op | ScalarOp) -> None:
        """Write an Op: by contract it is what its class, its properties and its inner graph say."""
        self.class_(type(op))
        for function in _functions_for(type(op)):
            self.function(function)
        inner = getattr(op, "fgraph", None)
        if isinstance(inner, AbstractFunctionGraph):
            self._inner(inner)
        if hasattr(op, "__props__"):
            self.add([getattr(op, name) for name in op.__props__ if name != "fgraph"])
            # What a view does to gradients, as those of grad_clip, is no property of it.
            if isinstance(op, ViewOp):
                self.add(_content(op))
        elif isinstance(inner, AbstractFunctionGraph) or isinstance(op, ScalarOp):
            self.add(_content(op))
        else:
            raise NotKeyedError(f"the Op {op}, which has no __props__")

    def _inner(self, inner: AbstractFunctionGraph) -> None:
        """Write an inner graph, whose variables are its own."""
        places, self._places = self._places, {}
        self.graph(inner.inputs, inner.outputs)
        self._places = places

    def class_(self, class_: type) -> None:
        """Write a class by its name."""
        self._named(class_)
        self.text("class", class_.__module__, class_.__qualname__)

    def function(self, function: Callable[..., Any]) -> None:
        """Write a function by its name and what it captures; one of unknown source is none that is keyed."""
        _check_package(function)
        self.text("function", function.__module__, function.__qualname__)
        code = getattr(function, "__code__", None)
        if code is None:
            return
        self.text(code.co_firstlineno, code.co_code.hex())
        for captured in ("__defaults__", "__kwdefaults__"):
            self.add(getattr(function, captured))
        self.add([cell.cell_contents for cell in function.__closure__ or ()])

    def array(self, array: np.ndarray) -> None:
        """Write an array."""
        if isinstance(array, np.ma.MaskedArray):
            raise NotKeyedError("a masked array")
        self.text("array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self.hash.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1))

    def sequence(self, sequence: Iterable[Any]) -> None:
        """Write a list or tuple."""
        items = list(sequence)
        self.text(type(sequence).__name__, len(items))
        for item in items:
            self.add(item)

    def mapping(self, mapping: Mapping[Any, Any]) -> None:
        """Write a dictionary, in its order."""
        self.text("mapping", len(mapping))
        self.sequence(list(chain.from_iterable(mapping.items())))

    def set_(self, elements: Iterable[Any]) -> None:
        """Write a set, in the order of its elements."""
        try:
            self.sequence(sorted(elements))
        except TypeError:
            raise NotKeyedError("a set without order") from None

    def type_(self, type_: Type) -> None:
        """Write the type of a variable."""
        self.class_(type(type_))
        props = getattr(type_, "__props__", None)
        self.add([getattr(type_, name) for name in props] if props else _content(type_))

    def instance(self, thing: Any) -> None:
        """Write any other object by its class and its attributes."""
        self.class_(type(thing))
        self.add(_content(thing))

    def _place(self, x: Variable, kind: str) -> None:
        self._places[x] = str(self._n_variables)
        self._n_variables += 1
        self.text(kind)

    def _named(self, thing: Any) -> None:
        """Raise unless this is what its name stands for in a known package."""
        _check_package(thing)
        found: Any = import_module(thing.__module__)
        for part in thing.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not thing:
            raise NotKeyedError(f"{thing.__qualname__}, which was made at run time")


def _check_package(thing: Any) -> None:
    if str(thing.__module__).partition(".")[0] not in KNOWN:
        raise NotKeyedError(
            f"{thing.__module__}.{thing.__qualname__}, whose source may change without a new version"
        )


def _functions_for(op_type: type) -> tuple[Callable, ...]:
    """Return what PyMC calls for an Op now, where that is not what it calls for any Op."""
    return tuple(f for f in functions_for(op_type) if f not in set(functions_for(object)))


class _Plain:
    """All that an object of it knows is in its dictionary."""


def _content(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object; of one that keeps more than a dictionary, as those written in C do, nothing is known."""
    if is_dataclass(thing):
        return {field.name: getattr(thing, field.name) for field in fields(thing)}
    if not hasattr(thing, "__dict__") or type(thing).__basicsize__ != _Plain.__basicsize__:
        raise NotKeyedError(f"an object of type {type(thing).__qualname__}")
    return {name: x for name, x in vars(thing).items() if name not in CACHES}


# Attributes that say nothing new: what an Op computes of itself, when it is first asked.
CACHES = {
    "fgraph",
    "_fn",
    "_lop_op_cache",
    "_rop_op_cache",
    "_frozen_lop",
    "_frozen_rop",
    "_connection_pattern",
    "_inner_shape_template",
    "_inner_shape_frozen",
    "nfunc_spec",
    "nfunc",
}

PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, slice)

# The first row that fits decides.
WRITERS: tuple[tuple[Any, Callable[[_Writer, Any], None]], ...] = (
    (PLAIN, lambda writer, x: writer.text(type(x).__name__, repr(x))),
    ((pd.Timestamp, pd.Timedelta), lambda writer, x: writer.text(repr(x), x.unit)),
    (np.ndarray, _Writer.array),
    (Variable, _Writer.variable),
    (Type, _Writer.type_),
    ((Op, ScalarOp), _Writer.op),
    (AbstractFunctionGraph, _Writer._inner),
    (type, _Writer.class_),
    ((FunctionType, BuiltinFunctionType), _Writer.function),
    # As the class body of a distribution has its logp, which PyMC's registered function captures.
    ((staticmethod, classmethod), lambda writer, x: writer.add(x.__func__)),
    ((list, tuple), _Writer.sequence),
    (Mapping, _Writer.mapping),
    ((set, frozenset), _Writer.set_),
)
