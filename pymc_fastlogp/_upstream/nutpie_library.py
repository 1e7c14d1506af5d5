"""nutpie's sampler without nutpie's Python modules.

``import nutpie`` imports Numba and all of ArviZ, with matplotlib, SciPy's statistics and, if installed, JAX. That takes longer than all other steps
for a model from the cache. The sampler is one library in Rust, which needs none of them. Here the library is loaded alone, under the name by which
nutpie imports it, so that the process has one instance of it, and is called as ``nutpie.sample`` calls it. The library is private to nutpie, so
only known releases are used in this way; with other releases, nutpie itself samples.
"""

import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

NAME = "nutpie._lib"
RELEASES = frozenset(("0.16.10", "0.16.11"))
# Statistics that nutpie leaves out by default.
LEFT_OUT = (
    "gradient",
    "unconstrained_draw",
    "mass_matrix_inv",
    "mass_matrix_eigvals",
    "mass_matrix_stds",
    "divergence_start",
    "divergence_end",
    "divergence_momentum",
    "divergence_start_gradient",
    "transformed_position",
    "transformed_gradient",
    "transformation_mu",
)
# Adaptations of nutpie.sample, by the constructor of their settings.
ADAPTATIONS = {"diag": "Diag", "draw_diag": "Diag", "low_rank": "LowRank", "flow": "Flow"}
# Names of settings. The library cannot list them.
SETTINGS = frozenset(
    (
        *("num_tune", "num_draws", "num_chains", "maxdepth", "mindepth", "extra_doublings"),
        *("target_accept", "initial_step", "max_step_size", "max_energy_error", "check_turning"),
        *("step_size_jitter", "step_size_adapt_method", "step_size_adam_learning_rate"),
        *("store_divergences", "store_unconstrained", "store_gradient", "store_mass_matrix"),
        *("store_transformed", "mass_matrix_switch_freq", "early_window_switch_freq"),
        *("window_switch_freq", "mass_matrix_eigval_cutoff", "mass_matrix_gamma"),
        *("use_grad_based_mass_matrix", "train_on_orbit", "target_integration_time"),
    )
)
# Interval of progress reports in milliseconds, as in nutpie.
PROGRESS_RATE = 100
# Longest wait in seconds for the threads of a failed sampler.
LONGEST_WAIT = 2.0

_lock = threading.Lock()


class SampledModel(NamedTuple):
    """Protocol of the model object that nutpie's library samples.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all stored values.
    logp, expand : int
        Addresses of the two callbacks.
    user_data : int
        Address of their last argument.
    alive : object
        Owner of the memory at the addresses.
    initial_point : callable
        From a seed to an unconstrained point, shape ``(n_dim,)``.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    dims, coords : dict
        Dimensions of the stored variables, and coordinates.
    is_stopped : callable, optional
        Asked several times a second whether sampling ends with the draws so far.
    """

    n_dim: int
    n_expanded: int
    logp: int
    expand: int
    user_data: int
    alive: Any
    initial_point: Callable[[Any], np.ndarray]
    shape_info: tuple[list, list, list]
    dims: Mapping[str, Any]
    coords: Mapping[str, Any]
    is_stopped: Callable[[], bool] | None = None


class Trace(NamedTuple):
    """Protocol of the trace that nutpie's library returns.

    Attributes
    ----------
    draws, stats : list of RecordBatch
        Arrow record batches, one per chain. Tuning draws come first and are marked in the column ``tuning`` of ``stats``.
    settings : dict
        Settings of the sampler.
    version : str
        Version of nutpie.
    """

    draws: list[Any]
    stats: list[Any]
    settings: dict[str, Any]
    version: str


def library() -> ModuleType | None:
    """Return nutpie's library, None if the release is unknown or the library cannot be loaded alone."""
    with _lock:
        module = sys.modules.get(NAME) or _load()
    return module if module is not None and module.__version__ in RELEASES else None


def _load() -> ModuleType | None:
    package = find_spec("nutpie")
    spec = package and PathFinder.find_spec(NAME, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return None
    sys.modules[NAME] = module
    return module


def refusal(
    library: ModuleType, settings: Mapping[str, Any], *, sampler: str, adaptation: str
) -> Exception | None:
    """Return the error by which the library refuses settings: an AttributeError if it does not know a name, None if it accepts them.

    Parameters
    ----------
    library : module
        nutpie's library.
    settings : mapping
        Settings by name.
    sampler, adaptation : str
        Arguments of ``nutpie.sample``.
    """
    kinds = library.PyMclmcSettings if sampler == "mclmc" else library.PyNutsSettings
    try:
        getattr(kinds, ADAPTATIONS[adaptation])(0).update(dict(settings))
    except Exception as error:
        return error
    return None


def draw(
    library: ModuleType,
    model: SampledModel,
    *,
    seed: int,
    settings: Mapping[str, Any],
    store_unconstrained: bool,
    cores: int,
    progress: Callable[[list[Any]], None] | None,
    meanwhile: Callable[[], None],
    store: Any = None,
) -> Trace | None:
    """Sample by NUTS with nutpie's default adaptation; after a Ctrl-C the draws so far are returned, as by ``nutpie.sample``.

    Parameters
    ----------
    library : module
        nutpie's library.
    model : SampledModel
        The model.
    seed : int
        Seed of all chains.
    settings : mapping
        ``num_tune``, ``num_draws``, ``num_chains`` and other settings of the sampler by nutpie's names.
    store_unconstrained : bool
        Whether unconstrained points are stored.
    cores : int
        Number of chains that run at the same time.
    progress : callable, optional
        Called with the progress of all chains every ``PROGRESS_RATE`` milliseconds, in a separate thread.
    meanwhile : callable
        Called in this thread while other threads sample.
    store : object, optional
        A store of nutpie for the draws, instead of the result.
    """
    chosen = library.PyNutsSettings.Diag(seed)
    chosen.update(dict(settings))
    chosen.store_unconstrained = store_unconstrained
    storage = library.PyStorage.arrow() if store is None else library.PyStorage.zarr(store)

    def sample(owner: Any) -> Any:
        """Return the results of the library, with an owner of the memory of the model."""
        sampler = library.PySampler.from_pymc(
            chosen,
            cores,
            _model(library, model._replace(alive=owner)),
            library.ProgressType.none(),
            progress,
            PROGRESS_RATE,
            storage,
        )
        try:
            meanwhile()
            _wait(sampler, model.is_stopped)
        except KeyboardInterrupt:
            sampler.abort()
        return sampler.take_results()

    results = _with_threads_ended(sample, _Owner(model.alive))
    if store is not None:
        return None
    draws, stats = results.get_arrow_trace()
    return Trace(draws, stats, chosen.as_dict(), library.__version__)


def _wait(sampler: Any, is_stopped: Callable[[], bool] | None) -> None:
    """Wait for a sampler; raise KeyboardInterrupt if it is to stop."""
    if is_stopped is None:
        sampler.wait(None)
        return
    while not is_stopped():
        with suppress(TimeoutError):
            sampler.wait(PROGRESS_RATE / 1000)
            return
    raise KeyboardInterrupt


def sample_by_nutpie(model: Any, **options: Any) -> Any:
    """Return the result of ``nutpie.sample``. If ``nutpie.sample`` raises, its sampler is stopped and its threads end first.

    A Ctrl-C while nutpie makes or stops its sampler leaves the sampler running, and the traceback refers to it.

    Parameters
    ----------
    model : CompiledPyMCModel
        The model.
    **options
        Other arguments of ``nutpie.sample``.
    """
    import nutpie

    return _with_threads_ended(lambda x: nutpie.sample(x, **options), copy(model))


@dataclass(eq=False)
class _Owner:
    """Owner of the memory of a model, an object of its own for each sampler."""

    alive: Any


def _with_threads_ended[T](sample: Callable[[Any], T], owned: Any) -> T:
    """Call ``sample`` with an object that the sampler and its threads alone own. If ``sample`` raises, the threads end first.

    A sampler, or a thread of its chains, that outlives the interpreter crashes or blocks the process. A sampler without references stops.
    """
    of_threads = weakref.ref(owned)
    try:
        return sample(owned)
    except BaseException as error:
        cleared: BaseException | None = error
        while cleared is not None:
            traceback.clear_frames(cleared.__traceback__)
            cleared = cleared.__context__
        del owned
        end = time.monotonic() + LONGEST_WAIT
        while of_threads() is not None and time.monotonic() < end:
            # A Rust thread without the GIL only queues its references; any call of the library releases queued references.
            sys.modules[NAME].ProgressType.none()
            time.sleep(0.01)
        raise


def _model(library: ModuleType, model: SampledModel) -> Any:
    names, _, shapes = model.shape_info
    coords, dims = dict(model.coords), dict(model.dims)
    sizes = {name: len(values) for name, values in coords.items()}
    return library.PyMcModel(
        library.LogpFunc(model.logp, model.user_data, model.alive),
        library.ExpandFunc(
            model.n_dim, model.n_expanded, model.expand, model.user_data, model.alive
        ),
        library.PyVariable.new_variables(names, ["float64"] * len(names), shapes, sizes, dims),
        model.n_dim,
        sizes,
        coords,
        model.initial_point,
        None,  # function that adapts a transform, for adaptation="flow" only
    )
