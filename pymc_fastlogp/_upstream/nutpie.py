"""Private nutpie APIs: the C functions of a compiled model, and the stages of its compilation.

nutpie is imported by the functions that need it: it takes longer to import than the package.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import getclosurevars, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pymc as pm

STEPS = (
    "_compute_shapes",
    "_make_functions",
    "_rv_dict_to_flat_array_wrapper",
)
MODEL_FIELDS = frozenset(
    (
        "dims",
        "reparameterized_names",
        "compiled_logp_func",
        "compiled_expand_func",
        "initial_point_func",
        "shared_data",
        "shared_var_keys",
        "user_data",
        "n_expanded",
        "shape_info",
        "logp_func",
        "expand_func",
        "_n_dim",
        "_shapes",
        "_coords",
        "_transform_adapt_args",
    )
)


class Callback(NamedTuple):
    """``int64 f(uint64 n_dim, double *x, double *gradient, double *logp, void *user_data)``.

    Attributes
    ----------
    address : int
        Of the function.
    user_data : int
        Of what it takes as its last argument.
    n_dim : int
        Length of the unconstrained point.
    """

    address: int
    user_data: int
    n_dim: int


def callback_of(compiled: Any) -> Callback:
    """Return the callback of what ``nutpie.compile_pymc_model`` returned, which has to stay alive."""
    return Callback(
        compiled.compiled_logp_func.address, compiled.user_data.ctypes.data, int(compiled.n_dim)
    )


class Functions(NamedTuple):
    """PyTensor functions that nutpie makes of a model, before Numba compiles the callbacks.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all values that are stored.
    logp, expand : pytensor.compile.Function
        The point to logp and gradient, and to all values.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    reparameterized : list of str
        Names of the value variables that have a transform.
    """

    n_dim: int
    n_expanded: int
    logp: Any
    expand: Any
    shape_info: tuple[list, list, list]
    reparameterized: list[str]


def differs() -> str | None:
    """Return what of the installed nutpie is not as this file knows it, None if all is."""
    from dataclasses import fields

    from nutpie import compile_pymc

    missing = [name for name in STEPS if not hasattr(compile_pymc, name)]
    if missing:
        return f"no {missing[0]}"
    names = {field.name for field in fields(compile_pymc.CompiledPyMCModel)}
    unknown = sorted(names ^ MODEL_FIELDS)
    if unknown:
        return f"the field {unknown[0]}"
    arguments = (
        "compute_grad",
        "join_expanded",
        "mode",
        "model",
        "pymc_initial_point_fn",
        "var_names",
    )
    if tuple(sorted(signature(compile_pymc._make_functions).parameters)) != arguments:
        return "the arguments of _make_functions"
    return None


def functions_by_nutpie(
    model: "pm.Model",
    initial_point: Callable[[Any], dict[str, np.ndarray]],
    var_names: Iterable[str] | None,
) -> Functions:
    """Return the functions of a model, as nutpie makes them in PyTensor's mode NUMBA."""
    from nutpie.compile_pymc import _make_functions

    n_dim, n_expanded, logp, expand, _, *rest = _make_functions(
        model,
        mode="NUMBA",
        compute_grad=True,
        join_expanded=True,
        pymc_initial_point_fn=initial_point,
        var_names=var_names,
    )
    return Functions(n_dim, n_expanded, logp, expand, *rest)


def shapes_by_nutpie(model: "pm.Model") -> dict[str, tuple[int, ...]]:
    """Return the shapes of what nutpie stores, by name; it compiles two functions for that."""
    from nutpie.compile_pymc import _compute_shapes

    return _compute_shapes(model)


def flat_initial_point(
    initial_point: Callable[[Any], dict[str, np.ndarray]],
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
) -> Callable[[Any], np.ndarray]:
    """Return a function from a seed to an unconstrained point, from one to values by name."""
    from nutpie.compile_pymc import _rv_dict_to_flat_array_wrapper

    return _rv_dict_to_flat_array_wrapper(initial_point, names, shapes)


class RawCallback(NamedTuple):
    """A function that nutpie has Numba compile.

    Attributes
    ----------
    name : {"logp", "expand"}
        Which one.
    jitted : Dispatcher
        The graph's function, of the point alone.
    n_dim : int
        Length of the unconstrained point.
    n_expanded : int, optional
        Length of all values that are stored, None of logp.
    """

    name: str
    jitted: Any
    n_dim: int
    n_expanded: int | None = None


def raw_callback_of(function: FunctionType) -> RawCallback | None:
    """Return what a function is among those that nutpie has Numba compile; None if it is none of them, or if it reads shared data."""
    names = {f"_make_c_{x}_func.<locals>.{x}_numba": x for x in ("logp", "expand")}
    name = names.get(function.__qualname__)
    if name is None or function.__module__ != "nutpie.compile_pymc" or differs() is not None:
        return None
    variables = getclosurevars(function).nonlocals
    # Where no data are shared, this is a function of the graph's, else one of the shared data too.
    extract = getclosurevars(variables["extract"].py_func).nonlocals
    if extract.keys() != {"inner"}:
        return None
    return RawCallback(name, extract["inner"], variables["n_dim"], variables.get("n_expanded"))
