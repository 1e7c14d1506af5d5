r"""Chunks of rows: the split of a long loop, which depends on the number of rows alone.

Let :math:`n` be the number of rows and :math:`t` the aim, a number of chunks. With vectors of :math:`L` rows there are
:math:`V = \lfloor n / L \rfloor` whole vectors. The split has

.. math::

    K = \arg\min_{t/2 \le k \le 2t} (V \bmod k), \qquad C = L \lfloor V / K \rfloor

chunks of :math:`C` rows each. The remaining :math:`n - KC` rows are fewer than :math:`L (K + 1)`, and mostly fewer than two vectors.
"""

from typing import NamedTuple

# Rows of the widest vector, so that chunks have no partial vector on any CPU.
LANES = 16
# Aims for the number of chunks. Several threads share the chunks evenly if there are many; each chunk has its own partial results.
AIMS = (16, 8, 4)


class RowChunks(NamedTuple):
    """Split of rows in chunks of equal length.

    Attributes
    ----------
    count : int
        Number of chunks.
    length : int
        Rows of a chunk.
    """

    count: int
    length: int


def split_rows(n_rows: int, aim: int) -> RowChunks:
    """Return the split of rows in about ``aim`` chunks."""
    n_vectors = n_rows // LANES
    counts = range(aim // 2, 2 * aim + 1)
    count = min(counts, key=lambda k: (n_vectors % k, abs(k - aim)))
    return RowChunks(count, n_vectors // count * LANES)
