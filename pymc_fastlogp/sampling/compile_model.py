"""``compile_pymc_model``: nutpie's, without Numba."""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.compilation.garbage_collection import old_objects_left_alone
from pymc_fastlogp.compilation.tracebacks import without_traces
from pymc_fastlogp.models.compile_lock import one_at_a_time
from pymc_fastlogp.models.freeze import can_be_frozen, frozen_copy
from pymc_fastlogp.models.validate import model_with_variables, refuse_discrete
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.registration import is_enabled

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.sampling.pipeline import Found

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
    reparametrize: bool = False,
    **kwargs: Any,
) -> Any:
    """Compile a model for ``nutpie.sample``, several times faster than ``nutpie.compile_pymc_model``.

    Kernels, and draws for equal seeds, are the same. Where a graph needs more than one kernel, as for a sort, Numba compiles
    that graph and not nutpie's code around it, and a line of the log says which Op it was. With another backend, with arguments for Numba, with the plugin
    switched off, or with a nutpie that is not known, this is ``nutpie.compile_pymc_model``.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    backend, gradient_backend, initial_points, jitter_rvs, default_initialization_strategy, var_names, **kwargs
        As for ``nutpie.compile_pymc_model``.
    freeze_model : bool, optional
        Whether data and lengths of dimensions become constants, which rewrites may look at. They do by default, unlike in
        nutpie; with ``False``, ``with_data`` of the result can exchange data, and the model is found on disk for other data, too.
    reparametrize : bool
        Whether effects of groups are sampled where their data want them, as :func:`~pymc_fastlogp.reparametrize` has it, and parameters that are
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
        If the model has no free variables, or discrete ones; if one of its dimensions is called as nutpie calls its own; or if
        ``gradient_backend`` is another than PyTensor, which Numba does not have.

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
    request = request_of(
        model_with_variables("compile_pymc_model", model),
        initial_points=initial_points,
        jitter_rvs=jitter_rvs,
        default_initialization_strategy=default_initialization_strategy,
        var_names=var_names,
        freeze_model=freeze_model,
        reparametrize=reparametrize,
    )
    reason = _why_nutpie(backend, without_door(kwargs)) or why_not_open(request)
    if reason is not None:
        written = " as it is written" if request.reparametrize else ""
        logger.info("nutpie compiles the model%s: %s", written, reason)
        if gradient_backend is not None:
            kwargs["gradient_backend"] = gradient_backend
        return _by_nutpie(request, backend=backend, **kwargs)
    if gradient_backend is not None and gradient_backend.lower() != "pytensor":
        raise ValueError(f"gradient_backend is {gradient_backend!r}: use 'pytensor' with Numba.")
    compiled = found(request)
    from pymc_fastlogp.sampling.pipeline import for_nutpie

    return for_nutpie(compiled)


class Request(NamedTuple):
    """Arguments of one compilation.

    Attributes
    ----------
    model : pymc.Model
        As the user made it.
    options : dict
        The arguments of ``nutpie.compile_pymc_model`` about starts and stored variables, with variables by name.
    freeze : bool
        Whether data and lengths of dimensions become constants.
    reparametrize : bool
        Whether effects and correlated parameters move where their data want them.
    """

    model: "pm.Model"
    options: dict[str, Any]
    freeze: bool
    reparametrize: bool


def request_of(
    model: "pm.Model",
    *,
    freeze_model: bool | None = None,
    reparametrize: bool = False,
    jitter_rvs: set | None = None,
    default_initialization_strategy: str = "support_point",
    **options: Any,
) -> Request:
    """Return what :func:`compile_pymc_model` is asked for by its arguments."""
    refuse_discrete(model)
    is_possible = can_be_frozen(model)
    if freeze_model is None and not is_possible:
        logger.info(
            "the model is not frozen: PyMC cannot freeze one inside of another, or with symbolic initial values"
        )
    options |= {
        "jitter_rvs": jitter_rvs,
        "default_initialization_strategy": default_initialization_strategy,
    }
    if options["var_names"] is not None:
        options["var_names"] = list(options["var_names"])
    return Request(
        model,
        options | _by_name(model, options),
        is_possible if freeze_model is None else freeze_model,
        reparametrize and is_possible,
    )


def found(request: Request) -> "Found":
    """Return a model from disk, or else compile it; one thread at a time."""
    with one_at_a_time(), old_objects_left_alone(), without_traces():
        # Here, since a hundred modules are enough for the collector to look at all of PyMC.
        from pymc_fastlogp.sampling import pipeline

        if request.reparametrize:
            return pipeline.reparametrized(request.model, request.options)
        return pipeline.as_written(request.model, request.options, freeze=request.freeze)


def _by_nutpie(request: Request, **kwargs: Any) -> Any:
    """Return what nutpie compiles a model to."""
    import nutpie

    from pymc_fastlogp.compilation.model_source import jittered_in

    model, options = request.model, request.options
    if request.freeze:
        model = frozen_copy(model)
    options["jitter_rvs"] = jittered_in(model, options["jitter_rvs"])
    with one_at_a_time():
        compile_by_nutpie = unpatched(nutpie.compile_pymc_model)
        return compile_by_nutpie(model, freeze_model=False, **options, **kwargs)


def _by_name(model: "pm.Model", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options about variables of a model by their names, which are those of the frozen model too."""
    names = {x: x.name for x in model.free_RVs}
    jittered = options["jitter_rvs"]
    return {
        "initial_points": _initial_points(model, options["initial_points"] or {}),
        # As in nutpie, what is no variable of the model is not jittered.
        "jitter_rvs": None
        if jittered is None
        else sorted(names[x] for x in jittered if x in names),
    }


def _initial_points(model: "pm.Model", given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return initial values by the names of free variables; given ones may leave out the name of the model, or be of an unconstrained variable.

    Raises
    ------
    KeyError
        If the model has no such variable.
    ValueError
        If one depends on other variables, of which a frozen model has others.
    """
    from pymc.initial_point import convert_str_to_rv_dict
    from pytensor.graph.basic import Variable
    from pytensor.graph.traversal import ancestors

    free = {*model.free_RVs}
    values = convert_str_to_rv_dict(model, given)
    found = {rv.name: value for rv, value in values.items() if rv in free}
    for name, value in found.items():
        if isinstance(value, Variable) and not free.isdisjoint(ancestors([value])):
            raise ValueError(
                f"the initial value of {name} depends on other random variables: give numbers, or 'prior'."
            )
    return found


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


def why_not_open(request: Request) -> str | None:
    """Return why callbacks cannot read the data that may change: those of ``pymc.dims`` are no tensors."""
    data = () if request.freeze else request.model.data_vars
    labeled = [x.name for x in data if hasattr(x.type, "dims")]
    return f"{labeled[0]} has named dimensions and may change" if labeled else None


def without_door(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments for Numba without that of ``compile_kwargs()``, which asks for what is done here anyway."""
    if "pipeline_class" not in kwargs:
        return kwargs
    from pymc_fastlogp.callbacks.numba_pipeline import pipeline_class

    is_ours = kwargs["pipeline_class"] is pipeline_class()
    return {name: x for name, x in kwargs.items() if name != "pipeline_class" or not is_ours}
