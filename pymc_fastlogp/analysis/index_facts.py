"""Bounds, order and runs of a constant index array that a kernel reads."""

from dataclasses import dataclass

import numpy as np

# No vector has more lanes, so it does not matter how much further apart equal elements are.
FAR = 16


@dataclass(frozen=True)
class Neighbors:
    """Relation between consecutive elements of a vector.

    Attributes
    ----------
    run : int
        The mean length of runs of equal elements, rounded down.
    gap : int
        The least distance of two equal elements; :data:`FAR` if it is that or more.
    """

    run: int
    gap: int


@dataclass(frozen=True)
class IndexFacts:
    """Properties that hold for every element of an index array.

    Attributes
    ----------
    minimum, maximum : int
        The smallest and the largest; 0 and -1 of an empty array.
    is_unique : bool
        Whether no two elements are equal.
    is_range : bool
        Whether the elements are ``minimum, minimum + 1, ...`` in C order.
    neighbors : Neighbors, optional
        Of an array with one axis.
    """

    minimum: int
    maximum: int
    is_unique: bool = False
    is_range: bool = False
    neighbors: Neighbors | None = None


def index_facts(data: np.ndarray) -> IndexFacts | None:
    """Return the facts about an array, None where it is not of integers."""
    if data.dtype.kind not in "iu":
        return None
    if data.size == 0:
        return IndexFacts(0, -1, is_unique=True, is_range=True)
    flat = data.ravel()
    # Of narrow unsigned integers the difference would wrap round.
    steps = np.diff(flat.astype(np.int64))
    return IndexFacts(
        minimum=int(flat.min()),
        maximum=int(flat.max()),
        is_unique=np.unique(flat).size == flat.size,
        is_range=bool(np.all(steps == 1)),
        neighbors=neighbors_of(data) if data.ndim == 1 else None,
    )


def neighbors_of(vector: np.ndarray) -> Neighbors:
    """Return how the elements of a vector, of which there is at least one, follow each other."""
    n_runs = 1 + np.count_nonzero(vector[1:] != vector[:-1])
    distances = range(1, min(FAR, vector.size))
    equal = (k for k in distances if np.any(vector[k:] == vector[:-k]))
    return Neighbors(run=vector.size // int(n_runs), gap=next(equal, FAR))
