"""What is known of a constant integer array that is an input of a kernel, for the code that indexes with it."""

from dataclasses import dataclass

import numpy as np

from pymc_fastlogp.neighbours import Neighbours, neighbours_of


@dataclass(frozen=True)
class IndexFacts:
    """What holds for all elements.

    Attributes
    ----------
    minimum, maximum : int
        The smallest and the largest; 0 and -1 of an empty array.
    is_unique : bool
        Whether no two elements are equal.
    is_range : bool
        Whether the elements are ``minimum, minimum + 1, ...`` in C order.
    neighbours : Neighbours, optional
        Of an array with one axis.
    """

    minimum: int
    maximum: int
    is_unique: bool = False
    is_range: bool = False
    neighbours: Neighbours | None = None


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
        neighbours=neighbours_of(data) if data.ndim == 1 else None,
    )
