"""Sampling by nutpie: compile a model for nutpie's library, or for ``nutpie.sample``, and return the groups of ``pm.sample``."""

import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from pymc_fastlogp._upstream.nutpie_library import draw, library, sample_by_nutpie
from pymc_fastlogp.compilation import coords
from pymc_fastlogp.sampling import draws, nuts_settings, zarr_store
from pymc_fastlogp.sampling.compile_model import compile_request, compiled_record
from pymc_fastlogp.sampling.convergence import log_problems
from pymc_fastlogp.sampling.diagnosis import failed_start_explained
from pymc_fastlogp.sampling.progress import progress_of
from pymc_fastlogp.sampling.request import request_of
from pymc_fastlogp.sampling.routing import (
    labeled_shared_data,
    why_pymc_samples,
    without_our_pipeline,
)
from pymc_fastlogp.sampling.threads import n_helpers

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree

    from pymc_fastlogp._upstream.nutpie_library import SampledModel
    from pymc_fastlogp.compilation.loading import CompiledRecord
    from pymc_fastlogp.sampling.request import Request

# Settings of NUTS that the library accepts without nutpie's Python modules.
LIBRARY_SETTINGS = {"target_accept", "maxdepth"}
# The setting for the folder of ``store``, or for a store of nutpie, which needs nutpie's modules.
STORE = "zarr_store"


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


class LibraryModel(NamedTuple):
    """A model that nutpie's library samples, without nutpie's Python modules."""

    library: ModuleType
    model: "SampledModel"
    transformed: list[str]


def compiled_model(
    model: "pm.Model",
    arguments: dict[str, Any],
    *,
    reduced: "pm.Model",
    reparametrize: bool,
    threads: int | None,
) -> Any:
    """Return the model for nutpie's library if possible, else the model that ``nutpie.sample`` takes; ``reduced`` is the model without tables."""
    helpers = n_helpers(threads, min(_cores_and_chains(arguments)), arguments["cores"])
    request, for_numba = _request(model, arguments, reparametrize=reparametrize, reduced=reduced)
    if _needs_nutpie(request, for_numba, arguments):
        return compile_request(request, helpers, **for_numba)
    return library_model(compiled_record(request), helpers)


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
    request, for_numba = _request(model, arguments, reparametrize=reparametrize, reduced=reduced)
    return None if _needs_nutpie(request, for_numba, arguments) else request


def _request(
    model: "pm.Model", arguments: Mapping[str, Any], **options: Any
) -> tuple["Request", dict[str, Any]]:
    """Return the request for arguments of ``sample``, and arguments for Numba."""
    given = {"initial_points": arguments["initvals"], **(arguments["compile_kwargs"] or {})}
    for_numba = {name: given.pop(name) for name in ("pipeline_class",) if name in given}
    return request_of(model, var_names=arguments["var_names"], **options, **given), for_numba


def _needs_nutpie(
    request: "Request", for_numba: Mapping[str, Any], arguments: Mapping[str, Any]
) -> bool:
    """Return whether a model cannot be sampled without nutpie's Python modules."""
    settings = nuts_settings.by_name(arguments)
    if isinstance(settings.get(STORE), Path):
        del settings[STORE]
    return bool(
        library() is None
        or settings.keys() - LIBRARY_SETTINGS
        or without_our_pipeline(for_numba)
        or labeled_shared_data(request)
    )


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
        return LibraryModel(nutpies_library, sampled, compiled.record.reparameterized)
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
    sample_by = _sample_by_library if isinstance(compiled, LibraryModel) else _sample_by_nutpie
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
    store = options.get(STORE)
    if isinstance(store, Path):
        from nutpie import zarr_store as stores

        options[STORE] = zarr_store.created(store, stores)
    start = time.time()
    idata = sample_by_nutpie(compiled, progress_bar=False, progress_callback=progress, **options)
    seconds = time.time() - start
    if store is not None:
        wanted = {x: options[x] for x in ("save_warmup", "store_unconstrained")}
        transformed = compiled.reparameterized_names or ()
        idata = zarr_store.datatree(idata, compiled, transformed, settings=options, **wanted)
    draws.add_data(idata, model, seconds)
    draws.restore_coords(idata, model, given)
    return idata


def _sample_by_library(
    model: "pm.Model", compiled: LibraryModel, progress: Any, options: dict[str, Any]
) -> "DataTree":
    """Sample by nutpie's library, which returns the same draws as ``nutpie.sample``."""
    wanted = {x: options.pop(x) for x in ("save_warmup", "store_unconstrained")}
    store = options.pop(STORE, None)
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
        store=store and zarr_store.created(store, compiled.library.store),
    )
    seconds = time.time() - start
    if drawn is None:
        stored = zarr_store.opened(store)
        idata = zarr_store.datatree(stored, sampled, compiled.transformed, settings={}, **wanted)
    else:
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
