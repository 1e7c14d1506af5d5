"""nutpie's sampler without nutpie's modules in Python.

``import nutpie`` imports Numba and all of ArviZ, with matplotlib, SciPy's statistics and, where it is installed, JAX. That takes longer than all else
of a model that is found on disk. What samples is one library in Rust, which needs none of them. Here it is loaded alone, under the name by which
nutpie imports it, so that there is one of it whichever comes first, and called as ``nutpie.sample`` calls it. The library is private to nutpie, so
this is done with the releases that were read; with others, nutpie itself samples.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

NAME = "nutpie._lib"
RELEASES = frozenset(("0.16.10", "0.16.11"))
# Statistics that nutpie leaves out where nobody asks for them.
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
# How often the progress is reported, in milliseconds, as in nutpie.
PROGRESS_RATE = 100

_lock = threading.Lock()


class SampledModel(NamedTuple):
    """Protocol of the model object that nutpie's library samples.

    Attributes
    ----------
    n_dim, n_expanded : int
        Lengths of the unconstrained point and of all values that are stored.
    logp, expand : int
        Addresses of nutpie's two callbacks.
    user_data : int
        Address of what they take as their last argument.
    alive : object
        What keeps the addresses valid.
    initial_point : callable
        From a seed to an unconstrained point, shape ``(n_dim,)``.
    shape_info : tuple of lists
        Names, slices and shapes of the stored variables.
    dims, coords : dict
        Dimensions of the stored variables, and coordinates.
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


class Trace(NamedTuple):
    """Protocol of the trace that nutpie's library returns.

    Attributes
    ----------
    draws, stats : list of RecordBatch
        Of Arrow, one a chain. Draws of the warm-up come first; the column ``tuning`` of ``stats`` says how many.
    settings : dict
        Of the sampler.
    version : str
        Of nutpie.
    """

    draws: list[Any]
    stats: list[Any]
    settings: dict[str, Any]
    version: str


def library() -> ModuleType | None:
    """Return nutpie's library, None if it is of another release or cannot be loaded alone."""
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
) -> Trace:
    """Sample by NUTS with nutpie's default adaptation; what came before a Ctrl-C is returned, as by ``nutpie.sample``.

    Parameters
    ----------
    library : module
        nutpie's.
    model : SampledModel
        The model.
    seed : int
        Of all chains.
    settings : mapping
        ``num_tune``, ``num_draws``, ``num_chains`` and other settings of the sampler by nutpie's names.
    store_unconstrained : bool
        Whether unconstrained points are stored, too.
    cores : int
        How many chains run at a time.
    progress : callable, optional
        Gets the progress of all chains now and then, in a thread of its own.
    meanwhile : callable
        What this thread does while others sample.
    """
    chosen = library.PyNutsSettings.Diag(seed)
    chosen.update(dict(settings))
    chosen.store_unconstrained = store_unconstrained
    sampler = library.PySampler.from_pymc(
        chosen,
        cores,
        _model(library, model),
        library.ProgressType.none(),
        progress,
        PROGRESS_RATE,
        library.PyStorage.arrow(),
    )
    try:
        meanwhile()
        sampler.wait(None)
    except KeyboardInterrupt:
        sampler.abort()
    except BaseException:
        sampler.abort()
        raise
    draws, stats = sampler.take_results().get_arrow_trace()
    return Trace(draws, stats, chosen.as_dict(), library.__version__)


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
        None,  # what adapts a transform, which only adaptation="flow" calls
    )
