"""``compile_pymc_model``: the request of a compilation, and nutpie's model object as the result."""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp.models.compile_lock import compile_lock, compiling
from pymc_fastlogp.models.freeze import can_be_frozen, frozen_copy
from pymc_fastlogp.models.validate import model_with_variables, refuse_discrete
from pymc_fastlogp.sampling.routing import why_nutpie_compiles, without_own_pipeline

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.compilation.loading import CompiledRecord

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

    Kernels, and draws for equal seeds, are the same as with nutpie's function. If a graph needs other Ops than one kernel, such as a sort, Numba compiles
    the graph but not nutpie's code around the graph, and a log line names the Op. ``nutpie.compile_pymc_model`` itself is called with another backend,
    with arguments for Numba, with the plugin switched off, or with an unknown release of nutpie.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the model of the open context.
    backend, gradient_backend, initial_points, jitter_rvs, default_initialization_strategy, var_names, **kwargs
        As for ``nutpie.compile_pymc_model``.
    freeze_model : bool, optional
        Whether data and dimension lengths become constants, which rewrites can use. True by default, unlike in
        nutpie. With ``False``, ``with_data`` of the result can exchange data, and the cached model is used for other data, too.
    reparametrize : bool
        Whether effects of groups are reparametrized from their data, see :func:`~pymc_fastlogp.reparametrize`, and correlated
        parameters are sampled in linear coordinates in which they are uncorrelated. Freezes data.

    Returns
    -------
    CompiledModel
        A ``CompiledPyMCModel`` of nutpie with a method ``logp_dlogp(x)``; the result of nutpie's function if that was called.

    Raises
    ------
    TypeError
        If ``model`` is not a PyMC model, or is not given while no context is open.
    ValueError
        If the model has no free variables, or discrete ones; if a dimension has nutpie's name for unconstrained points; or if
        ``gradient_backend`` is not PyTensor, the only one for Numba.

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
    reason = why_nutpie_compiles(request, backend, without_own_pipeline(kwargs))
    if reason is not None:
        written = " as it is written" if request.reparametrize else ""
        logger.info("nutpie compiles the model%s: %s", written, reason)
        if gradient_backend is not None:
            kwargs["gradient_backend"] = gradient_backend
        return _compiled_by_nutpie(request, backend=backend, **kwargs)
    if gradient_backend is not None and gradient_backend.lower() != "pytensor":
        raise ValueError(f"gradient_backend is {gradient_backend!r}: use 'pytensor' with Numba.")
    compiled = compiled_record(request)
    from pymc_fastlogp.compilation.nutpie_model import nutpie_model_of

    return nutpie_model_of(compiled)


class Request(NamedTuple):
    """Arguments of a compilation.

    Attributes
    ----------
    model : pymc.Model
        The user's model.
    options : dict
        Arguments of ``nutpie.compile_pymc_model`` about initial points and stored variables, with variables by name.
    freeze : bool
        Whether data and dimension lengths become constants.
    reparametrize : bool
        Whether effects and correlated parameters are reparametrized, which freezes data, too.
    """

    model: "pm.Model"
    options: dict[str, Any]
    freeze: bool
    reparametrize: bool

    @property
    def is_frozen(self) -> bool:
        """Whether the compiled model has constant data."""
        return self.freeze or self.reparametrize

    @property
    def frozen_data(self) -> frozenset[str]:
        """Names of the data that become constants."""
        return frozenset(x.name for x in self.model.data_vars if self.is_frozen)

    @property
    def key_options(self) -> dict[str, Any]:
        """Options that the key of the cache depends on."""
        return self.options | ({"reparametrize": True} if self.reparametrize else {})


def request_of(
    model: "pm.Model",
    *,
    freeze_model: bool | None = None,
    reparametrize: bool = False,
    jitter_rvs: set | None = None,
    default_initialization_strategy: str = "support_point",
    **options: Any,
) -> Request:
    """Return the request for arguments of :func:`compile_pymc_model`."""
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
        options | _variables_by_name(model, options),
        is_possible if freeze_model is None else freeze_model,
        reparametrize and is_possible,
    )


def compiled_record(request: Request) -> "CompiledRecord":
    """Load a model from the cache or compile the model; one thread at a time."""
    with compiling():
        # Imported with objects frozen: the imports themselves trigger collections of all of PyMC's objects.
        from pymc_fastlogp.sampling.pipeline import compile_record

        return compile_record(request)


def _compiled_by_nutpie(request: Request, **kwargs: Any) -> Any:
    """Call ``nutpie.compile_pymc_model``."""
    from nutpie import compile_pymc_model

    from pymc_fastlogp.compilation.model_source import jittered_variables

    model, options = request.model, request.options
    if request.freeze:
        model = frozen_copy(model)
    options["jitter_rvs"] = jittered_variables(model, options["jitter_rvs"])
    with compile_lock():
        return compile_pymc_model(model, freeze_model=False, **options, **kwargs)


def _variables_by_name(model: "pm.Model", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options about variables with names, which the frozen copy of the model shares."""
    names = {x: x.name for x in model.free_RVs}
    jittered = options["jitter_rvs"]
    return {
        "initial_points": _initial_points_by_name(model, options["initial_points"] or {}),
        # nutpie ignores variables that are not in the model, too.
        "jitter_rvs": None
        if jittered is None
        else sorted(names[x] for x in jittered if x in names),
    }


def _initial_points_by_name(model: "pm.Model", given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return initial values by the names of free variables.

    Keys of ``given`` may leave out the name of the model, or be unconstrained variables.

    Raises
    ------
    KeyError
        If the model has no such variable.
    ValueError
        If an initial value depends on other variables, which a frozen copy replaces.
    """
    from pymc.initial_point import convert_str_to_rv_dict
    from pytensor.graph.basic import Variable
    from pytensor.graph.traversal import ancestors

    free = {*model.free_RVs}
    values = convert_str_to_rv_dict(model, given)
    by_name = {rv.name: value for rv, value in values.items() if rv in free}
    for name, value in by_name.items():
        if isinstance(value, Variable) and not free.isdisjoint(ancestors([value])):
            raise ValueError(
                f"the initial value of {name} depends on other random variables: give numbers, or 'prior'."
            )
    return by_name
