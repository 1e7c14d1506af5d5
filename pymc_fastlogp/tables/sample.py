"""Random sample of rows that are read in batches: it does not depend on their order, so a sorted table does not mislead."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from pymc_fastlogp.tables.progress import reading
from pymc_fastlogp.tables.source import Extent, Source

# Rows of the sample.
N_SAMPLE = 100_000
# Rows that are read for the sample, about.
N_SCANNED = 2_000_000


class Sample(NamedTuple):
    """Values of columns in a random sample of rows.

    Attributes
    ----------
    columns : list of ndarray
        Values of each column.
    extent : Extent
        Rows that the sample is drawn from.
    """

    columns: list[np.ndarray]
    extent: Extent


def read_sample(
    source: Source, names: Sequence[str], values: Callable[[Any], Sequence[np.ndarray]]
) -> Sample:
    """Read a sample of at most :data:`N_SAMPLE` rows.

    Parameters
    ----------
    source : Source
        The rows.
    names : sequence of str
        Columns that are read.
    values : callable
        Function from a batch of rows to the values of columns.

    Raises
    ------
    ValueError
        If there are no rows.
    """
    sample, found = RandomSample(N_SAMPLE), list[Sequence[np.ndarray]]()
    with reading(f"{source.engine} reads a sample of {', '.join(names)}", source.percent):
        extent = source.extent(N_SCANNED)
        with closing(source.spread_batches(names, extent, N_SCANNED)) as batches:
            for batch in batches:
                found.append(values(batch[sample.candidates(len(batch))]))
    if not sample.n_seen:
        raise ValueError("the table has no rows: look at its filters.")
    if extent == Extent() and sample.n_seen < N_SCANNED:
        extent = Extent(sample.n_seen)
    places = sample.places()
    return Sample([np.concatenate(x)[places] for x in zip(*found, strict=True)], extent)


class RandomSample:
    """Sample of ``size`` rows without replacement, all rows if there are fewer.

    Each row gets a random number, and the rows with the smallest numbers are the sample. Of ``n`` rows, about ``size * (1 + log(n / size))`` are candidates
    when their batch is read.

    Parameters
    ----------
    size : int
        Number of rows.
    """

    def __init__(self, size: int):
        self._size = size
        self._rng = np.random.default_rng(0)
        # Random numbers of the candidates.
        self._keys = np.empty(0)
        self.n_seen = 0

    def candidates(self, n_rows: int) -> np.ndarray:
        """Return the places of the candidates in the next batch of ``n_rows`` rows."""
        self.n_seen += n_rows
        keys = self._rng.random(n_rows)
        seen = np.concatenate([self._keys, keys])
        is_small = (
            len(seen) <= self._size or keys <= np.partition(seen, self._size - 1)[self._size - 1]
        )
        [places] = np.nonzero(np.broadcast_to(is_small, keys.shape))
        self._keys = np.concatenate([self._keys, keys[places]])
        return places

    def places(self) -> np.ndarray:
        """Return the places of the sample among all candidates, in order."""
        return np.sort(np.argsort(self._keys, kind="stable")[: self._size])
