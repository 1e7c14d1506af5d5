"""Random sample of rows that are read in batches: it does not depend on their order, so a sorted table does not mislead."""

import numpy as np


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
