"""Log likelihood of rows that are sharded over the workers of a Dask cluster.

Each worker has an actor with consecutive shards. An evaluation sends the point to all actors and waits for all of them. Shards of an actor that is lost
are built again on the workers that there are then, and are asked for the same point, so a sum never lacks a shard.
"""

import asyncio
import logging
import threading
import time
from asyncio import CancelledError
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pymc_fastlogp.sampling.cluster.shards import Shards
from pymc_fastlogp.tables.partitions import FilePartition, FramePartition
from pymc_fastlogp.tables.progress import reading

if TYPE_CHECKING:
    from xarray import DataTree

    from pymc_fastlogp.models.row_likelihood import RowLikelihood

logger = logging.getLogger("pymc_fastlogp")

# Seconds without an answer after which the scheduler is asked whether the worker is still there.
PATIENCE = 5.0
# Seconds to wait for a worker if there is none: a nanny starts a dead worker again.
LONGEST_WAIT = 30.0
# Exceptions by which Dask says that an actor is lost. Others are errors of an evaluation.
OF_LOST = OSError, RuntimeError, KeyError
# Actors of a shard that may be lost in a row: a part that does not fit into memory would end one worker after the other.
MOST_LOSSES = 5


class WorkersLostError(RuntimeError):
    """Workers are gone, so that sampling cannot go on.

    Attributes
    ----------
    idata : DataTree, optional
        The draws so far, None if there are none.
    """

    idata: Any = None


def with_draws(error: Exception, idata: "DataTree") -> Exception:
    """Return the error that ended sampling, with the draws so far."""
    if not isinstance(error, WorkersLostError):
        return error
    n_draws = idata.posterior.sizes["draw"]
    new = WorkersLostError(f"sampling stopped after {n_draws} draws of each chain: {error}")
    new.idata = idata if n_draws else None
    return new


@dataclass(frozen=True, eq=False)
class ShardActor:
    """Actor of a worker, and its shards.

    Attributes
    ----------
    proxy : distributed.Actor
        Proxy of :class:`~pymc_fastlogp.sampling.cluster.shards.Shards`.
    address : str
        Address of the worker.
    shards : tuple of int
        Numbers of the shards.
    """

    proxy: Any
    address: str
    shards: tuple[int, ...]


class ShardedLikelihood:
    """Sum of likelihoods whose rows are on the workers of a client, until the end of a block.

    Parameters
    ----------
    client : distributed.Client
        The client.
    likelihoods : sequence of RowLikelihood
        The likelihoods.
    shapes : dict of str to tuple of int
        Shapes of the unconstrained parameters by name, in the order of a point.
    threads : int, optional
        Threads of an evaluation on a worker; by default those of the worker.
    """

    def __init__(
        self,
        client: Any,
        likelihoods: "Sequence[RowLikelihood]",
        shapes: Mapping[str, tuple[int, ...]],
        threads: int | None = None,
    ):
        import cloudpickle

        self._client, self._shapes, self._threads = client, shapes, threads
        self._partitions = [(k, x) for k, each in enumerate(likelihoods) for x in each.partitions]
        self._content: bytes = cloudpickle.dumps([replace(x, partitions=()) for x in likelihoods])
        self._actors: tuple[ShardActor, ...] = ()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        numbers = range(len(self._partitions))
        self._actors = self._built(numbers, ())
        counts = ", ".join(f"{len(x.shards)} on {x.address}" for x in self._actors)
        logger.info("%d shards of rows: %s", len(numbers), counts)
        return self

    def __exit__(self, *_: object) -> None:
        # Dask frees an actor without references.
        self._actors = ()

    def evaluate(self, point: np.ndarray) -> np.ndarray:
        """Return the log likelihood of all rows and its gradient, shape ``(1 + n_dim,)``.

        Raises
        ------
        WorkersLostError
            If there are no workers.
        """
        values = np.empty((len(self._partitions), 1 + len(point)))
        asked: Sequence[ShardActor] = self._actors
        for _ in range(MOST_LOSSES):
            lost = self._ask(asked, point, values)
            if not lost:
                return np.add.reduce(values)
            asked = self._replaced(lost)
        raise WorkersLostError(f"{MOST_LOSSES} workers in a row were lost at one evaluation.")

    def _ask(
        self, actors: Sequence[ShardActor], point: np.ndarray, values: np.ndarray
    ) -> list[ShardActor]:
        """Fill in the values of the shards of actors, and return the actors that are lost."""
        pending = {x: _asked(x, point) for x in actors}
        lost = []
        while pending:
            answers = self._call(self._client.sync, _answers, [*pending.values()], PATIENCE)
            is_late = any(x is None for x in answers)
            known = self._call(self._client.nthreads) if is_late else None
            for x, answer in zip([*pending], answers):
                if isinstance(answer, np.ndarray):
                    values[[*x.shards]] = answer
                elif isinstance(answer, Exception) and not isinstance(answer, OF_LOST):
                    raise answer
                elif answer is not None or (known is not None and x.address not in known):
                    logger.info("the worker %s is lost: %s", x.address, answer)
                    lost.append(x)
                else:
                    continue
                del pending[x]
        return lost

    def _replaced(self, lost: Sequence[ShardActor]) -> list[ShardActor]:
        """Return actors with the shards of those that are lost, which the first thread that asks builds."""
        with self._lock:
            unreplaced = [x for x in lost if x in self._actors]
            if unreplaced:
                numbers = sorted(k for x in unreplaced for k in x.shards)
                new = self._built(numbers, {x.address for x in unreplaced})
                self._actors = (*(x for x in self._actors if x not in unreplaced), *new)
                logger.warning(
                    "Lost the worker %s: its rows are now on %s.",
                    ", ".join(x.address for x in unreplaced),
                    ", ".join(x.address for x in new),
                )
        numbers_lost = {k for x in lost for k in x.shards}
        return [x for x in self._actors if not numbers_lost.isdisjoint(x.shards)]

    def _built(self, numbers: Sequence[int], lost: Collection[str]) -> tuple[ShardActor, ...]:
        """Return new actors with these shards, on workers other than those that are lost."""
        actors: list[ShardActor] = []
        for _ in range(MOST_LOSSES):
            groups = _groups(numbers, self._workers(lost))
            futures = {address: self._submitted(x, address) for address, x in groups.items()}
            text = f"{len(futures)} workers read and compile"
            with reading(text, partial(_percent, [*futures.values()])):
                built = {x: self._actor(y, x, groups[x]) for x, y in futures.items()}
            actors += [x for x in built.values() if x is not None]
            numbers = [k for x, y in built.items() if y is None for k in groups[x]]
            if not numbers:
                return tuple(actors)
            lost = {*lost, *(x for x, y in built.items() if y is None)}
        raise WorkersLostError(f"{MOST_LOSSES} workers in a row were lost while they read rows.")

    def _workers(self, lost: Collection[str]) -> dict[str, int]:
        """Return the threads of workers by address.

        Raises
        ------
        WorkersLostError
            If there are none for ``LONGEST_WAIT`` seconds.
        """
        end = time.monotonic() + LONGEST_WAIT
        while True:
            known = self._call(self._client.nthreads)
            found = {x: n for x, n in known.items() if x not in lost}
            if found:
                return found
            if time.monotonic() > end:
                raise WorkersLostError(f"there was no worker for {LONGEST_WAIT:.0f} seconds.")
            time.sleep(0.1)

    def _submitted(self, numbers: Iterable[int], address: str) -> Any:
        """Return the future of an actor, on a worker if that worker is still there, else on another."""
        partitions = [
            (k, self._placed(x, address)) for k, x in (self._partitions[i] for i in numbers)
        ]
        place = {"workers": [address], "allow_other_workers": True}
        arguments = self._content, self._shapes, partitions, self._threads
        return self._call(self._client.submit, Shards, *arguments, actor=True, pure=False, **place)

    def _placed(self, partition: Any, address: str) -> Any:
        """Return rows as an argument of a task: a partition of files, or a future of a frame."""
        match partition:
            case FilePartition():
                return partition
            case FramePartition():
                return self._client.scatter(partition.load(), workers=[address], hash=False)
        return self._client.compute(partition)

    def _actor(self, future: Any, address: str, numbers: Sequence[int]) -> ShardActor | None:
        """Return the actor of a future; None if its worker was lost.

        Raises
        ------
        Exception
            The exception of the actor, if rows cannot be read or compiled.
        """
        from distributed import Actor, KilledWorker

        try:
            error = future.exception()
            found = self._client.who_has([future])
        except (OSError, RuntimeError, CancelledError) as lost:
            error, found = lost, {}
        if isinstance(error, KilledWorker):  # on several workers
            raise error
        is_raised = error is not None and future.status == "error"
        if is_raised and address in self._call(self._client.nthreads):
            raise error
        addresses = [x for of_key in found.values() for x in of_key]
        if error is not None or not addresses:
            return None
        # The proxy in the future's result belongs to the client of this process that was made last.
        with self._client.as_current():
            proxy = Actor(Shards, addresses[0], future.key)
        return ShardActor(proxy, addresses[0], tuple(numbers))

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client, whose scheduler may be gone."""
        try:
            return function(*arguments, **options)
        except (OSError, RuntimeError) as error:
            raise WorkersLostError(f"the scheduler does not answer: {error}") from error


def _asked(actor: ShardActor, point: np.ndarray) -> Any:
    """Return the future of the values of an actor, or the exception if the actor is known to be lost."""
    try:
        return actor.proxy.evaluate(point)
    except RuntimeError as error:
        return error


async def _answers(futures: Sequence[Any], timeout: float) -> list[Any]:
    """Return the results or exceptions of futures, None for those without an answer in time."""
    tasks = [asyncio.ensure_future(_answer(x)) for x in futures]
    _, late = await asyncio.wait(tasks, timeout=timeout)
    for x in late:
        x.cancel()
    return [x.result() if x not in late else None for x in tasks]


async def _answer(future: Any) -> Any:
    if isinstance(future, Exception):
        return future
    try:
        return await future
    except Exception as error:
        return error


def _groups(numbers: Sequence[int], threads: dict[str, int]) -> dict[str, Sequence[int]]:
    """Return consecutive numbers for each worker, as many as its share of all threads."""
    shares = np.cumsum([0, *threads.values()]) / sum(threads.values())
    ends = np.rint(shares * len(numbers)).astype(int).tolist()
    groups = {x: numbers[a:b] for x, a, b in zip(threads, ends, ends[1:])}
    return {x: group for x, group in groups.items() if len(group)}


def _percent(futures: Sequence[Any]) -> float:
    return 100 * sum(x.done() for x in futures) / len(futures)
