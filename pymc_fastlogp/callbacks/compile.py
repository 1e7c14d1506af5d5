"""``compile_pymc_model``: nutpie's, without Numba."""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pymc_fastlogp.callbacks.collector import old_objects_left_alone
from pymc_fastlogp.callbacks.turns import one_at_a_time
from pymc_fastlogp.given_model import model_with_variables, refuse_discrete
from pymc_fastlogp.registration import is_enabled

if TYPE_CHECKING:
    import pymc as pm

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
    parametrise: bool = False,
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
    parametrise : bool
        Whether effects of groups are sampled where their data want them, as :func:`~pymc_fastlogp.parametrise` has it, and parameters that are
        correlated with each other in linear coordinates in which they are not. Data are frozen for it.

    Returns
    -------
    CompiledModel
        A ``CompiledPyMCModel`` of nutpie with a method ``logp_dlogp(x)``; what nutpie returns where this is nutpie's function.

    Raises
    ------
    TypeError
        If it is not a PyMC model, or not given while no context is open.
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
    from nutpie import compile_pymc_model as nutpie_compile
    from pymc.model.transform.optimization import freeze_dims_and_data

    from pymc_fastlogp.callbacks import kept
    from pymc_fastlogp.callbacks.start import jittered_in

    model = model_with_variables("compile_pymc_model", model)
    refuse_discrete(model)
    freeze = freeze_model is not False
    options: dict[str, Any] = {
        "initial_points": initial_points,
        "jitter_rvs": jitter_rvs,
        "default_initialization_strategy": default_initialization_strategy,
        "var_names": var_names,
    }
    can_be_frozen = _can_be_frozen(model)
    if freeze_model is None and not can_be_frozen:
        logger.info(
            "the model is not frozen: PyMC cannot freeze one inside of another, or with symbolic initial values"
        )
        freeze = False
    options |= _by_name(model, options)
    reason = _why_nutpie(backend, _without_door(kwargs))
    if reason is not None:
        logger.info("nutpie compiles the model: %s", reason)
        if gradient_backend is not None:
            options["gradient_backend"] = gradient_backend
        if freeze:
            model = freeze_dims_and_data(model)
        options["jitter_rvs"] = jittered_in(model, options["jitter_rvs"])
        with one_at_a_time():
            return nutpie_compile(model, backend=backend, freeze_model=False, **options, **kwargs)
    if gradient_backend is not None and gradient_backend.lower() != "pytensor":
        raise ValueError(f"gradient_backend is {gradient_backend!r}: use 'pytensor' with Numba.")
    if var_names is not None:
        options["var_names"] = list(var_names)
    with one_at_a_time(), old_objects_left_alone():
        if parametrise and can_be_frozen:
            return kept.parametrised(model, options)
        return kept.compiled(model, options, freeze=freeze)


def _can_be_frozen(model: "pm.Model") -> bool:
    """Whether PyMC can freeze a model: not one inside of another, nor one with a symbolic initial value."""
    from pytensor.graph.basic import Constant, Variable

    values = model.rvs_to_initial_values.values()
    is_symbolic = any(isinstance(x, Variable) and not isinstance(x, Constant) for x in values)
    return model.parent is None and not is_symbolic


def _by_name(model: "pm.Model", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options about variables of a model by their names, which are those of the frozen model too."""
    names = {x: x.name for x in model.free_RVs}
    initial, jittered = options["initial_points"], options["jitter_rvs"]
    return {
        "initial_points": initial and {names.get(x, x): value for x, value in initial.items()},
        # As in nutpie, what is no variable of the model is not jittered.
        "jitter_rvs": None
        if jittered is None
        else sorted(names[x] for x in jittered if x in names),
    }


def _why_nutpie(backend: str, kwargs: Mapping[str, Any]) -> str | None:
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


def _without_door(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments for Numba without that of ``compile_kwargs()``, which asks for what is done here anyway."""
    if "pipeline_class" not in kwargs:
        return kwargs
    from pymc_fastlogp.callbacks.door import pipeline_class

    is_ours = kwargs["pipeline_class"] is pipeline_class()
    return {name: x for name, x in kwargs.items() if name != "pipeline_class" or not is_ours}
