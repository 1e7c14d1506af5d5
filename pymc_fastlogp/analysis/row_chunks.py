r"""Chunks of rows: the split of a long loop. It depends on the number of rows and on their groups, not on the number of threads.

With vectors of :math:`L` rows, :math:`n` rows have :math:`V = \lfloor n / L \rfloor` whole vectors. Of :math:`K` chunks, chunk :math:`k` has the vectors

.. math::

    \lfloor k V / K \rfloor, \dots, \lfloor (k + 1) V / K \rfloor - 1.

So chunks differ by one vector at most. The last chunk has the fewer than :math:`L` rows behind the last vector, too.

Chunks of rows that are sorted by group may start at group borders instead. Then no group is in two chunks.
"""

import numpy as np

# Rows of the widest vector, so that chunks have no partial vector on any CPU.
LANES = 16
# Numbers of chunks. Threads share many chunks more evenly, but each chunk has its own partial results.
COUNTS = (16, 8, 4)
# Largest excess of a chunk that starts at a group border, as a part of its share.
SLACK = 0.1


def chunk_starts(n_rows: int, count: int) -> list[int]:
    """Return the first row of each chunk, and the row behind the last chunk."""
    return [*(k * (n_rows // LANES) // count * LANES for k in range(count)), n_rows]


def starts_at_groups(index: np.ndarray, count: int) -> tuple[int, ...]:
    """Return the first row of each chunk, and the row behind the last chunk, if each chunk starts at the group border that is next to its share of the rows.

    Parameters
    ----------
    index : ndarray, shape (n_rows,)
        The group of each row, ascending.
    count : int
        Number of chunks.

    Returns
    -------
    tuple of int
        Empty if a chunk would be longer than its share by more than :data:`SLACK`.
    """
    n = len(index)
    borders = np.concatenate([[0], 1 + np.flatnonzero(np.diff(index)), [n]])
    wanted = np.arange(count + 1) * n / count
    behind = np.searchsorted(borders, wanted)
    before = np.maximum(behind - 1, 0)
    is_before = wanted - borders[before] < borders[behind] - wanted
    starts = borders[np.where(is_before, before, behind)]
    lengths = np.diff(starts)
    if lengths.min() <= 0 or lengths.max() > (1 + SLACK) * n / count:
        return ()
    return tuple(map(int, starts))
