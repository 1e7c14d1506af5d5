"""How equal elements of an index vector follow each other, which decides what a scatter costs."""

from dataclasses import dataclass

import numpy as np

# No vector has more lanes, so it does not matter how much further apart equal elements are.
FAR = 16


@dataclass(frozen=True)
class Neighbours:
    """How the elements of a vector follow each other.

    Attributes
    ----------
    run : int
        The mean length of runs of equal elements, rounded down.
    gap : int
        The least distance of two equal elements; :data:`FAR` if it is that or more.
    """

    run: int
    gap: int


def neighbours_of(vector: np.ndarray) -> Neighbours:
    """Return how the elements of a vector, of which there is at least one, follow each other."""
    n_runs = 1 + np.count_nonzero(vector[1:] != vector[:-1])
    distances = range(1, min(FAR, vector.size))
    equal = (k for k in distances if np.any(vector[k:] == vector[:-k]))
    return Neighbours(run=vector.size // int(n_runs), gap=next(equal, FAR))
