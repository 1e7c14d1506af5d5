"""Routing tables: the sampler of a model, and the compiler of a model that nutpie samples.

A row is a condition and its outcome. The first row whose condition holds decides and gives the reason, which is logged. If no row of ``SAMPLERS``
holds, ``sample`` samples by nutpie. If no row of ``COMPILERS`` holds, the model is compiled without nutpie's compiler.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.registration import is_enabled

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.sampling.request import Request

Arguments = Mapping[str, Any]

# Arguments of compile_pymc_model that compile_kwargs may hold.
COMPILE_ARGUMENTS = {
    "jitter_rvs",
    "default_initialization_strategy",
    "freeze_model",
    "initial_points",
    "pipeline_class",
}
# Those that only nutpie's compilation understands; PyTensor raises an error for them.
ONLY_FOR_NUTPIE = {"freeze_model", "pipeline_class"}
# Arguments that PyMC passes to nutpie.sample besides the dictionary `nuts`, which must not repeat them.
PASSED_BY_PYMC = {
    *("compiled_model", "draws", "tune", "chains", "cores", "seed"),
    *("save_warmup", "store_unconstrained", "progress_bar", "progress_callback"),
}
# Entries of `nuts` that PyMC passes to the compilation.
FOR_COMPILATION = {"backend", "gradient_backend"}


class Sampler(Enum):
    """Sampler of a model that :func:`~pymc_fastlogp.sample` passes on to ``pm.sample``."""

    PYMC = "PyMC's own step methods"
    CHOSEN_BY_PYMC = "the sampler that pm.sample chooses, possibly nutpie"


class Row(NamedTuple):
    """Row of the table of samplers.

    Attributes
    ----------
    reason : callable
        From model and arguments of ``sample`` to the reason, None if the condition does not hold.
    sampler : Sampler
        The sampler of a model for which the condition holds.
    """

    reason: Callable[["pm.Model", Arguments], str | None]
    sampler: Sampler


def why_pymc_samples(model: "pm.Model", arguments: Arguments) -> str | None:
    """Return the reason why ``pm.sample`` has to sample, None if nutpie samples."""
    reasons = (row.reason(model, arguments) for row in SAMPLERS)
    return next((reason for reason in reasons if reason is not None), None)


def is_sampled_by_pymc(model: "pm.Model", arguments: Arguments) -> bool:
    """Return whether ``pm.sample`` uses PyMC's own step methods, whose ``compile_kwargs`` are arguments of PyTensor."""
    if arguments["nuts_sampler"] is not None:
        return bool(arguments["nuts_sampler"] == "pymc")
    rows = [row for row in SAMPLERS if row.sampler is Sampler.PYMC]
    return any(row.reason(model, arguments) is not None for row in rows)


def pymc_arguments() -> set[str]:
    """Return the names of the arguments of ``pm.sample``."""
    import pymc as pm

    return set(signature(pm.sample).parameters)


def _is_off(model: "pm.Model", arguments: Arguments) -> str | None:
    return None if is_enabled() else "the plugin is switched off"


def _discrete_variable(model: "pm.Model", arguments: Arguments) -> str | None:
    values = model.discrete_value_vars
    return f"{values[0].name} is discrete" if values else None


def _other_nuts_sampler(model: "pm.Model", arguments: Arguments) -> str | None:
    """Return the reason if the caller chose a sampler other than nutpie."""
    name = arguments["nuts_sampler"]
    return None if name in (None, "nutpie") else f"nuts_sampler is {name}"


def _differs(name: str, *defaults: Any) -> Callable[["pm.Model", Arguments], str | None]:
    """Return the condition that an argument differs from the values that nutpie supports."""
    return lambda model, arguments: None if arguments[name] in defaults else f"{name} is given"


def _several_initial_values(model: "pm.Model", arguments: Arguments) -> str | None:
    is_one = isinstance(arguments["initvals"], dict | None)
    return None if is_one else "initvals is not one dictionary"


def _unknown_argument(model: "pm.Model", arguments: Arguments) -> str | None:
    unknown = {*(arguments["compile_kwargs"] or ())} - COMPILE_ARGUMENTS
    unknown |= arguments.keys() - pymc_arguments() - {"nuts", "target_accept"}
    return f"{min(unknown)} is given" if unknown else None


def _repeated_argument(model: "pm.Model", arguments: Arguments) -> str | None:
    given = PASSED_BY_PYMC | ({"target_accept"} & arguments.keys())
    repeated = given & arguments.get("nuts", {}).keys()
    return f"{min(repeated)} is given twice" if repeated else None


def _compilation_argument(model: "pm.Model", arguments: Arguments) -> str | None:
    given = FOR_COMPILATION & arguments.get("nuts", {}).keys()
    return f"{min(given)} is given" if given else None


def _unknown_pymc(model: "pm.Model", arguments: Arguments) -> str | None:
    try:
        import pymc_fastlogp._upstream.pymc_sample  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def _no_nutpie(model: "pm.Model", arguments: Arguments) -> str | None:
    return None if find_spec("nutpie") else "nutpie is not installed"


def _other_step_method(model: "pm.Model", arguments: Arguments) -> str | None:
    try:
        from pymc_fastlogp._upstream.pymc_sample import other_step_method
    except ImportError:
        return None
    return other_step_method(model)


SAMPLERS = (
    Row(_is_off, Sampler.CHOSEN_BY_PYMC),
    Row(_discrete_variable, Sampler.PYMC),
    Row(_other_nuts_sampler, Sampler.CHOSEN_BY_PYMC),
    Row(_differs("step", None), Sampler.PYMC),
    Row(_differs("init", "auto"), Sampler.PYMC),
    Row(_differs("trace", None), Sampler.PYMC),
    Row(_differs("callback", None), Sampler.PYMC),
    Row(_differs("return_inferencedata", True), Sampler.PYMC),
    Row(_differs("nuts_sampler_kwargs", None), Sampler.CHOSEN_BY_PYMC),
    Row(_differs("backend", None, "numba"), Sampler.CHOSEN_BY_PYMC),
    Row(_several_initial_values, Sampler.PYMC),
    Row(_unknown_argument, Sampler.CHOSEN_BY_PYMC),
    Row(_repeated_argument, Sampler.CHOSEN_BY_PYMC),
    Row(_compilation_argument, Sampler.CHOSEN_BY_PYMC),
    Row(_unknown_pymc, Sampler.CHOSEN_BY_PYMC),
    Row(_no_nutpie, Sampler.PYMC),
    Row(_other_step_method, Sampler.PYMC),
)


def why_nutpie_compiles(
    request: "Request", backend: str, numba_arguments: Mapping[str, Any]
) -> str | None:
    """Return the reason why nutpie has to compile a model, None if not.

    Parameters
    ----------
    request : Request
        Arguments of the compilation.
    backend : str
        Backend of nutpie.
    numba_arguments : mapping
        Arguments for Numba's decorators.
    """
    reasons = (reason(request, backend, numba_arguments) for reason in COMPILERS)
    return next((reason for reason in reasons if reason is not None), None)


def without_our_pipeline(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments for Numba without the ``pipeline_class`` of ``compile_kwargs()``, which ``compile_pymc_model`` does not need."""
    if "pipeline_class" not in kwargs:
        return kwargs
    from pymc_fastlogp.callbacks.numba_pipeline import pipeline_class

    is_ours = kwargs["pipeline_class"] is pipeline_class()
    return {name: x for name, x in kwargs.items() if name != "pipeline_class" or not is_ours}


def labeled_shared_data(request: "Request") -> str | None:
    """Return the reason why callbacks cannot read the shared data: variables of ``pymc.dims`` are no tensors."""
    data = () if request.freeze else request.model.data_vars
    labeled = [x.name for x in data if hasattr(x.type, "dims")]
    return f"{labeled[0]} has named dimensions and may change" if labeled else None


def _unknown_nutpie() -> str | None:
    from pymc_fastlogp._upstream.nutpie import differs

    difference = differs()
    return None if difference is None else f"this nutpie differs in {difference}"


def _for_numba(numba_arguments: Mapping[str, Any]) -> str | None:
    names = ", ".join(numba_arguments)
    return f"the arguments {names} are for Numba" if numba_arguments else None


COMPILERS: tuple[Callable[["Request", str, Mapping[str, Any]], str | None], ...] = (
    lambda request, backend, given: (
        None if backend.lower() == "numba" else f"the backend is {backend}"
    ),
    lambda request, backend, given: _for_numba(given),
    lambda request, backend, given: None if is_enabled() else "the plugin is switched off",
    lambda request, backend, given: _unknown_nutpie(),
    lambda request, backend, given: labeled_shared_data(request),
)
