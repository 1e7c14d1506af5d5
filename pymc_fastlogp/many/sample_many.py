"""``sample_many``: from arguments to tasks, and from outcomes to fits."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, takewhile
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_fastlogp.many import store as fits_on_disk
from pymc_fastlogp.many.fit import Fit, Outcome
from pymc_fastlogp.many.progress import Progress, progress_of

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.many.task import Job, Keep, Task

# Arguments of `sample` that have another meaning for many fits, with the reason.
REFUSED = {
    "cores": "each worker runs one chain at a time",
    "threads": "each worker runs on one core",
    "workers": "fits run on the executor",
    "model": "models are the first argument",
    "quiet": "problems are part of each fit",
    "callback": "fits run in other processes",
    "trace": "each fit has its own draws",
    "step": "a step method belongs to one model",
    "return_inferencedata": "fits are DataTrees",
}
# Arguments of `sample` in a worker.
IN_WORKER: dict[str, Any] = {"cores": 1, "threads": 1, "quiet": True, "progressbar": False}


def sample_many(
    models: "pm.Model | Callable[[Any], pm.Model] | Iterable[pm.Model] | Mapping[Any, pm.Model]",
    data_sets: Iterable[Any] | Mapping[Any, Any] | None = None,
    *,
    executor: Executor | None = None,
    draws: int = 1000,
    chains: int = 4,
    keep: "Keep" = None,
    store: str | PathLike[str] | None = None,
    random_seed: int | Sequence[int] | None = None,
    in_order: bool = False,
    progressbar: bool = True,
    **kwargs: Any,
) -> Iterator[Fit]:
    """Sample one model with many data sets, or many models, on all cores or on a cluster.

    Data of equal shapes share machine code, which is compiled once, stored on disk and kept in the memory of each worker. Data that no data set replaces are
    constants of the compiled model. Data in ``pm.Data`` that data sets replace stay shared, unless ``compile_kwargs={"freeze_model": True}``.

    Parameters
    ----------
    models : pymc.Model, callable, or iterable or mapping of pymc.Model
        One model, a function from a data set to its model, which runs in the worker, or models.
    data_sets : iterable or mapping, optional
        Data sets: for one model dictionaries of new values by the names of data and coordinates, for a function its argument. Not for several models.
    executor : concurrent.futures.Executor, optional
        Where fits run, such as ``client.get_executor()`` of Dask; by default as many processes as usable cores. Each fit runs its chains one after the other.
    draws, chains : int
        Draws of each chain, and number of chains.
    keep : callable or sequence of str, optional
        What is kept of each fit: the result of a function of its DataTree, which runs in the worker, or a Dataset of these variables. By default the DataTree.
    store : path, optional
        A folder that all workers see. Values are written there as netCDF files, or in zarr format if the name ends in ``.zarr``, and read when they are used.
        A second call with the same arguments and folder runs only the fits that are missing or failed.
    random_seed : int or sequence of int, optional
        Seed of all fits. The seed of a fit depends on ``random_seed`` and the key of its data set alone.
    in_order : bool
        Whether fits come in the order of the data sets, instead of the order of completion.
    progressbar : bool
        Whether rate, failures and remaining time are shown.
    **kwargs
        Other arguments of :func:`~pymc_fastlogp.sample`, such as ``tune``, ``target_accept``, ``var_names``, ``reparametrize`` and ``compile_kwargs``.

    Yields
    ------
    Fit
        The result of a data set. A fit that fails has an error, and the others go on.

    Raises
    ------
    TypeError
        If an argument has no meaning here, or data sets are given for several models.
    ValueError
        If data sets have a name that the model has not, if two keys are equal as text, or if ``store`` has a fit of other data or settings.
    ImportError
        If a package for the format of ``store`` is not installed.
    RuntimeError
        If the executor breaks before all fits were run.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model() as model:
    ...     y = pm.Data("seen", [0.0, 1.0])
    ...     mu = pm.Normal("mu")
    ...     obs = pm.Normal("y", mu, observed=y)
    >>> data_sets = {"north": {"seen": [1.0, 2.0]}, "south": {"seen": [0.0, 0.5]}}
    >>> fits = pymc_fastlogp.sample_many(model, data_sets, draws=10, keep=["mu"], progressbar=False)
    >>> sorted(fit.key for fit in fits)
    ['north', 'south']
    """
    options = _options(kwargs, draws=draws, chains=chains)
    items, n_items, job = _items_and_job(models, data_sets, keep, options)
    folder = None if store is None else Path(store)
    if folder is not None:
        fits_on_disk.refuse(folder)
    settings = {name: x for name, x in options.items() if isinstance(x, int | float | str | None)}
    tasks = _Tasks(items, job, np.random.SeedSequence(random_seed).entropy, folder, settings)
    fits = _fits(tasks, executor, in_order=in_order)
    return _shown(fits, progress_of(n_items, is_shown=progressbar))


def _options(kwargs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return the arguments of ``sample``."""
    from pymc_fastlogp.sampling.sample import refuse_misspelled

    for name in kwargs:
        if name in REFUSED:
            raise TypeError(f"sample_many takes no {name}: {REFUSED[name]}.")
    refuse_misspelled(kwargs)
    compile_kwargs = {"freeze_model": False} | (kwargs.get("compile_kwargs") or {})
    return options | dict(kwargs) | IN_WORKER | {"compile_kwargs": compile_kwargs}


def _items_and_job(
    models: Any, data_sets: Any, keep: "Keep", options: dict[str, Any]
) -> tuple[Iterator[tuple[Any, Any]], int | None, "Job"]:
    """Return keys and data sets, their number if known, and the job."""
    import pymc as pm

    from pymc_fastlogp.many.task import Job

    is_one = isinstance(models, pm.Model)
    if not is_one and not callable(models):
        if data_sets is not None:
            raise TypeError("data_sets are for one model, or for a function that builds models.")
        # The model itself is the data set.
        models, data_sets = _itself, models
    if data_sets is None:
        raise TypeError("data_sets is missing: give a data set for each fit.")
    pairs = data_sets.items() if isinstance(data_sets, Mapping) else enumerate(data_sets)
    n_items = len(data_sets) if isinstance(data_sets, Sized) else None
    items = iter(pairs)
    if not is_one:
        return items, n_items, Job(models, frozenset(), keep, options)
    first = next(items, None)
    if first is None:
        return iter(()), 0, Job(models, frozenset(), keep, options)
    names = _names(models, first[1])
    is_shared = options["compile_kwargs"]["freeze_model"] is False
    model = _others_frozen(models, names) if is_shared else models
    return chain([first], items), n_items, Job(model, names, keep, options)


def _itself(model: "pm.Model") -> "pm.Model":
    return model


def _names(model: "pm.Model", data: Any) -> frozenset[str]:
    """Return the names in the first data set, which are data or dimensions of the model."""
    if not isinstance(data, Mapping):
        raise TypeError(
            f"a data set is {type(data).__name__}: give dictionaries of new values by name."
        )
    known = {*(x.name for x in model.data_vars), *model.coords}
    unknown = sorted(data.keys() - known)
    if unknown:
        raise ValueError(
            f"the model has no data or dimension {unknown[0]!r}: give pm.Data for what data sets replace."
        )
    return frozenset(data)


def _others_frozen(model: "pm.Model", names: frozenset[str]) -> "pm.Model":
    """Return a copy of a model in which the data and lengths that no data set replaces are constants, if PyMC can copy the model."""
    from pymc_fastlogp.models.freeze import can_be_frozen, copy_with_frozen

    if not can_be_frozen(model):
        return model
    data = [x.name for x in model.data_vars if x.name not in names]
    changing = {dim for name in names for dim in model.named_vars_to_dims.get(name, ())} | names
    return copy_with_frozen(model, data=data, dims=[x for x in model.coords if x not in changing])


@dataclass(frozen=True)
class _Tasks:
    """Tasks of all data sets.

    Attributes
    ----------
    items : iterator of tuple
        Keys and data sets.
    job : Job
        Common part of all tasks.
    entropy : int or sequence of int
        Seed of all fits.
    folder : Path, optional
        The store.
    settings : dict
        Options that a store must agree with.
    """

    items: Iterator[tuple[Any, Any]]
    job: "Job"
    entropy: Any
    folder: Path | None
    settings: dict[str, Any]

    def __iter__(self) -> "Iterator[Task | Fit]":
        """Yield a task for each data set, or its fit if the store has it.

        Raises
        ------
        ValueError
            If two keys are equal as text.
        """
        import cloudpickle

        from pymc_fastlogp.many.task import Task

        job, seen = cloudpickle.dumps(self.job), set()
        for key, data in self.items:
            if str(key) in seen:
                raise ValueError(f"two data sets have the key {str(key)!r}: give others.")
            seen.add(str(key))
            place = None
            if self.folder is not None:
                place = fits_on_disk.place_of(self.folder, key, data, self.settings)
                stored = fits_on_disk.read(place, key)
                if stored is not None:
                    yield stored
                    continue
            yield Task(key, job, cloudpickle.dumps(data), self._seed(key), place)

    def _seed(self, key: Any) -> int:
        words = np.frombuffer(sha256(str(key).encode()).digest(), np.uint32)
        child = np.random.SeedSequence(self.entropy, spawn_key=tuple(words.tolist()))
        return int(child.generate_state(1)[0])


def _fits(tasks: _Tasks, executor: Executor | None, *, in_order: bool) -> Iterator[Fit]:
    """Yield fits of the store and of the executor."""
    from pymc_fastlogp.many.pools import outcomes

    order: deque[Any] = deque()
    ready: dict[Any, Fit] = {}

    def to_run() -> "Iterator[Task]":
        for item in tasks:
            order.append(item.key)
            if isinstance(item, Fit):
                ready[item.key] = item
            else:
                yield item

    def next_fits() -> Iterator[Fit]:
        keys = [*takewhile(ready.__contains__, order)] if in_order else [*ready]
        for key in keys:
            order.remove(key)
            yield ready.pop(key)

    for task, outcome in outcomes(to_run(), executor):
        ready[task.key] = _fit(task, outcome)
        yield from next_fits()
    yield from next_fits()


def _fit(task: "Task", outcome: Outcome) -> Fit:
    error, value = outcome.error, outcome.value
    if task.place is not None and error is None:
        stored = fits_on_disk.read(task.place, task.key)
        if stored is not None:
            return replace(stored, was_stored=False)
        error = FileNotFoundError(
            f"the worker has written {task.place.path}, which is not there: store is a folder that all workers see."
        )
    return Fit(
        task.key,
        error,
        outcome.problems,
        outcome.n_divergences,
        task.seed,
        outcome.seconds,
        _read=lambda: value,
    )


def _shown(
    fits: Iterator[Fit], progress: "AbstractContextManager[Progress | None]"
) -> Iterator[Fit]:
    """Yield the fits and show the progress."""
    with progress as shown:
        for fit in fits:
            if shown is not None:
                shown.add(fit)
            yield fit
