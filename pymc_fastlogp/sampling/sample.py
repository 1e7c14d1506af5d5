"""``sample``: ``pm.sample``, for models that nutpie can sample, compiled by :func:`~pymc_fastlogp.compile_pymc_model`."""

import logging
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pymc_fastlogp._upstream.nutpie_library import draw, library, sample_by_nutpie
from pymc_fastlogp.compilation import coords
from pymc_fastlogp.models.table_rows import split_tables, without_tables
from pymc_fastlogp.models.validate import is_bambi_model, model_with_variables, not_a_model
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.sampling import draws, nuts_settings, zarr_store
from pymc_fastlogp.sampling.cluster.checks import check_environments, refuse
from pymc_fastlogp.sampling.cluster.logp import LogpOnCluster
from pymc_fastlogp.sampling.cluster.team import Team, with_draws
from pymc_fastlogp.sampling.compile_model import compile_pymc_model, compiled_record
from pymc_fastlogp.sampling.convergence import log_problems
from pymc_fastlogp.sampling.diagnosis import failed_start_explained
from pymc_fastlogp.sampling.progress import progress_of
from pymc_fastlogp.sampling.request import request_of
from pymc_fastlogp.sampling.routing import (
    ONLY_FOR_NUTPIE,
    is_sampled_by_pymc,
    labeled_shared_data,
    pymc_arguments,
    why_pymc_samples,
    without_our_pipeline,
)
from pymc_fastlogp.sampling.threads import n_helpers
from pymc_fastlogp.tables.progress import progress_shown

if TYPE_CHECKING:
    import pymc as pm
    from distributed import Client
    from pymc.initial_point import StartDict
    from pymc.progress_bar.progress import ProgressBarOptions
    from pymc.util import RandomState
    from rich.theme import Theme
    from xarray import DataTree

    from pymc_fastlogp._upstream.nutpie_library import SampledModel
    from pymc_fastlogp.compilation.loading import CompiledRecord
    from pymc_fastlogp.models.table_rows import Split
    from pymc_fastlogp.sampling.request import Request

logger = logging.getLogger("pymc_fastlogp")

# Settings of NUTS that the library accepts without nutpie's Python modules.
LIBRARY_SETTINGS = {"target_accept", "maxdepth"}


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
        Threads per chain for loops over many rows; by default the environment variable ``PYMC_FASTLOGP_THREADS``, or 1.
        Draws do not depend on the number. Ignored if ``pm.sample`` samples the model.
        With ``workers``, threads per worker; by default those of each worker of Dask.
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
    ImportError
        If ``store`` is given, and zarr or obstore is not installed.
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
    is_progress_shown = bool(progressbar) and not quiet
    if workers is not None:
        refuse(workers)
        n_helpers(threads)  # refuses
        unsupported = {x: given[x] for x in ("reparametrize", "store", "step")}
        unsupported["log_likelihood"] = (idata_kwargs or {}).get("log_likelihood")
        for name, value in unsupported.items():
            if value:
                raise ValueError(f"{name} can't be combined with workers: leave it out.")
        with progress_shown(is_progress_shown):
            split = split_tables(as_written)
            if split.likelihoods:
                arguments = _arguments(given | kwargs, split.model)
                return _sample_on_workers(as_written, split, arguments, workers, threads)
        warnings.warn(
            "workers is ignored: each likelihood over a table reduces to few rows, which this process evaluates.",
            UserWarning,
            stacklevel=2,
        )
    with progress_shown(is_progress_shown):
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
        arguments["nuts"] = _nuts_with_store(arguments, Path(store), reason)
    compiled = None
    has_gradient = True
    if reason is None:
        from pytensor.gradient import NullTypeGradError

        try:
            # Arguments may name variables of the model as it is written.
            compiled = _compiled(
                as_written, arguments, reparametrize=reparametrize, threads=threads
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


def why_not_by_nutpie(model: "pm.Model", arguments: Mapping[str, Any]) -> str | None:
    """Return the reason why ``pm.sample`` has to sample a model, None if nutpie samples.

    Raises
    ------
    TypeError, ValueError
        If nutpie does not accept the settings of NUTS, or a DataTree the dimensions.
    """
    if arguments["return_inferencedata"]:
        coords.refuse_slashes(model, arguments["var_names"])
    reason = why_pymc_samples(model, arguments)
    if reason is None:
        nuts_settings.refuse(arguments)
    return reason


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


def _nuts_with_store(
    arguments: Mapping[str, Any], store: Path, reason: str | None
) -> dict[str, Any]:
    """Return the settings of NUTS with a zarr store.

    Raises
    ------
    ValueError
        If ``pm.sample`` has to sample, for the reason given, or ``nuts`` has a store already.
    """
    if reason is not None:
        raise ValueError(f"store needs nutpie, but pm.sample has to sample: {reason}.")
    zarr_store.refuse(store)
    nuts = arguments.get("nuts", {})
    if "zarr_store" in nuts:
        raise ValueError("store and nuts['zarr_store'] are given: leave out one of them.")
    return nuts | {"zarr_store": store}


class _LibraryModel(NamedTuple):
    """A model that nutpie's library samples, without nutpie's Python modules."""

    library: ModuleType
    model: "SampledModel"
    transformed: list[str]


def _compiled(
    model: "pm.Model", arguments: dict[str, Any], *, reparametrize: bool, threads: int | None
) -> Any:
    """Return the model for nutpie's library if possible, else the model that ``nutpie.sample`` takes."""
    request = library_request(model, arguments, reparametrize=reparametrize)
    if request is None:
        options = _compile_options(arguments, reparametrize=reparametrize)
        return compile_pymc_model(model, threads=threads, **options)
    helpers = n_helpers(threads, min(_cores_and_chains(arguments)))
    return library_model(compiled_record(request), helpers)


def _compile_options(arguments: Mapping[str, Any], *, reparametrize: bool) -> dict[str, Any]:
    options = {"initial_points": arguments["initvals"], **(arguments["compile_kwargs"] or {})}
    return options | {"var_names": arguments["var_names"], "reparametrize": reparametrize}


def _sample_on_workers(
    as_written: "pm.Model",
    split: "Split",
    arguments: Mapping[str, Any],
    client: "Client",
    threads: int | None,
) -> "DataTree":
    """Sample a model whose likelihoods over tables are evaluated by workers.

    Parameters
    ----------
    as_written : pymc.Model
        The model, whose variables arguments may name.
    split : Split
        The model without these likelihoods, and the likelihoods.
    arguments : mapping
        Arguments of ``pm.sample``.
    client : distributed.Client
        The client.
    threads : int, optional
        Threads of an evaluation.
    """
    reason = why_not_by_nutpie(split.model, arguments)
    if reason is not None:
        raise ValueError(f"workers need nutpie, but pm.sample has to sample: {reason}.")
    request = library_request(as_written, arguments, reparametrize=False, reduced=split.model)
    compiled = request and library_model(compiled_record(request))
    if not isinstance(compiled, _LibraryModel):
        raise ValueError(
            f"workers need a known release of nutpie, a model that needs no code of Numba, and no settings of NUTS but {', '.join(sorted(LIBRARY_SETTINGS))}."
        )
    check_environments(client)
    names, _, of_names = compiled.model.shape_info
    shapes = dict(zip(names[: len(split.model.free_RVs)], of_names))
    with Team(client, split.likelihoods, shapes, threads) as team:
        logp = LogpOnCluster(compiled.model, team)
        try:
            idata = sample_compiled(split.model, compiled._replace(model=logp.model), arguments)
        except BaseException:
            if logp.error is None:
                raise
            raise logp.error from None
    if logp.error is not None:
        raise with_draws(logp.error, idata)
    return idata


def library_request(
    model: "pm.Model",
    arguments: Mapping[str, Any],
    *,
    reparametrize: bool,
    reduced: "pm.Model | None" = None,
) -> "Request | None":
    """Return the request to compile a model for nutpie's library, None if nutpie's modules are needed.

    Parameters
    ----------
    model : pymc.Model
        The model.
    arguments : mapping
        Arguments of ``sample``.
    reparametrize : bool
        Whether effects and correlated parameters are reparametrized.
    reduced : pymc.Model, optional
        The model without tables, if known.
    """
    if library() is None or not nuts_settings.by_name(arguments).keys() <= LIBRARY_SETTINGS:
        return None
    options = without_our_pipeline(_compile_options(arguments, reparametrize=reparametrize))
    if "pipeline_class" in options:
        return None
    request = request_of(model, reduced=reduced, **options)
    return None if labeled_shared_data(request) else request


def library_model(compiled: "CompiledRecord", n_helpers: int = 0) -> Any:
    """Return the model for nutpie's library, the model that ``nutpie.sample`` takes if Numba compiles a part.

    Parameters
    ----------
    compiled : CompiledRecord
        The compiled model.
    n_helpers : int
        Number of threads that help all chains.
    """
    from pymc_fastlogp.compilation.loading import sampled_model

    sampled, nutpies_library = sampled_model(compiled, n_helpers), library()
    if sampled is not None and nutpies_library is not None:
        return _LibraryModel(nutpies_library, sampled, compiled.record.reparameterized)
    from pymc_fastlogp.compilation.nutpie_model import nutpie_model_of

    return nutpie_model_of(compiled, n_helpers)


def sample_compiled(
    model: "pm.Model", compiled: Any, arguments: Mapping[str, Any], *, reparametrize: bool = False
) -> "DataTree":
    """Sample with the defaults, messages, checks and groups of ``pm.sample``.

    Parameters
    ----------
    model : pymc.Model
        The model.
    compiled : object
        The model for nutpie's library, see :func:`library_model`, or for ``nutpie.sample``.
    arguments : mapping
        Arguments of ``sample``.
    reparametrize : bool
        Whether the compiled model is reparametrized.
    """
    limit_blas, cores, chains = _cores(arguments)
    seed = _seed(arguments["random_seed"], chains)
    stored = dict(arguments["idata_kwargs"] or {})
    quiet = arguments["quiet"]
    _announce(model, arguments["draws"], quiet=quiet)
    options = {
        "draws": arguments["draws"],
        # nutpie needs at least one tuning draw.
        "tune": 1 if arguments["tune"] == 0 else arguments["tune"],
        "chains": chains,
        "cores": cores,
        "seed": seed,
        "save_warmup": not arguments["discard_tuned_samples"],
        "store_unconstrained": bool(stored.pop("include_transformed", False)),
        **nuts_settings.by_name(arguments),
    }
    progress = progress_of(arguments, chains)
    sample_by = _sample_by_library if isinstance(compiled, _LibraryModel) else _sample_by_nutpie
    with failed_start_explained(model, arguments), limit_blas(), progress:
        idata = sample_by(model, compiled, progress.update, options)
    idata = draws.common_length(idata)
    if arguments["compute_convergence_checks"] and not quiet:
        log_problems(idata, model, is_reparametrized=reparametrize)
    return _with_log_likelihood(idata, model, stored)


def _cores(arguments: Mapping[str, Any]) -> tuple[Any, int, int]:
    """Return the context manager that limits BLAS threads, the number of concurrent chains, and the number of chains."""
    from pymc_fastlogp._upstream.pymc_sample import (
        initialize_multiprocessing_context,
        setup_cores_blas_cores,
    )

    cores, chains = _cores_and_chains(arguments)
    context = initialize_multiprocessing_context(arguments["mp_ctx"], quiet=arguments["quiet"])
    limit_blas, cores, _ = setup_cores_blas_cores(arguments["blas_cores"], chains, cores, context)
    return limit_blas, cores, chains


def _cores_and_chains(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of chains that may run at the same time, and the number of chains."""
    from pymc_fastlogp._upstream.pymc_sample import cpu_count

    cores = min(4, cpu_count()) if arguments["cores"] is None else arguments["cores"]
    return cores, max(2, cores) if arguments["chains"] is None else arguments["chains"]


def _seed(random_seed: Any, chains: int) -> int:
    """Return the seed that ``pm.sample`` passes to nutpie."""
    from pymc.util import get_random_generator

    if isinstance(random_seed, int) and random_seed == -1:
        raise ValueError("random_seed is -1: give None for any seed, or a number from 0.")
    return int(get_random_generator(random_seed).spawn(chains)[0].integers(2**30))


def _announce(model: "pm.Model", draws: int, *, quiet: bool) -> None:
    if quiet:
        return
    log = logging.getLogger("pymc.sampling.mcmc")
    if draws < 100:
        log.warning("%d draws a chain are few for R-hat and effective sample sizes.", draws)
    log.info("NUTS[nutpie]: %s", model.free_RVs)


def _sample_by_nutpie(
    model: "pm.Model", compiled: Any, progress: Any, options: dict[str, Any]
) -> "DataTree":
    """Sample by ``nutpie.sample``, and add the data groups of PyMC."""
    given = compiled.coords or {}
    compiled = replace(compiled, _coords=coords.for_nutpie(given))
    store = options.get("zarr_store")
    if isinstance(store, Path):
        options["zarr_store"] = zarr_store.created(store)
    start = time.time()
    idata = sample_by_nutpie(compiled, progress_bar=False, progress_callback=progress, **options)
    seconds = time.time() - start
    if store is not None:
        wanted = {x: options[x] for x in ("save_warmup", "store_unconstrained")}
        idata = zarr_store.datatree(idata, compiled, settings=options, **wanted)
    draws.add_data(idata, model, seconds)
    draws.restore_coords(idata, model, given)
    return idata


def _sample_by_library(
    model: "pm.Model", compiled: _LibraryModel, progress: Any, options: dict[str, Any]
) -> "DataTree":
    """Sample by nutpie's library, which returns the same draws as ``nutpie.sample``."""
    wanted = {x: options.pop(x) for x in ("save_warmup", "store_unconstrained")}
    numbers = {f"num_{x}": options.pop(x) for x in ("draws", "tune", "chains")}
    # None selects nutpie's default.
    settings = {name: number for name, number in numbers.items() if number is not None}
    given = compiled.model.coords
    sampled = compiled.model._replace(coords=coords.for_nutpie(given))
    start = time.time()
    drawn = draw(
        compiled.library,
        sampled,
        seed=options.pop("seed"),
        cores=options.pop("cores"),
        settings=options | settings,
        store_unconstrained=wanted["store_unconstrained"],
        progress=progress,
        meanwhile=draws.import_arviz,
    )
    seconds = time.time() - start
    idata = draws.datatree(drawn, sampled, compiled.transformed, **wanted)
    draws.add_data(idata, model, seconds)
    draws.restore_coords(idata, model, given)
    return idata


def _with_log_likelihood(
    idata: "DataTree", model: "pm.Model", stored: dict[str, Any]
) -> "DataTree":
    """Add the log likelihood if ``idata_kwargs`` requests it, with the warnings of PyMC; ignore other entries."""
    import pymc as pm

    names = stored.pop("log_likelihood", False)
    if stored:
        ignored = f"`idata_kwargs` keys {sorted(stored)} are ignored by the sampler of nutpie."
        warnings.warn(ignored, UserWarning, stacklevel=4)
    if not names:
        return idata
    warnings.warn(
        "`log_likelihood` in `idata_kwargs` is deprecated: call `pm.compute_log_likelihood(idata)`.",
        FutureWarning,
        stacklevel=4,
    )
    return pm.compute_log_likelihood(
        idata, var_names=None if names is True else names, model=model, progressbar=False
    )


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
