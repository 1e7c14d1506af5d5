"""Actor of a worker: log likelihoods of partitions of the rows, compiled where the rows are."""

import pickle
from collections.abc import Container, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pymc_fastlogp.sampling.compile_model import compile_request
from pymc_fastlogp.sampling.request import request_of
from pymc_fastlogp.sampling.usable_cores import usable_cores
from pymc_fastlogp.tables.partitions import FilePartition


class Shards:
    """Shards of one worker.

    Parameters
    ----------
    likelihoods : bytes
        The pickled likelihoods, instances of :class:`~pymc_fastlogp.models.row_likelihood.RowLikelihood`.
    shapes : dict of str to tuple of int
        Shapes of the unconstrained parameters by name, in the order of a point.
    partitions : sequence of tuple
        For each shard the position of its likelihood, and its rows: a partition of files, or a frame in memory.
    threads : int, optional
        Threads of an evaluation; by default those of the worker, and at most its cores.
    """

    def __init__(
        self,
        likelihoods: bytes,
        shapes: Mapping[str, tuple[int, ...]],
        partitions: Sequence[tuple[int, Any]],
        threads: int | None,
    ):
        from distributed import get_worker

        if threads is None:
            threads = min(get_worker().state.nthreads, usable_cores())
        loaded = pickle.loads(likelihoods)
        self._shards = []
        for k, partition in partitions:
            read = {name: shape for name, shape in shapes.items() if name in loaded[k].parameters}
            rows = partition.load() if isinstance(partition, FilePartition) else partition
            # Freezing might change the order of the parameters, and there are no data to freeze.
            # Shards are evaluated one after the other.
            request = request_of(loaded[k].model(rows, read), freeze_model=False)
            compiled = compile_request(request, threads - 1)
            self._shards.append((compiled, _positions(shapes, read)))

    def evaluate(self, point: np.ndarray) -> np.ndarray:
        """Return log likelihood and gradient of each shard at an unconstrained point, shape ``(n_shards, 1 + n_dim)``.

        A log likelihood is NaN if a check of the model fails at the point.
        """
        values = np.zeros((len(self._shards), 1 + len(point)))
        for (compiled, positions), row in zip(self._shards, values):
            try:
                row[0], row[1 + positions] = compiled.logp_dlogp(point[positions])
            except ValueError:
                row[0] = np.nan
        return values


def _positions(shapes: Mapping[str, tuple[int, ...]], names: Container[str]) -> np.ndarray:
    """Return the positions in a point of the parameters with some names."""
    lengths = [prod(x) for x in shapes.values()]
    return np.flatnonzero(np.repeat([name in names for name in shapes], lengths))
