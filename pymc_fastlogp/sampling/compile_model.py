"""``compile_pymc_model``: a model object for ``nutpie.sample``, compiled without Numba."""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pymc_fastlogp.models.compile_lock import compile_lock, compiling
from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.sampling.request import Request, request_of
from pymc_fastlogp.sampling.routing import why_nutpie_compiles, without_our_pipeline
from pymc_fastlogp.sampling.threads import n_helpers

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.compilation.loading import CompiledRecord
    from pymc_fastlogp.sampling.pipeline import CacheKey

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
    threads: int | None = None,
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
    threads : int, optional
        Threads per chain for long loops over rows; by default the environment variable ``PYMC_FASTLOGP_THREADS``, or else a sixth of the usable cores, for
        the six chains of ``nutpie.sample``. Results do not depend on the number. Helper threads serve as many chains as the cores allow, and end with the model.

    Returns
    -------
    CompiledModel
        A ``CompiledPyMCModel`` of nutpie with a method ``logp_dlogp(x)``; the result of nutpie's function if that was called.

    Raises
    ------
    TypeError
        If ``model`` is not a PyMC model, or is not given while no context is open.
    ValueError
        If the model has no free variables, or discrete ones; if a dimension has nutpie's name for unconstrained points; if
        ``gradient_backend`` is not PyTensor, the only one for Numba; or if ``threads`` is less than 1.

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
    return compile_request(
        request,
        n_helpers(threads),
        backend=backend,
        gradient_backend=gradient_backend,
        **kwargs,
    )


def compile_request(
    request: Request,
    helpers: int,
    *,
    backend: str = "numba",
    gradient_backend: str | None = None,
    **kwargs: Any,
) -> Any:
    """Compile a model as :func:`compile_pymc_model` does, with a number of helper threads for all chains."""
    reason = why_nutpie_compiles(request, backend, without_our_pipeline(kwargs))
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

    return nutpie_model_of(compiled, helpers)


def compiled_record(request: Request, key: "CacheKey | None" = None) -> "CompiledRecord":
    """Load a model from the cache or compile the model, whose key may be known; one thread at a time."""
    with compiling():
        # Imported with objects frozen: the imports themselves trigger collections of all of PyMC's objects.
        from pymc_fastlogp.sampling.pipeline import compile_record

        return compile_record(request, key)


def _compiled_by_nutpie(request: Request, **kwargs: Any) -> Any:
    """Call ``nutpie.compile_pymc_model``."""
    import nutpie

    from pymc_fastlogp.compilation.model_source import jittered_variables

    model, options = request.model, request.options
    if request.freeze:
        model = frozen_copy(model)
    options["jitter_rvs"] = jittered_variables(model, options["jitter_rvs"])
    with compile_lock():
        compile_by_nutpie = unpatched(nutpie.compile_pymc_model)
        return compile_by_nutpie(model, freeze_model=False, **options, **kwargs)
