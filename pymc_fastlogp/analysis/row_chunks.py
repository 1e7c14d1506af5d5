r"""Chunks of rows: the split of a long loop, which depends on the number of rows alone.

With vectors of :math:`L` rows, :math:`n` rows have :math:`V = \lfloor n / L \rfloor` whole vectors. Of :math:`K` chunks, chunk :math:`k` has the vectors

.. math::

    \lfloor k V / K \rfloor, \dots, \lfloor (k + 1) V / K \rfloor - 1.

So chunks differ by one vector at most, and fewer than :math:`L` rows remain.
"""

# Rows of the widest vector, so that chunks have no partial vector on any CPU.
LANES = 16
# Numbers of chunks. Threads share many chunks more evenly, but each chunk has its own partial results.
COUNTS = (16, 8, 4)


def chunk_starts(n_rows: int, count: int) -> list[int]:
    """Return the first row of each chunk, and the row behind the last chunk."""
    return [k * (n_rows // LANES) // count * LANES for k in range(count + 1)]
