"""Private nutpie APIs: the C functions of a compiled model, and the stages of its compilation.

Functions import nutpie when they need it, because nutpie takes longer to import than this package.
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
        Address of the function.
    user_data : int
        Address of its last argument.
    n_dim : int
        Length of the unconstrained point.
    """

    address: int
    user_data: int
    n_dim: int


def callback_of(compiled: Any) -> Callback:
    """Return the callback for logp of a model that ``nutpie.compile_pymc_model`` returned, which has to stay alive."""
    return Callback(
        compiled.compiled_logp_func.address, compiled.user_data.ctypes.data, int(compiled.n_dim)
    )


class Functions(NamedTuple):
    """PyTensor functions of a model, before the callbacks are compiled.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all stored values.
    logp, expand : pytensor.compile.Function
        From the point to logp and gradient, and to all stored values.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    reparameterized : list of str
        Names of the value variables that have a transform.
    derived : DerivedData, optional
        Variables that ``logp`` reads in place of expressions of data.
    """

    n_dim: int
    n_expanded: int
    logp: Any
    expand: Any
    shape_info: tuple[list, list, list]
    reparameterized: list[str]
    derived: Any = None


def differs() -> str | None:
    """Return a difference between the installed nutpie and the API that this file uses, None if there is none."""
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
    """Return the functions of a model, compiled by nutpie in PyTensor's mode NUMBA."""
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
    """Return the shapes of the stored variables by name, for which nutpie compiles two functions."""
    from nutpie.compile_pymc import _compute_shapes

    return _compute_shapes(model)


def flat_initial_point(
    initial_point: Callable[[Any], dict[str, np.ndarray]],
    names: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
) -> Callable[[Any], np.ndarray]:
    """Return a function from a seed to an unconstrained point, given the function to values by name."""
    from nutpie.compile_pymc import _rv_dict_to_flat_array_wrapper

    return _rv_dict_to_flat_array_wrapper(initial_point, names, shapes)


class RawCallback(NamedTuple):
    """Callback that nutpie decorates with ``numba.cfunc``.

    Attributes
    ----------
    name : {"logp", "expand"}
        The kind of callback.
    jitted : Dispatcher
        The function of the graph, whose only argument is the point.
    n_dim : int
        Length of the unconstrained point.
    n_expanded : int, optional
        Length of all stored values; None for logp.
    """

    name: str
    jitted: Any
    n_dim: int
    n_expanded: int | None = None


def raw_callback_of(function: FunctionType) -> RawCallback | None:
    """Return the callback of a function that nutpie decorates; None for other functions, and for callbacks that read shared data."""
    names = {f"_make_c_{x}_func.<locals>.{x}_numba": x for x in ("logp", "expand")}
    name = names.get(function.__qualname__)
    if name is None or function.__module__ != "nutpie.compile_pymc" or differs() is not None:
        return None
    variables = getclosurevars(function).nonlocals
    # Without shared data, `extract` closes over the function of the graph alone.
    extract = getclosurevars(variables["extract"].py_func).nonlocals
    if extract.keys() != {"inner"}:
        return None
    return RawCallback(name, extract["inner"], variables["n_dim"], variables.get("n_expanded"))
