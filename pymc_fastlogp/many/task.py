"""Tasks of ``sample_many``, and their fits in a worker.

A :class:`Job` is the common part of all tasks: the model, or the function that builds one, and the options. Each task carries the pickled job. A worker
unpickles the job once, so that the model is hashed and compiled once.
"""

import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from pymc_fastlogp.many import store
from pymc_fastlogp.many.fit import Outcome

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree

    from pymc_fastlogp.many.reuse import ReusedModel

type Keep = Callable[[DataTree], Any] | Sequence[str] | None


class Task(NamedTuple):
    """Task of a worker.

    Attributes
    ----------
    key : object
        Key of the data set.
    job, data : bytes
        The pickled :class:`Job` and data set.
    seed : int
        Seed of the fit.
    place : Place, optional
        Place of the value in a store.
    """

    key: Any
    job: bytes
    data: bytes
    seed: int
    place: store.Place | None


def run_task(task: Task) -> Outcome:
    """Fit the model of a task in this process; an error is part of the outcome."""
    start = time.perf_counter()
    try:
        outcome = _job(task.job).outcome(pickle.loads(task.data), task.seed)
        if task.place is not None:
            outcome = outcome._replace(seconds=time.perf_counter() - start)
            store.write(task.place, outcome, task.seed)
            return outcome._replace(value=None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of nutpie's library is no Exception
        outcome = Outcome(error=_portable(error))
    return outcome._replace(seconds=time.perf_counter() - start)


def _portable(error: BaseException) -> Exception:
    """Return an error that can be pickled, with the traceback as a note."""
    copy: Any = None
    # Unpickling calls code of the class.
    with suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))
    if type(copy) is not type(error) or not isinstance(copy, Exception):
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note("in the worker:\n" + "".join(traceback.format_exception(error)))
    return copy


class _LastJob(threading.local):
    """Last job of this thread: data are set in its model."""

    content: bytes | None = None
    job: "Job | None" = None


_last = _LastJob()


def _job(content: bytes) -> "Job":
    if _last.job is None or _last.content != content:
        _last.content, _last.job = content, cloudpickle.loads(content)
    return _last.job


@dataclass
class Job:
    """Common part of all tasks.

    Attributes
    ----------
    source : pymc.Model or callable
        The model, or a function from a data set to its model.
    names : frozenset of str
        Data and coordinates that each data set of one model replaces.
    keep : callable, sequence of str or None
        What is kept of the draws.
    options : dict
        Arguments of ``sample``.
    """

    source: "pm.Model | Callable[[Any], pm.Model]"
    names: frozenset[str]
    keep: Keep
    options: dict[str, Any]

    def outcome(self, data: Any, seed: int) -> Outcome:
        """Fit a data set."""
        from pymc_fastlogp.sampling.convergence import findings

        sampling = self._sampling_of(data)
        idata = sampling.sample(seed)
        if idata["posterior"].sizes["draw"] < self.options["draws"]:
            raise RuntimeError("sampling was interrupted")
        checked = findings(idata, sampling.model, is_reparametrized=sampling.is_reparametrized)
        stats = idata["sample_stats"]
        return Outcome(
            _kept(idata, self.keep),
            problems=tuple(x.text for x in checked if x.is_problem),
            n_divergences=int(stats["diverging"].sum()) if "diverging" in stats else 0,
        )

    def _sampling_of(self, data: Any) -> "Sampling":
        if callable(self.source):
            return Sampling(self.source(data), self.options)
        sampling = self._sampling
        set_data(self.source, data, self.names)
        return sampling

    @cached_property
    def _sampling(self) -> "Sampling":
        """Sampling of the model, created before data are set: their shapes are usually those of the model's own."""
        from pymc_fastlogp.many.reuse import shapes_of_data

        return Sampling(self.source, self.options, shapes_of_data(self.source))


def set_data(model: "pm.Model", data: Mapping[str, Any], names: frozenset[str]) -> None:
    """Set data and coordinates of a model.

    Raises
    ------
    ValueError
        If the data set does not replace what the others replace, whose values would remain.
    """
    import pymc as pm

    if data.keys() != names:
        found, expected = (", ".join(sorted(x)) for x in (data, names))
        raise ValueError(
            f"the data set has {found}, the first one has {expected}: give all the same."
        )
    coords = {name: x for name, x in data.items() if name in model.coords}
    pm.set_data({x: y for x, y in data.items() if x not in coords}, model=model, coords=coords)


class Sampling:
    """Sampling of one model, whose data may change between calls.

    Parameters
    ----------
    model : pymc.Model
        The model.
    options : dict
        Arguments of ``sample``.
    data_shapes : dict of str to tuple of int, optional
        Shapes of the data that most data sets have, by name, see :class:`~pymc_fastlogp.many.reuse.ReusedModel`.
    """

    def __init__(
        self,
        model: "pm.Model",
        options: dict[str, Any],
        data_shapes: Mapping[str, tuple[int, ...]] | None = None,
    ):
        self.model, self._options, self._data_shapes = model, options, data_shapes
        self.is_reparametrized = options.get("reparametrize", False)

    def sample(self, seed: int) -> "DataTree":
        """Sample with the current data."""
        from pytensor.gradient import NullTypeGradError

        from pymc_fastlogp.sampling.by_nutpie import library_model, sample_compiled
        from pymc_fastlogp.sampling.sample import arguments_for, sample

        options = self._options | {"random_seed": seed}
        if self._reused is not None:
            try:
                compiled = library_model(self._reused.compiled())
            except (NotImplementedError, NullTypeGradError):  # which pm.sample may sample
                self._reused = None
            else:
                arguments = arguments_for(self.model, options)
                return sample_compiled(self.model, compiled, arguments)
        return sample(model=self.model, **options)

    @cached_property
    def _reused(self) -> "ReusedModel | None":
        """The compiled model, None if ``sample`` has to compile: for frozen data, or a model that nutpie's library cannot sample."""
        from pymc_fastlogp.many.reuse import ReusedModel
        from pymc_fastlogp.models.table_rows import reads_table
        from pymc_fastlogp.sampling.by_nutpie import library_request, why_not_by_nutpie
        from pymc_fastlogp.sampling.sample import arguments_for

        arguments = arguments_for(self.model, self._options)
        if (
            self.is_reparametrized
            or reads_table(self.model)
            or why_not_by_nutpie(self.model, arguments)
        ):
            return None
        request = library_request(self.model, arguments, reparametrize=False)
        return (
            None if request is None or request.freeze else ReusedModel(request, self._data_shapes)
        )


def _kept(idata: "DataTree", keep: Keep) -> Any:
    if keep is None:
        return idata
    return keep(idata) if callable(keep) else idata["posterior"].to_dataset()[list(keep)]
