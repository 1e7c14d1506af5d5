r"""Triangular factors of the rows of many cells: ``R`` of ``A = Q R``, for the rows ``A`` of each cell.

A sum of squares over the rows is one over the rows of ``R``, because an orthogonal matrix keeps norms:

.. math:: \|A h\|^2 = \|Q R h\|^2 = \|R h\|^2

LAPACK's Householder reflections are applied to blocks of rows, and then to the stacked triangles of the blocks (TSQR).
So rounding grows with the logarithm of the number of rows [1]_.

.. [1] J. Demmel, L. Grigori, M. Hoemmen and J. Langou, "Communication-optimal parallel and
   sequential QR and LU factorizations", SIAM Journal on Scientific Computing 34 (2012).
"""

from collections.abc import Callable

import numpy as np

# Most rows of one block, and entries per chunk.
BLOCK = 512
CHUNK = 1_000_000

type ReadRows = Callable[[slice], np.ndarray]


def triangles(read: ReadRows, weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the triangle of each cell's weighted rows, shape ``(n, m, m)``.

    Parameters
    ----------
    read : callable
        Returns the rows of a slice, sorted by cell; shape ``(.., m)``.
    weights : numpy.ndarray
        Factors of the rows, shape ``(n_rows,)`` or ``(1,)``.
    counts : numpy.ndarray of int
        Number of rows of each cell, shape ``(n,)``, all positive.
    """
    m = read(slice(0, 1)).shape[1]
    block = max(BLOCK, 4 * m)
    while True:
        n_blocks = -(-counts // block)
        of_blocks = _block_triangles(read, weights, counts, n_blocks, block)
        if (n_blocks == 1).all():
            return of_blocks
        read, weights = of_blocks.reshape(-1, m).__getitem__, np.ones(1)
        counts = n_blocks * m


def _block_triangles(
    read: ReadRows, weights: np.ndarray, counts: np.ndarray, n_blocks: np.ndarray, block: int
) -> np.ndarray:
    """Return the triangle of each block of rows. Adjacent blocks are read together."""
    m = read(slice(0, 1)).shape[1]
    cell = np.repeat(np.arange(len(counts)), n_blocks)
    before = (np.arange(len(cell)) - (np.cumsum(n_blocks) - n_blocks)[cell]) * block
    begin = (np.cumsum(counts) - counts)[cell] + before
    length = np.minimum(counts[cell] - before, block)
    found = np.empty((len(cell), m, m))
    chunk = begin // max(1, CHUNK // m)
    for blocks in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(chunk)) + 1):
        start = begin[blocks[0]]
        rows = slice(start, begin[blocks[-1]] + length[blocks[-1]])
        weighted = read(rows)
        if len(weights) > 1 or weights[0] != 1:
            weighted = weighted * (weights[rows] if len(weights) > 1 else weights)[:, None]
        found[blocks] = _adjacent_triangles(weighted, begin[blocks] - start, length[blocks])
    return found


def _adjacent_triangles(rows: np.ndarray, begin: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return the triangles of adjacent blocks. Blocks of similar length are factorized together."""
    m = rows.shape[1]
    padded = 2 ** np.ceil(np.log2(length)).astype(int)
    found = np.zeros((len(begin), m, m))
    for size in np.unique(padded):
        alike = np.flatnonzero(padded == size)
        at = begin[alike, None] + np.arange(size)
        of_block = np.take(rows, at, axis=0, mode="clip")
        of_block[np.arange(size) >= length[alike, None]] = 0
        upper = np.linalg.qr(of_block, mode="r")
        found[alike, : upper.shape[1]] = upper
    return found
