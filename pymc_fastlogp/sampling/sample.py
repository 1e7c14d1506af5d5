"""``sample``: ``pm.sample``, for models that nutpie can sample, compiled by :func:`~pymc_fastlogp.compile_pymc_model`."""

import logging
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pymc_fastlogp._upstream.nutpie_library import draw, library
from pymc_fastlogp.compilation import coords
from pymc_fastlogp.models.validate import model_with_variables
from pymc_fastlogp.patching import unpatched
from pymc_fastlogp.registration import is_enabled
from pymc_fastlogp.sampling import draws, zarr_store
from pymc_fastlogp.sampling.compile_model import (
    compile_pymc_model,
    found,
    request_of,
    why_not_open,
    without_door,
)
from pymc_fastlogp.sampling.convergence import log_problems
from pymc_fastlogp.sampling.diagnosis import failed_start_explained
from pymc_fastlogp.sampling.progress import progress_of

if TYPE_CHECKING:
    import pymc as pm
    from pymc.initial_point import StartDict
    from pymc.progress_bar.progress import ProgressBarOptions
    from pymc.util import RandomState
    from rich.theme import Theme
    from xarray import DataTree

    from pymc_fastlogp._upstream.nutpie_library import SampledModel

logger = logging.getLogger("pymc_fastlogp")

# Arguments of pm.sample that only its own samplers take, and the values at which nutpie samples by default.
LEFT_ALONE = {
    "step": (None,),
    "init": ("auto",),
    "trace": (None,),
    "callback": (None,),
    "return_inferencedata": (True,),
    "nuts_sampler_kwargs": (None,),
    "backend": (None, "numba"),
}
# What compile_pymc_model takes from compile_kwargs.
COMPILE = {
    "jitter_rvs",
    "default_initialization_strategy",
    "freeze_model",
    "initial_points",
    "pipeline_class",
}
# Of these, what says how nutpie compiles, and nothing about draws.
HOW_NUTPIE_COMPILES = {"freeze_model", "pipeline_class"}
# Arguments with which ``pm.sample`` never chooses nutpie itself.
OF_OWN_SAMPLERS = ("step", "init", "trace", "callback", "return_inferencedata")
# Settings of NUTS with which nutpie's library samples, without nutpie's modules in Python.
LIBRARY_TAKES = {"target_accept", "maxdepth"}
# What PyMC gives to ``nutpie.sample`` besides ``nuts``, which must not have it.
TAKEN = {
    *("compiled_model", "draws", "tune", "chains", "cores", "seed"),
    *("save_warmup", "store_unconstrained", "progress_bar", "progress_callback"),
}
# Similarity, by difflib, from which an unknown keyword counts as a misspelled one.
CLOSE = 0.7
# What PyMC takes out of ``nuts`` for the compilation.
FOR_COMPILATION = {"backend", "gradient_backend"}


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
    **kwargs: Any,
) -> "DataTree":
    """Draw from the posterior: ``pm.sample``, with a compilation that is several times faster.

    A model whose free variables are all continuous is compiled by :func:`~pymc_fastlogp.compile_pymc_model` and sampled by nutpie;
    its data are frozen for that, unless ``compile_kwargs={"freeze_model": False}``. Draws are those of
    ``pm.sample(..., compile_kwargs=pymc_fastlogp.compile_kwargs())`` for equal seeds. Any other model, and arguments that only PyMC's own samplers
    take, as ``step`` or ``trace``, go to ``pm.sample``; a line of the log says why.

    Parameters
    ----------
    draws : int
        Draws of each chain after tuning.
    tune : int, optional
        Draws of each chain for tuning; by default the number that the sampler chooses.
    chains : int, optional
        Number of chains; by default ``cores``, and at least 2.
    cores : int, optional
        Number of chains that run at the same time; by default the number of CPUs, and at most 4.
    random_seed : int, array_like of int or Generator, optional
        Seed of all chains.
    progressbar : bool or str
        Whether progress is shown, or one of the layouts of ``pm.sample``, such as ``"combined"``. If standard output is not a terminal or a notebook,
        the log gets a line every ten seconds instead.
    progressbar_theme : rich.theme.Theme or str, optional
        Theme of the progress bar.
    quiet : bool
        Whether to log nothing, show no progress and skip the convergence checks.
    var_names : sequence of str, optional
        Names of the variables that are stored; by default all free variables and deterministics.
    nuts_sampler : {"pymc", "nutpie", "numpyro", "blackjax"}, optional
        Implementation of NUTS. All but nutpie, which is the default, are left to ``pm.sample``.
    initvals : dict, optional
        Initial values by the name of the variable. One dictionary for each chain is left to ``pm.sample``.
    discard_tuned_samples : bool
        Whether draws of the tuning are left out of the result.
    compute_convergence_checks : bool
        Whether divergences, tree depth, R-hat and effective sample sizes are checked after sampling. Problems are logged.
    idata_kwargs : dict, optional
        ``{"include_transformed": True}`` stores unconstrained values, too.
    mp_ctx : multiprocessing.context.BaseContext or str, optional
        Multiprocessing context, by which ``pm.sample`` limits the threads of BLAS.
    blas_cores : int, "auto" or None
        Number of threads of BLAS for all chains together.
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    backend : str, optional
        Backend of PyTensor. All but ``"numba"`` are left to ``pm.sample``.
    compile_kwargs : dict, optional
        Arguments of :func:`~pymc_fastlogp.compile_pymc_model`.
    step, init, jitter_max_retries, n_init, trace, keep_warning_stat, return_inferencedata, nuts_sampler_kwargs, callback
        Arguments of PyMC's own samplers, as in ``pm.sample``.
    reparametrize : bool
        Whether effects of groups are sampled where their data want them, as :func:`~pymc_fastlogp.reparametrize` has it; variables, and what they
        are distributed by, are the same. Parameters that are correlated with each other, as coefficients of a regression, are sampled in linear
        coordinates in which they are not. What goes to ``pm.sample`` is sampled as it is written, with a warning.
    store : path, optional
        A folder that is new or empty, for draws that memory does not hold: nutpie writes them there in the format zarr, and the result reads them
        when they are used. ``nuts={"zarr_store": ...}`` does so with any store of ``nutpie.zarr_store``. Needs the packages zarr and obstore.
    **kwargs
        ``target_accept``, settings of NUTS as the dictionary ``nuts``, and keywords that ``pm.sample`` hands to its step methods.

    Returns
    -------
    DataTree
        With the groups that ``pm.sample`` returns.

    Raises
    ------
    TypeError
        If there is no PyMC model, if the model is the first argument, or if a keyword is misspelled.
    ValueError
        If the model has no free variables; if one of its dimensions is called as nutpie calls its own; if the name of a dimension has a slash, which
        a DataTree can't hold; if ``random_seed`` is -1; or if ``store`` is given and ``pm.sample`` has to sample.
    FileExistsError
        If there is something in ``store``.
    ImportError
        If ``store`` is given, and zarr or obstore is not installed.
    pymc.exceptions.SamplingError
        If no initial point has a finite log density and gradient; the message names variables and rows.

    Warns
    -----
    UserWarning
        If ``reparametrize`` is True and ``pm.sample`` samples the model.

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
    _refuse_misspelled(kwargs)
    model = model_with_variables("sample", model)
    arguments = {**given, **kwargs, "model": model}
    del arguments["kwargs"], arguments["reparametrize"], arguments["store"]
    if return_inferencedata:
        coords.refuse_slashes(model, var_names)
    reason = _why_pymc(model, arguments)
    if store is not None:
        if reason is not None:
            raise ValueError(f"store needs nutpie, but pm.sample has to sample: {reason}.")
        zarr_store.refuse(Path(store))
        nuts = arguments.get("nuts", {})
        if "zarr_store" in nuts:
            raise ValueError("store and nuts['zarr_store'] are given: leave out one of them.")
        arguments["nuts"] = nuts | {"zarr_store": Path(store)}
    compiled = None
    has_gradient = True
    if reason is None:
        from pytensor.gradient import NullTypeGradError

        try:
            compiled = _compiled(model, arguments, reparametrize=reparametrize)
        except (NotImplementedError, NullTypeGradError) as error:
            reason = f"it has no gradient, {error}"
            has_gradient = False
    if compiled is not None:
        return _sample(model, compiled, arguments, reparametrize=reparametrize)
    logger.info("pm.sample samples the model: %s", reason)
    if reparametrize:
        warnings.warn(
            f"reparametrize=True is ignored: pm.sample samples the model as it is written, because {reason}.",
            UserWarning,
            stacklevel=2,
        )
    options = _without_defaults(arguments)
    if not has_gradient or _by_own_samplers(model, arguments):
        options = _without_nutpies(options)
    return unpatched(pm.sample)(**options)


def _refuse_misspelled(keywords: Iterable[str]) -> None:
    """Raise TypeError for a keyword that is unknown and close to a known one; ``pm.sample`` judges all others."""
    try:
        from pymc_fastlogp._upstream.pymc_sample import step_keywords
    except ImportError:
        return
    known = {*signature(sample).parameters} | _names() | step_keywords()
    for name in keywords:
        close = None if name in known else get_close_matches(name, sorted(known), 1, CLOSE)
        if close:
            raise TypeError(f'sample has no argument "{name}": did you mean "{close[0]}"?')


def _without_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from their defaults, which every release of PyMC has to know."""
    defaults = {name: x.default for name, x in signature(sample).parameters.items()}
    return {x: y for x, y in arguments.items() if x not in defaults or y is not defaults[x]}


def _why_pymc(model: "pm.Model", arguments: Mapping[str, Any]) -> str | None:
    """Return why PyMC has to sample, None if it does not."""
    if not is_enabled():
        return "the plugin is switched off"
    if model.discrete_value_vars:
        return f"{model.discrete_value_vars[0].name} is discrete"
    if arguments["nuts_sampler"] not in (None, "nutpie"):
        return f"nuts_sampler is {arguments['nuts_sampler']}"
    for name, values in LEFT_ALONE.items():
        if arguments[name] not in values:
            return f"{name} is given"
    if arguments["initvals"] is not None and not isinstance(arguments["initvals"], dict):
        return "initvals is not one dictionary"
    unknown = {*(arguments["compile_kwargs"] or ())} - COMPILE
    unknown |= arguments.keys() - _names() - {"nuts", "target_accept"}
    if unknown:
        return f"{min(unknown)} is given"
    nuts = arguments.get("nuts", {})
    given = TAKEN | ({"target_accept"} & arguments.keys())
    if given & nuts.keys():
        return f"{min(given & nuts.keys())} is given twice"
    if FOR_COMPILATION & nuts.keys():
        return f"{min(FOR_COMPILATION & nuts.keys())} is given"
    try:
        from pymc_fastlogp._upstream.pymc_sample import other_step_method
    except ImportError as error:
        return str(error)
    if not find_spec("nutpie"):
        return "nutpie is not installed"
    return other_step_method(model)


def _by_own_samplers(model: "pm.Model", arguments: Mapping[str, Any]) -> bool:
    """Return whether PyMC has to sample by its own samplers, which hand ``compile_kwargs`` to PyTensor, and not by nutpie."""
    if arguments["nuts_sampler"] is not None:
        return bool(arguments["nuts_sampler"] == "pymc")
    if model.discrete_value_vars or not find_spec("nutpie"):
        return True
    if not isinstance(arguments["initvals"], dict | None):
        return True
    if any(arguments[name] not in LEFT_ALONE[name] for name in OF_OWN_SAMPLERS):
        return True
    try:
        from pymc_fastlogp._upstream.pymc_sample import other_step_method
    except ImportError:
        return False
    return other_step_method(model) is not None


def _without_nutpies(options: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``pm.sample`` without what says how nutpie compiles, which PyTensor would refuse."""
    if not options.get("compile_kwargs"):
        return options
    kept = {x: y for x, y in options["compile_kwargs"].items() if x not in HOW_NUTPIE_COMPILES}
    return {**options, "compile_kwargs": kept}


def _names() -> set[str]:
    import pymc as pm

    return set(signature(pm.sample).parameters)


class _ByLibrary(NamedTuple):
    """A model, and what samples it without nutpie's modules in Python."""

    library: ModuleType
    model: "SampledModel"
    transformed: list[str]


def _compiled(model: "pm.Model", arguments: dict[str, Any], *, reparametrize: bool) -> Any:
    """Return a model for nutpie's library, or else what ``nutpie.sample`` takes."""
    options = {"initial_points": arguments["initvals"], **(arguments["compile_kwargs"] or {})}
    options |= {"var_names": arguments["var_names"], "reparametrize": reparametrize}
    nutpies_library = library()
    if nutpies_library is None or not _nuts_arguments(arguments).keys() <= LIBRARY_TAKES:
        return compile_pymc_model(model, **options)
    options = dict(without_door(options))
    if "pipeline_class" in options:
        return compile_pymc_model(model, **options)
    request = request_of(model, **options)
    if why_not_open(request):
        return compile_pymc_model(model, **options)
    compiled = found(request)
    from pymc_fastlogp.sampling.pipeline import for_library, for_nutpie

    sampled = for_library(compiled)
    if sampled is None:
        return for_nutpie(compiled)
    return _ByLibrary(nutpies_library, sampled, compiled.record.reparameterized)


def _sample(
    model: "pm.Model", compiled: Any, arguments: dict[str, Any], *, reparametrize: bool
) -> "DataTree":
    """Sample as PyMC does it with nutpie."""
    limit_blas, cores, chains = _cores(arguments)
    seed = _seed(arguments["random_seed"], chains)
    stored = dict(arguments["idata_kwargs"] or {})
    quiet = arguments["quiet"]
    _announce(model, arguments["draws"], quiet=quiet)
    options = {
        "draws": arguments["draws"],
        # nutpie needs one step.
        "tune": 1 if arguments["tune"] == 0 else arguments["tune"],
        "chains": chains,
        "cores": cores,
        "seed": seed,
        "save_warmup": not arguments["discard_tuned_samples"],
        "store_unconstrained": bool(stored.pop("include_transformed", False)),
        **_nuts_arguments(arguments),
    }
    progress = progress_of(arguments, chains)
    by = _by_library if isinstance(compiled, _ByLibrary) else _by_nutpie
    with failed_start_explained(model, arguments), limit_blas(), progress:
        idata = by(model, compiled, progress.update, options)
    idata = draws.common_length(idata)
    if arguments["compute_convergence_checks"] and not quiet:
        log_problems(idata, model, is_reparametrized=reparametrize)
    return _with_log_likelihood(idata, model, stored)


def _by_nutpie(
    model: "pm.Model", compiled: Any, progress: Any, options: dict[str, Any]
) -> "DataTree":
    """Sample, and add what PyMC adds."""
    import nutpie

    given = compiled.coords or {}
    compiled = replace(compiled, _coords=coords.for_nutpie(given))
    store = options.get("zarr_store")
    if isinstance(store, Path):
        options["zarr_store"] = zarr_store.created(store)
    start = time.time()
    idata = nutpie.sample(compiled, progress_bar=False, progress_callback=progress, **options)
    seconds = time.time() - start
    if store is not None:
        wanted = {x: options[x] for x in ("save_warmup", "store_unconstrained")}
        idata = zarr_store.datatree(idata, compiled, settings=options, **wanted)
    draws.add_data(idata, model, seconds)
    draws.restore_coords(idata, model, given)
    return idata


def _by_library(
    model: "pm.Model", compiled: _ByLibrary, progress: Any, options: dict[str, Any]
) -> "DataTree":
    """Sample by nutpie's library, which gives the same draws."""
    wanted = {x: options.pop(x) for x in ("save_warmup", "store_unconstrained")}
    numbers = {f"num_{x}": options.pop(x) for x in ("draws", "tune", "chains")}
    # None stands for nutpie's default.
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
        meanwhile=draws.import_what_is_needed,
    )
    seconds = time.time() - start
    idata = draws.datatree(drawn, sampled, compiled.transformed, **wanted)
    draws.add_data(idata, model, seconds)
    draws.restore_coords(idata, model, given)
    return idata


def _cores(arguments: Mapping[str, Any]) -> tuple[Any, int, int]:
    """Return what limits the threads of BLAS, how many chains run at a time, and how many there are."""
    from pymc_fastlogp._upstream.pymc_sample import (
        cpu_count,
        initialize_multiprocessing_context,
        setup_cores_blas_cores,
    )

    cores = min(4, cpu_count()) if arguments["cores"] is None else arguments["cores"]
    chains = max(2, cores) if arguments["chains"] is None else arguments["chains"]
    context = initialize_multiprocessing_context(arguments["mp_ctx"], quiet=arguments["quiet"])
    limit_blas, cores, _ = setup_cores_blas_cores(arguments["blas_cores"], chains, cores, context)
    return limit_blas, cores, chains


def _seed(random_seed: Any, chains: int) -> int:
    """Return the seed that ``pm.sample`` gives to nutpie."""
    from pymc.util import get_random_generator

    if isinstance(random_seed, int) and random_seed == -1:
        raise ValueError("random_seed is -1: give None for any seed, or a number from 0.")
    return int(get_random_generator(random_seed).spawn(chains)[0].integers(2**30))


def _nuts_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    nuts = dict(arguments.get("nuts", {}))
    if "target_accept" in arguments:
        nuts["target_accept"] = arguments["target_accept"]
    if "max_treedepth" in nuts:
        nuts["maxdepth"] = nuts.pop("max_treedepth")
    return nuts


def _announce(model: "pm.Model", draws: int, *, quiet: bool) -> None:
    if quiet:
        return
    log = logging.getLogger("pymc.sampling.mcmc")
    if draws < 100:
        log.warning("%d draws a chain are few for R-hat and effective sample sizes.", draws)
    log.info("NUTS[nutpie]: %s", model.free_RVs)


def _with_log_likelihood(
    idata: "DataTree", model: "pm.Model", stored: dict[str, Any]
) -> "DataTree":
    """Add the log likelihood if ``idata_kwargs`` asks for it; other entries are PyMC's alone. Its warnings are those of PyMC."""
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
