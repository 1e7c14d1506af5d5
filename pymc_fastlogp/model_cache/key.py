"""Key of a model in the cache: a hash of everything that the compiled model depends on.

Models with equal keys compile to the same code. The hash covers the graph as the user wrote it, before any rewriting, with its data:

- an Op by its class and its ``__props__``,
- a constant by its elements,
- transforms and coordinates by their content,
- a class or function by its name, which has to belong to a package whose version is hashed, too. The source of any other could change under the same name.

A model with any other part has no key and is not cached.

For a model with shared data, types and names of the data are hashed in place of their values, and coordinates are not hashed: no rewrite
uses them. The lengths that depend on the data are added by :mod:`pymc_fastlogp.compilation.shapes`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from pymc_fastlogp.kernel.native.loaded_code import compiler, state_of_sources

if TYPE_CHECKING:
    import pymc as pm

# Packages whose classes and functions are hashed by name, since the versions of the packages are part of the key.
PACKAGES = ("pymc", "pytensor", "numpy", "scipy", "pandas")
KNOWN = {*PACKAGES, "nutpie", "builtins", "pymc_fastlogp", "numbers", "operator", "functools"}
# Options of PyTensor that affect rewriting.
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
PACKAGE_FOLDER = Path(__file__).parents[1]
# Nesting of objects beyond which references are taken to be cyclic.
DEEPEST = 50


class NotKeyedError(Exception):
    """A part of a model has no key; the text names the part."""


def key_of(model: "pm.Model", options: Mapping[str, Any]) -> str:
    """Return the key of a model, as hexadecimal digits.

    Parameters
    ----------
    model : pymc.Model
        The model as the user made it, not frozen.
    options : mapping
        Other arguments that affect the result, by name.

    Raises
    ------
    NotKeyedError
        If a part of the model has no key.
    """
    hasher = _Hasher()
    _hash_model(hasher, model, options)
    hasher.add(dict(model.coords))
    return hasher.hash.hexdigest()


class Form(NamedTuple):
    """Model without the values of its shared data.

    Attributes
    ----------
    key : str
        Hexadecimal digits, equal for models that differ only in values, lengths and coordinates.
    data : tuple of SharedVariable
        The shared data, in the same order for equal keys.
    """

    key: str
    data: tuple[SharedVariable, ...]

    def key_at(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Return the key of the model with these shapes of stored variables and data."""
        return sha256(f"{self.key} {sorted(shapes.items())}".encode()).hexdigest()


def form_of(model: "pm.Model", options: Mapping[str, Any]) -> Form:
    """Return the key of a model with shared data, and the data; arguments and errors as for :func:`key_of`."""
    hasher = _Hasher(with_shared_values=False)
    _hash_model(hasher, model, options)
    return Form(hasher.hash.hexdigest(), tuple(hasher.shared))


def _hash_model(hasher: "_Hasher", model: "pm.Model", options: Mapping[str, Any]) -> None:
    """Hash a model without its coordinates, the options, and the versions of all code that compiles."""
    variables = [*model.free_RVs, *model.observed_RVs, *model.deterministics, *model.potentials]
    values = [model.rvs_to_values[rv] for rv in model.basic_RVs]
    hasher.graph([v for v in values if not _is_data(v)], [*variables, *filter(_is_data, values)])
    for rv in model.basic_RVs:
        hasher.add((rv.name, model.rvs_to_values[rv].name, model.rvs_to_values[rv].type))
        hasher.add(model.rvs_to_transforms.get(rv))
        hasher.add(model.rvs_to_initial_values.get(rv))
    hasher.add([x.name for x in variables])
    hasher.add([len(x) for x in (model.free_RVs, model.observed_RVs, model.deterministics)])
    hasher.add({name: [*dims] for name, dims in model.named_vars_to_dims.items()})
    hasher.graph([], list(model.dim_lengths.values()))
    hasher.add([*model.dim_lengths, model.check_bounds])
    hasher.add(dict(options))
    hasher.add({name: getattr(config, name) for name in OPTIONS})
    hasher.add([compiler(), state_of_sources(PACKAGE_FOLDER), *_versions()])


@cache
def _versions() -> tuple[str, ...]:
    # nutpie may not be imported yet, so its version comes from the metadata of the installation, which takes longer.
    names = (*PACKAGES, "pymc_fastlogp")
    imported = [f"{package} {import_module(package).__version__}" for package in names]
    return (*imported, f"nutpie {version('nutpie')}")


def _is_data(value: Variable) -> bool:
    return value.owner is not None or isinstance(value, Constant | SharedVariable)


class _Hasher:
    """Hash of a sequence of objects, each with its kind and length, so that different sequences never concatenate to the same bytes.

    Parameters
    ----------
    with_shared_values : bool
        Whether shared variables are hashed by value. Else they are hashed by name and collected in ``shared``.
    """

    def __init__(self, *, with_shared_values: bool = True) -> None:
        self.hash = sha256()
        self.shared: list[SharedVariable] = []
        self._with_shared_values = with_shared_values
        self._positions: dict[Variable, str] = {}
        self._n_variables = 0
        self._depth = 0

    def text(self, *parts: object) -> None:
        """Hash strings."""
        for part in parts:
            word = str(part).encode()
            self.hash.update(b"%d:" % len(word))
            self.hash.update(word)

    def add(self, x: Any) -> None:
        """Hash any object by its content."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotKeyedError(
                f"an object of type {type(x).__name__}, whose references are nested too deeply"
            )
        for kinds, write in HASHERS:
            if isinstance(x, kinds):
                write(self, x)
                break
        else:
            self.instance(x)
        self._depth -= 1

    def graph(self, inputs: Iterable[Variable], outputs: Iterable[Variable]) -> None:
        """Hash a graph: its nodes in a topological order that depends on the graph alone, and its outputs."""
        outputs = list(outputs)
        for x in inputs:
            self._number(x, "input")
            self.add(x.type)
        for node in io_toposort([], outputs):
            if node.outputs[0] in self._positions:
                continue
            self.op(node.op)
            for x in node.inputs:
                self.variable(x)
            for x in node.outputs:
                self._number(x, "result")
                self.add(x.type)
        for x in outputs:
            self.variable(x)

    def variable(self, x: Variable) -> None:
        """Hash the number of a variable; hash a variable without an owner at its first use."""
        position = self._positions.get(x)
        if position is not None:
            self.text("at", position)
        elif isinstance(x, Constant):
            self._number(x, "constant")
            self.add(x.type)
            self.add(x.data)
        elif isinstance(x, SharedVariable):
            self._number(x, "shared")
            self.add(x.type)
            # A generator is seeded before use.
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
        """Hash an Op by its class, its ``__props__`` and its inner graph, which by contract determine the Op."""
        self.class_(type(op))
        for function in _functions_for(type(op)):
            self.function(function)
        inner = getattr(op, "fgraph", None)
        if isinstance(inner, AbstractFunctionGraph):
            self._inner(inner)
        if hasattr(op, "__props__"):
            self.add([getattr(op, name) for name in op.__props__ if name != "fgraph"])
            # The gradient of a view, such as the bounds of grad_clip, is not among its __props__.
            if isinstance(op, ViewOp):
                self.add(_content(op))
        elif isinstance(inner, AbstractFunctionGraph) or isinstance(op, ScalarOp):
            self.add(_content(op))
        else:
            raise NotKeyedError(f"the Op {op}, which has no __props__")

    def _inner(self, inner: AbstractFunctionGraph) -> None:
        """Hash an inner graph, whose variables are numbered separately."""
        positions, self._positions = self._positions, {}
        self.graph(inner.inputs, inner.outputs)
        self._positions = positions

    def class_(self, class_: type) -> None:
        """Hash a class by its name."""
        self._check_name(class_)
        self.text("class", class_.__module__, class_.__qualname__)

    def function(self, function: Callable[..., Any]) -> None:
        """Hash a function of a known package by its name, its code and its captured values."""
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
        """Hash an array."""
        if isinstance(array, np.ma.MaskedArray):
            raise NotKeyedError("a masked array")
        self.text("array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            self.add(array.tolist())
        else:
            self.hash.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1))

    def sequence(self, sequence: Iterable[Any]) -> None:
        """Hash a list or tuple."""
        items = sequence if isinstance(sequence, list | tuple) else list(sequence)
        self.text(type(sequence).__name__, len(items))
        numbers = _as_numbers(items)
        if numbers is not None:
            self.text("numbers", type(items[0]).__name__)
            self.array(numbers)
            return
        for item in items:
            self.add(item)

    def mapping(self, mapping: Mapping[Any, Any]) -> None:
        """Hash a dictionary, in its order."""
        self.text("mapping", len(mapping))
        self.sequence(list(chain.from_iterable(mapping.items())))

    def set_(self, elements: Iterable[Any]) -> None:
        """Hash a set, with its elements sorted."""
        try:
            self.sequence(sorted(elements))
        except TypeError:
            raise NotKeyedError("a set without order") from None

    def type_(self, type_: Type) -> None:
        """Hash the type of a variable."""
        self.class_(type(type_))
        props = getattr(type_, "__props__", None)
        self.add([getattr(type_, name) for name in props] if props else _content(type_))

    def instance(self, x: Any) -> None:
        """Hash any other object by its class and its attributes."""
        self.class_(type(x))
        self.add(_content(x))

    def _number(self, x: Variable, kind: str) -> None:
        self._positions[x] = str(self._n_variables)
        self._n_variables += 1
        self.text(kind)

    def _check_name(self, class_: type) -> None:
        """Raise NotKeyedError unless the name of a class refers to the class in a known package."""
        _check_package(class_)
        named: Any = import_module(class_.__module__)
        for part in class_.__qualname__.split("."):
            named = getattr(named, part, None)
        if named is not class_:
            raise NotKeyedError(f"{class_.__qualname__}, which was made at run time")


def _as_numbers(items: Sequence[Any]) -> np.ndarray | None:
    """Return numbers of one type as an array with the same values, which is hashed at once: coordinates may be as long as the data."""
    kinds = {*map(type, items)}
    if len(kinds) != 1:
        return None
    [kind] = kinds
    if kind not in (int, float) and not issubclass(kind, np.number):
        return None
    array = np.array(items)
    # Integers beyond int64 would lose digits.
    return array if array.dtype == np.dtype(kind) else None


def _check_package(x: Any) -> None:
    if str(x.__module__).partition(".")[0] not in KNOWN:
        raise NotKeyedError(
            f"{x.__module__}.{x.__qualname__}, whose source may change without a new version"
        )


def _functions_for(op_type: type) -> tuple[Callable, ...]:
    """Return the functions that PyMC dispatches to for a type of Op, without the defaults for all Ops."""
    return tuple(f for f in functions_for(op_type) if f not in set(functions_for(object)))


class _Plain:
    """Class whose instances have a dictionary and no other state."""


def _content(x: Any) -> dict[str, Any]:
    """Return the attributes of an object.

    Raises
    ------
    NotKeyedError
        If the object has other state than a dictionary, such as an instance of a C extension type.
    """
    if is_dataclass(x):
        return {field.name: getattr(x, field.name) for field in fields(x)}
    if not hasattr(x, "__dict__") or type(x).__basicsize__ != _Plain.__basicsize__:
        raise NotKeyedError(f"an object of type {type(x).__qualname__}")
    return {name: value for name, value in vars(x).items() if name not in CACHES}


# Attributes that an Op computes from its other attributes at first use.
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

# The first row whose types match decides.
HASHERS: tuple[tuple[Any, Callable[[_Hasher, Any], None]], ...] = (
    (PLAIN, lambda hasher, x: hasher.text(type(x).__name__, repr(x))),
    ((pd.Timestamp, pd.Timedelta), lambda hasher, x: hasher.text(repr(x), x.unit)),
    (np.ndarray, _Hasher.array),
    (Variable, _Hasher.variable),
    (Type, _Hasher.type_),
    ((Op, ScalarOp), _Hasher.op),
    (AbstractFunctionGraph, _Hasher._inner),
    (type, _Hasher.class_),
    ((FunctionType, BuiltinFunctionType), _Hasher.function),
    # The class body of a distribution defines its logp as one, which PyMC's registered function captures.
    ((staticmethod, classmethod), lambda hasher, x: hasher.add(x.__func__)),
    ((list, tuple), _Hasher.sequence),
    (Mapping, _Hasher.mapping),
    ((set, frozenset), _Hasher.set_),
)
