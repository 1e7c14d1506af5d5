"""``sample``: ``pm.sample``, for models that nutpie can sample, compiled by :func:`~pymc_fastlogp.compile_pymc_model`."""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pymc_fastlogp.models.table_rows import without_tables
from pymc_fastlogp.models.validate import is_bambi_model, model_with_variables, not_a_model
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.sampling import nuts_settings
from pymc_fastlogp.sampling.by_nutpie import compiled_model, sample_compiled, why_not_by_nutpie
from pymc_fastlogp.sampling.routing import ONLY_FOR_NUTPIE, is_sampled_by_pymc, pymc_arguments
from pymc_fastlogp.tables.progress import progress_shown

if TYPE_CHECKING:
    import pymc as pm
    from distributed import Client
    from pymc.initial_point import StartDict
    from pymc.progress_bar.progress import ProgressBarOptions
    from pymc.util import RandomState
    from rich.theme import Theme
    from xarray import DataTree

logger = logging.getLogger("pymc_fastlogp")


def sample(
    draws: int = 1000,
    *,
    tune: int | None = None,
    chains: int | None = None,
    cores: int | None = None,
    random_seed: "RandomState" = None,
    progressbar: "bool | ProgressBarOptions" = True,
    progressbar_theme: "Theme | str | None" = None,
    quiet: bool = False,
    step: Any = None,
    var_names: Sequence[str] | None = None,
    nuts_sampler: Literal["pymc", "nutpie", "numpyro", "blackjax"] | None = None,
    initvals: "StartDict | Sequence[StartDict | None] | None" = None,
    init: str = "auto",
    jitter_max_retries: int = 10,
    n_init: int = 200_000,
    trace: Any = None,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    keep_warning_stat: bool = False,
    return_inferencedata: bool = True,
    idata_kwargs: dict[str, Any] | None = None,
    nuts_sampler_kwargs: dict[str, Any] | None = None,
    callback: Any = None,
    mp_ctx: Any = None,
    blas_cores: int | Literal["auto"] | None = "auto",
    model: "pm.Model | None" = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    reparametrize: bool = False,
    store: str | PathLike[str] | None = None,
    threads: int | None = None,
    workers: "Client | None" = None,
    **kwargs: Any,
) -> "DataTree":
    """Draw from the posterior: ``pm.sample``, with a compilation that is several times faster.

    A model whose free variables are all continuous is compiled by :func:`~pymc_fastlogp.compile_pymc_model` and sampled by nutpie.
    Its data are frozen, unless ``compile_kwargs={"freeze_model": False}``. Draws equal those of
    ``pm.sample(..., compile_kwargs=pymc_fastlogp.compile_kwargs())`` for equal seeds. Any other model, and any call with an argument that only PyMC's own
    samplers take, such as ``step`` or ``trace``, is passed to ``pm.sample``; a log line says why.

    Parameters
    ----------
    draws : int
        Draws of each chain after tuning.
    tune : int, optional
        Tuning draws of each chain; by default the number that the sampler chooses.
    chains : int, optional
        Number of chains; by default ``cores``, and at least 2.
    cores : int, optional
        Number of chains that run at the same time; by default the number of CPUs, and at most 4.
    random_seed : int, array_like of int or Generator, optional
        Seed of all chains.
    progressbar : bool or str
        Whether progress is shown, or one of the layouts of ``pm.sample``, such as ``"combined"``. If standard output is not a terminal or a notebook,
        progress is logged every ten seconds instead.
    progressbar_theme : rich.theme.Theme or str, optional
        Theme of the progress bar.
    quiet : bool
        Whether to log nothing, show no progress and skip the convergence checks.
    var_names : sequence of str, optional
        Names of the stored variables; by default all free variables and deterministics.
    nuts_sampler : {"pymc", "nutpie", "numpyro", "blackjax"}, optional
        Implementation of NUTS, nutpie by default. Others are passed to ``pm.sample``.
    initvals : dict, optional
        Initial values by the name of the variable. One dictionary for each chain is passed to ``pm.sample``.
    discard_tuned_samples : bool
        Whether tuning draws are left out of the result.
    compute_convergence_checks : bool
        Whether divergences, tree depth, R-hat and effective sample sizes are checked after sampling. Problems are logged.
    idata_kwargs : dict, optional
        ``{"include_transformed": True}`` stores unconstrained values, too.
    mp_ctx : multiprocessing.context.BaseContext or str, optional
        Multiprocessing context, by which ``pm.sample`` limits the threads of BLAS.
    blas_cores : int, "auto" or None
        Number of threads of BLAS for all chains together.
    model : pymc.Model, optional
        The model; by default the model of the open context.
    backend : str, optional
        Backend of PyTensor. All but ``"numba"`` are passed to ``pm.sample``.
    compile_kwargs : dict, optional
        Arguments of :func:`~pymc_fastlogp.compile_pymc_model`.
    step, init, jitter_max_retries, n_init, trace, keep_warning_stat, return_inferencedata, nuts_sampler_kwargs, callback
        Arguments of PyMC's own samplers, as in ``pm.sample``.
    reparametrize : bool
        Whether effects of groups are reparametrized from their data, see :func:`~pymc_fastlogp.reparametrize`; variables and their
        distributions stay the same. Correlated parameters, such as regression coefficients, are sampled in linear
        coordinates in which they are uncorrelated. A model that ``pm.sample`` samples is not reparametrized, with a warning.
    store : path, optional
        A new or empty folder, for draws that do not fit into memory. nutpie writes them there in zarr format, and the result reads
        them when they are used. ``nuts={"zarr_store": ...}`` accepts any store of ``nutpie.zarr_store``.
    threads : int, optional
        Threads per chain for long loops over rows; by default the environment variable ``PYMC_FASTLOGP_THREADS``, or else ``cores``, by default all cores
        that the process may use, divided by the number of chains that run at the same time. In a worker process of ``multiprocessing`` the default is 1.
        Draws do not depend on the number. Ignored if ``pm.sample`` samples the model. With ``workers``, threads per worker; by default those of each worker of Dask, and at most its cores.
    workers : distributed.Client, optional
        A client of Dask, whose workers hold the rows of likelihoods over a table that neither repeat nor reduce. The workers evaluate
        these likelihoods, and this process samples. Draws do not depend on the number of workers.
    **kwargs
        ``target_accept``, settings of NUTS as the dictionary ``nuts``, and keywords that ``pm.sample`` passes to its step methods.

    Returns
    -------
    DataTree
        The groups that ``pm.sample`` returns.

    Raises
    ------
    TypeError
        If there is no PyMC model, if the model is the first argument, if a keyword is misspelled, or if ``workers`` is no client of Dask.
    ValueError
        If the model has no free variables; if ``threads`` is less than 1; if ``step`` or a log likelihood is requested for a model of a table; if a dimension has nutpie's name for unconstrained points; if the name of a dimension has a slash, which
        a DataTree can't hold; if ``random_seed`` is -1; or if ``store`` is given and ``pm.sample`` has to sample. If ``workers`` has no workers, if the
        model reads no table, or if other arguments can't be combined with ``workers``.
    FileExistsError
        If ``store`` is not empty.
    pymc.exceptions.SamplingError
        If no initial point has a finite log density and gradient; the message names variables and rows.
    RuntimeError
        If all ``workers`` are gone. The attribute ``idata`` of the error has the draws so far.

    Warns
    -----
    UserWarning
        If ``reparametrize`` is True and ``pm.sample`` samples the model; or if ``workers`` is given and each likelihood over a table reduces.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     idata = pymc_fastlogp.sample(10, tune=100, chains=1, progressbar=False, quiet=True)
    >>> idata.posterior["x"].shape
    (1, 10)
    """
    given = dict(locals())
    import pymc as pm

    if isinstance(draws, pm.Model):
        raise TypeError("sample takes draws first, as pm.sample does; write sample(model=model)")
    if is_bambi_model(draws):
        raise not_a_model("sample", draws)
    refuse_misspelled(kwargs)
    as_written = model_with_variables("sample", model)
    with progress_shown(bool(progressbar) and not quiet):
        if workers is not None:
            from pymc_fastlogp.sampling.cluster.sampling import sample_on_workers

            arguments = _arguments(given | kwargs, as_written)
            unsupported = {"reparametrize": reparametrize}
            idata = sample_on_workers(workers, arguments, unsupported, store, threads)
            if idata is not None:
                return idata
            warnings.warn(
                "workers is ignored: each likelihood over a table reduces to few rows, which this process evaluates.",
                UserWarning,
                stacklevel=2,
            )
        model = without_tables(as_written).model
    if step is not None and model is not as_written:
        raise ValueError(
            "step can't be given for a model of a table, which is copied: leave it out."
        )
    if (idata_kwargs or {}).get("log_likelihood") and model is not as_written:
        raise ValueError(
            "log_likelihood is not available for the rows of a table: leave it out, and call pymc_fastlogp.compute_log_likelihood(idata)."
        )
    arguments = _arguments(given | kwargs, model)
    reason = why_not_by_nutpie(model, arguments)
    if store is not None:
        if reason is not None:
            raise ValueError(f"store needs nutpie, but pm.sample has to sample: {reason}.")
        arguments["nuts"] = nuts_settings.with_store(arguments, Path(store))
    compiled = None
    has_gradient = True
    if reason is None:
        from pytensor.gradient import NullTypeGradError

        try:
            # Arguments may name variables of the model as it is written.
            compiled = compiled_model(
                as_written,
                arguments,
                reduced=model,
                reparametrize=reparametrize,
                threads=threads,
            )
        except (NotImplementedError, NullTypeGradError) as error:
            reason = f"it has no gradient, {error}"
            has_gradient = False
    if compiled is not None:
        return sample_compiled(model, compiled, arguments, reparametrize=reparametrize)
    logger.info("pm.sample samples the model: %s", reason)
    if reparametrize:
        warnings.warn(
            f"reparametrize=True is ignored: pm.sample samples the model as it is written, because {reason}.",
            UserWarning,
            stacklevel=2,
        )
    options = _without_defaults(arguments)
    if not has_gradient or is_sampled_by_pymc(model, arguments):
        options = _without_nutpie_options(options)
    return unpatched(pm.sample)(**options)


def arguments_for(model: "pm.Model", options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of :func:`sample` but ``reparametrize`` and ``store``, with defaults for those that are not in ``options``."""
    return _arguments(_defaults() | dict(options), model)


def _arguments(given: Mapping[str, Any], model: "pm.Model") -> dict[str, Any]:
    left_out = ("kwargs", "reparametrize", "store", "threads", "workers")
    return {name: x for name, x in given.items() if name not in left_out} | {"model": model}


def refuse_misspelled(keywords: Iterable[str]) -> None:
    """Raise TypeError for an unknown keyword that resembles a known one; ``pm.sample`` validates all others."""
    try:
        from pymc_fastlogp._upstream.pymc_sample import step_keywords
    except ImportError:
        return
    known = {*signature(sample).parameters} | pymc_arguments() | step_keywords()
    for name in keywords:
        meant = None if name in known else nuts_settings.closest(name, known)
        if meant:
            raise TypeError(f'sample has no argument "{name}": did you mean "{meant}"?')


def _defaults() -> dict[str, Any]:
    return {name: x.default for name, x in signature(sample).parameters.items()}


def _without_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from their defaults: a release of PyMC may not have all of them."""
    defaults = _defaults()
    return {x: y for x, y in arguments.items() if x not in defaults or y is not defaults[x]}


def _without_nutpie_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``pm.sample`` without options of nutpie's compilation, which PyTensor rejects."""
    if not options.get("compile_kwargs"):
        return options
    remaining = {x: y for x, y in options["compile_kwargs"].items() if x not in ONLY_FOR_NUTPIE}
    return {**options, "compile_kwargs": remaining}
