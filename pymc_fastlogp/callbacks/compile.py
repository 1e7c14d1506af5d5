"""``compile_pymc_model``: nutpie's, without Numba."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from pymc_fastlogp.registration import is_enabled

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp._upstream.nutpie import Functions
    from pymc_fastlogp.callbacks.plan import Plan

logger = logging.getLogger("pymc_fastlogp")


def compile_pymc_model(
    model: "pm.Model | None" = None,
    *,
    backend: str = "numba",
    gradient_backend: str | None = None,
    initial_points: Mapping[Any, Any] | None = None,
    jitter_rvs: set | None = None,
    default_initialization_strategy: str = "support_point",
    var_names: Iterable[str] | None = None,
    freeze_model: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Compile a model for ``nutpie.sample``, several times faster than ``nutpie.compile_pymc_model``.

    Kernels, and draws for equal seeds, are the same. Where a graph needs more than one kernel, as for a ``Scan``, Numba compiles
    its callback as in nutpie, and a line of the log says which Op it was. With another backend, with arguments for Numba, with the plugin
    switched off, or with a nutpie that is not known, this is ``nutpie.compile_pymc_model``.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    backend, gradient_backend, initial_points, jitter_rvs, default_initialization_strategy, var_names, **kwargs
        As for ``nutpie.compile_pymc_model``.
    freeze_model : bool, optional
        Whether data and lengths of dimensions become constants, which rewrites may look at. They do by default, unlike in
        nutpie; with ``False``, ``with_data`` of the result can exchange data.

    Returns
    -------
    CompiledModel
        A ``CompiledPyMCModel`` of nutpie with a method ``logp_dlogp(x)``; what nutpie returns where this is nutpie's function.

    Raises
    ------
    ValueError
        If the model has no free variables, or discrete ones.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", shape=2)
    >>> compiled = pymc_fastlogp.compile_pymc_model(model)
    >>> logp, gradient = compiled.logp_dlogp([0.0, 1.0])
    >>> gradient
    array([-0., -1.])
    """
    import pymc as pm
    from nutpie import compile_pymc_model as nutpie_compile

    model = pm.modelcontext(model)
    _check_variables(model)
    freeze = freeze_model is not False
    options: dict[str, Any] = {
        "initial_points": initial_points,
        "jitter_rvs": jitter_rvs,
        "default_initialization_strategy": default_initialization_strategy,
        "var_names": var_names,
    }
    reason = _why_not(backend, kwargs)
    if reason is not None:
        logger.info("nutpie compiles the model: %s", reason)
        if gradient_backend is not None:
            options["gradient_backend"] = gradient_backend
        return nutpie_compile(model, backend=backend, freeze_model=freeze, **options, **kwargs)
    if gradient_backend not in (None, "pytensor"):
        raise ValueError(f"gradient_backend is {gradient_backend!r}: use 'pytensor' with Numba.")
    return _compile(model, freeze=freeze, **options)


def _check_variables(model: "pm.Model") -> None:
    if not model.free_RVs:
        raise ValueError("the model has no free variables: there is nothing to sample.")
    if model.discrete_value_vars:
        names = ", ".join(variable.name for variable in model.discrete_value_vars)
        raise ValueError(
            f"nutpie cannot sample the discrete variables {names}: marginalise or observe them."
        )


def _why_not(backend: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why nutpie itself has to compile a model, None if it does not."""
    from pymc_fastlogp._upstream.nutpie import differs

    if backend.lower() != "numba":
        return f"the backend is {backend}"
    if kwargs:
        return f"the arguments {', '.join(kwargs)} are for Numba"
    if not is_enabled():
        return "the plugin is switched off"
    difference = differs()
    return None if difference is None else f"this nutpie differs in {difference}"


def _compile(
    model: "pm.Model",
    *,
    freeze: bool,
    initial_points: Any,
    jitter_rvs: set | None,
    default_initialization_strategy: str,
    var_names: Iterable[str] | None,
) -> Any:
    """Do what ``nutpie.compile_pymc_model`` does, up to the callbacks."""
    from pymc.initial_point import make_initial_point_fn
    from pymc.model.transform.optimization import freeze_dims_and_data

    from pymc_fastlogp._upstream.nutpie import dims_and_coords, functions_of
    from pymc_fastlogp.callbacks.compiled import CompiledModel

    data = frozenset(x.name for x in model.data_vars if hasattr(x, "get_value"))
    if freeze:
        model = freeze_dims_and_data(model)
    if default_initialization_strategy == "support_point" and jitter_rvs is None:
        jitter_rvs = set(model.free_RVs)
    initial_point = make_initial_point_fn(
        model=model,
        overrides=initial_points,
        default_strategy=default_initialization_strategy,
        jitter_rvs=jitter_rvs,
        return_transformed=True,
    )
    functions = functions_of(model, _one_at_a_time(initial_point), var_names)
    dims, coords = dims_and_coords(model, functions)
    names, _, shapes = functions.shape_info
    return CompiledModel(
        **_callbacks(functions),
        _n_dim=functions.n_dim,
        _shapes={name: tuple(shape) for name, shape in zip(names, shapes, strict=True)},
        _coords=coords,
        dims=dims,
        initial_point_func=functions.initial_point,
        n_expanded=functions.n_expanded,
        shape_info=functions.shape_info,
        logp_func=functions.logp,
        expand_func=functions.expand,
        reparameterized_names=functions.reparameterized,
        frozen_data=data if freeze else frozenset(),
    )


def _callbacks(functions: "Functions") -> dict[str, Any]:
    """Return the callbacks and their data, by the names of the model's fields."""
    from pymc_fastlogp._upstream.nutpie import numba_callback
    from pymc_fastlogp.callbacks import user_data
    from pymc_fastlogp.callbacks.compiled import DirectCallback
    from pymc_fastlogp.callbacks.emit import Layout, expand_module, logp_module

    sides = {"logp": functions.logp, "expand": functions.expand}
    variables = list(dict.fromkeys(x for side in sides.values() for x in side.get_shared()))
    keys = {variable: uuid4().hex for variable in variables}
    shared = {key: _read_only_copy(variable.get_value()) for variable, key in keys.items()}
    plans = {name: _plan_or_none(name, side) for name, side in sides.items()}
    addresses = {name: _addresses(plan) for name, plan in plans.items()}
    record = user_data.filled(shared, [x for each in addresses.values() for x in each])
    compiled = {}
    first = 0
    for name, side in sides.items():
        side_keys = [keys[variable] for variable in side.get_shared()]
        plan = plans[name]
        if plan is None:
            compiled[name] = numba_callback(functions, name, record, side_keys, shared)
            continue
        layout = Layout(record.dtype, side_keys, first)
        first += len(addresses[name])
        sizes = [functions.n_dim] if name == "logp" else [functions.n_dim, functions.n_expanded]
        module = (logp_module if name == "logp" else expand_module)(plan, layout, *sizes)
        compiled[name] = DirectCallback(module, plan)
    return {
        "compiled_logp_func": compiled["logp"],
        "compiled_expand_func": compiled["expand"],
        "shared_data": shared,
        "shared_var_keys": keys,
        "user_data": record,
    }


def _plan_or_none(name: str, side: Any) -> "Plan | None":
    from pymc_fastlogp.callbacks.plan import NotCoveredError, plan_of

    try:
        return plan_of(side.maker.fgraph)
    except NotCoveredError as reason:
        logger.info("Numba compiles the callback of %s, which needs %s", name, reason)
        return None


def _addresses(plan: "Plan | None") -> list[int]:
    if plan is None:
        return []
    code = plan.kernel.load("C" * len(plan.arguments))
    return [code.value or 0, *(x.ctypes.data for x in plan.constants)]


def _read_only_copy(value: Any) -> np.ndarray:
    array = np.array(value, order="C", copy=True)
    array.flags.writeable = False
    return array


def _one_at_a_time(function: Callable) -> Callable:
    """Let one thread at a time call a function: chains start in several."""
    lock = threading.Lock()

    @wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return function(*args, **kwargs)

    return locked
