"""Bounds, uniqueness and runs of a constant index array."""

from dataclasses import dataclass

import numpy as np

from pymc_fastlogp.analysis.row_chunks import COUNTS, starts_at_groups

# The largest number of lanes of a vector: larger distances between equal elements are not distinguished.
FAR = 16


@dataclass(frozen=True)
class Neighbors:
    """Relation between consecutive elements of a vector.

    Attributes
    ----------
    run : int
        Mean length of runs of equal elements, rounded down.
    gap : int
        Smallest distance between two equal elements, at most :data:`FAR`.
    """

    run: int
    gap: int


@dataclass(frozen=True)
class IndexFacts:
    """Facts about an index array.

    Attributes
    ----------
    minimum, maximum : int
        Smallest and largest element; 0 and -1 for an empty array.
    is_unique : bool
        Whether no two elements are equal.
    is_range : bool
        Whether the elements are ``minimum, minimum + 1, ...`` in C order.
    neighbors : Neighbors, optional
        Relation between consecutive elements, for an array with one axis.
    starts : tuple of tuple of int
        For an ascending array with one axis the first rows of chunks that start at group borders, as of :func:`~pymc_fastlogp.analysis.row_chunks.starts_at_groups`.
    """

    minimum: int
    maximum: int
    is_unique: bool = False
    is_range: bool = False
    neighbors: Neighbors | None = None
    starts: tuple[tuple[int, ...], ...] = ()

    def chunk_starts(self, count: int) -> tuple[int, ...]:
        """Return the first row of each of some chunks at group borders, and the number of rows; empty if groups are too long."""
        return next((x for x in self.starts if len(x) == count + 1), ())


def index_facts(data: np.ndarray) -> IndexFacts | None:
    """Return the facts about an integer array, None for other dtypes."""
    if data.dtype.kind not in "iu":
        return None
    if data.size == 0:
        return IndexFacts(0, -1, is_unique=True, is_range=True)
    flat = data.ravel()
    minimum, maximum = int(flat.min()), int(flat.max())
    n_values = maximum - minimum + 1
    is_unique = flat.size <= n_values and np.unique(flat).size == flat.size
    # Not by differences, which would overflow for narrow unsigned integers.
    is_ascending = bool(np.all(flat[1:] >= flat[:-1]))
    return IndexFacts(
        minimum,
        maximum,
        is_unique,
        is_range=is_unique and is_ascending and flat.size == n_values,
        neighbors=neighbors_of(data) if data.ndim == 1 else None,
        starts=_starts(data) if data.ndim == 1 and is_ascending else (),
    )


def _starts(ascending: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the first rows of chunks at group borders, for each possible number of chunks."""
    found = (starts_at_groups(ascending, count) for count in COUNTS)
    return tuple(starts for starts in found if starts)


def neighbors_of(vector: np.ndarray) -> Neighbors:
    """Return the relation between consecutive elements of a vector that is not empty."""
    n_runs = 1 + np.count_nonzero(vector[1:] != vector[:-1])
    distances = range(1, min(FAR, vector.size))
    equal = (k for k in distances if np.any(vector[k:] == vector[:-k]))
    return Neighbors(run=vector.size // int(n_runs), gap=next(equal, FAR))
