r"""Replace the rows of each cell in a sum of squares by as many rows as there are parameters.

Let a cell have the rows :math:`w_i (t_i + c_i^\top h)`, of which the squares are summed: known
weights :math:`w_i`, targets :math:`t_i` and covariates :math:`c_i`, and :math:`K` values :math:`h`
that are the same in all of them. For any *center* :math:`m`, and the residuals
:math:`r_i = t_i + c_i^\top m`,

.. math::

    \sum_i w_i^2 (t_i + c_i^\top h)^2 = \| W r + W C (h - m) \|^2
    = \| d + R (h - m) \|^2 + \rho^2, \qquad
    W \, [C \mid r] = Q \begin{bmatrix} R & d \\ 0 & \rho \end{bmatrix}

since an orthogonal matrix keeps norms. Nothing is expanded into moments, so nothing cancels.

The center takes large offsets out. Near the values that fit the data, :math:`h - m` is a
difference of nearby numbers, which is exact (the center is rounded to the precision of the sum before residuals are computed), and what it is multiplied with and added to is no
larger than the residuals. With :math:`m = 0` the target itself would be in :math:`d`, and the
rounding of a target near 1e6 would be an error of 1e-10 in a residual of order 1. The center need
not be the best fit: it solves the triangular system :math:`R m = -d_0` of the target, leaving
out covariates that hardly differ from a combination of those before them, whose coefficients
could be huge. What it leaves of the target stays in :math:`d`.

A covariate with a mean far from zero would be factorized with an error relative to that mean. Where
the first covariate is an intercept, the others are therefore taken relative to it:
:mod:`~pymc_fastlogp.rewrites.gaussian.intercept`.

Entries that happen to be zero, as where a covariate is balanced, would turn an infinite parameter
into nan. They are replaced by entries too small to change any finite value, unless the covariate is
zero in all rows of the cell, where upstream has nan as well.

Householder reflections (LAPACK) are applied to blocks of rows, and to the stacked triangles of the
blocks of a cell in turn, so that rounding grows with the logarithm of the number of rows [1]_.

.. [1] J. Demmel, L. Grigori, M. Hoemmen and J. Langou, "Communication-optimal parallel and
   sequential QR and LU factorizations", SIAM Journal on Scientific Computing 34 (2012).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_fastlogp.rewrites.gaussian.intercept import first_row, shares_of_first, with_few_digits
from pymc_fastlogp.rewrites.gaussian.precision import Precision
from pymc_fastlogp.rewrites.rows.view.chunks import chunks_of

# Rows of one block, at most; and entries that are worked on at a time.
BLOCK = 512
CHUNK = 1_000_000

type Read = Callable[[slice], np.ndarray]

# A covariate of which a smaller share is new, after those before it, has no part in the center.
NEW_SHARE = 1e-3


class CellFactor(NamedTuple):
    """Triangular factor of the rows of each cell; ``n`` cells, ``k`` covariates.

    The sum of the squares of a cell at ``h`` is that of ``pivot * (triangle @ (h - center)) + offset``,
    plus ``rest ** 2``; to the first row of the triangle ``low`` is to be added.

    Attributes
    ----------
    center : numpy.ndarray
        Shape ``(n, k)``.
    triangle : numpy.ndarray
        Upper triangles, shape ``(n, k, k)``.
    low : numpy.ndarray
        What rounding leaves out of the first row of the triangle, columns of zeros where it does not
        count; shape ``(n, k)``.
    pivot : numpy.ndarray, optional
        What the first row of the triangle is multiplied with, shape ``(n,)``, where there is an
        intercept; the entry on its diagonal is then one.
    offset : numpy.ndarray
        Shape ``(n, k)``.
    rest : numpy.ndarray
        The norm of what no parameter can change, shape ``(n,)``.
    """

    center: np.ndarray
    triangle: np.ndarray
    low: np.ndarray
    pivot: np.ndarray | None
    offset: np.ndarray
    rest: np.ndarray


def factorized(
    read: Read, weights: np.ndarray, counts: np.ndarray, dtype: str = "float64"
) -> CellFactor | None:
    """Factorize the rows of each cell.

    Parameters
    ----------
    read : callable
        Returns the rows of a slice: covariates and, last, the target, shape ``(.., k + 1)``. The rows of a
        cell are neighbors.
    weights : numpy.ndarray
        What rows are multiplied with, shape ``(n_rows,)`` or ``(1,)``.
    counts : numpy.ndarray of int
        How many rows each cell has, shape ``(n,)``, all above zero.
    dtype : str
        In which squares are summed, ``float32`` or ``float64``; everything here is float64.

    Returns
    -------
    CellFactor
        None if some of the rows are not finite, or if squares of what they are would overflow or vanish.
    """
    precision = Precision(dtype)
    k = read(slice(0, 1)).shape[1] - 1
    has_intercept = k > 1 and _is_same_in_all(read, counts.sum())
    joint = _triangles(read, weights, counts)
    if not np.isfinite(joint).all() or not precision.has_squares_of(joint):
        return None
    norms = np.linalg.norm(joint[:, :, :k], axis=1)
    center, shift = _center(joint, norms), np.zeros((len(counts), k))
    if has_intercept:
        shift = shares_of_first(joint)
        center[:, 0] = with_few_digits(center[:, 0], joint, norms, precision)
    center = precision.rounded(center)
    joint = _triangles(_shifted(read, center, shift, counts), weights, counts)
    if not np.isfinite(center).all() or not np.isfinite(joint).all():
        return None
    triangle, low, pivot = joint[:, :k, :k].copy(), np.zeros((len(counts), k)), None
    if has_intercept:
        triangle[:, 0], low, pivot = first_row(joint, shift, norms, precision)
    happens = (triangle == 0) & np.triu(np.ones((k, k), dtype=bool))
    triangle[happens] = np.broadcast_to(precision.tiny * norms[:, None, :], triangle.shape)[happens]
    return CellFactor(center, triangle, low, pivot, joint[:, :k, k], np.abs(joint[:, k, k]))


def _center(joint: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Solve ``R m = -d`` from below, with zero for covariates that are nearly combinations."""
    k = joint.shape[-1] - 1
    center = np.zeros((len(joint), k))
    for i in reversed(range(k)):
        pivot = joint[:, i, i]
        to_fit = -joint[:, i, k] - np.einsum("nk,nk->n", joint[:, i, i + 1 : k], center[:, i + 1 :])
        is_new = np.abs(pivot) > NEW_SHARE * norms[:, i]
        np.divide(to_fit, pivot, out=center[:, i], where=is_new)
    return center


def _is_same_in_all(read: Read, n_rows: int) -> bool:
    """Return whether the first covariate is the same number in all rows, other than zero."""
    first = read(slice(0, 1))[0, 0]
    return first != 0 and all((read(rows)[:, 0] == first).all() for rows in chunks_of(n_rows))


def _shifted(read: Read, center: np.ndarray, shift: np.ndarray, counts: np.ndarray) -> Read:
    """Move targets by the covariates at the center, and covariates by shares of the first.

    In extended precision, where numpy has it.
    """
    end = np.cumsum(counts)

    def read_shifted(rows: slice) -> np.ndarray:
        chunk = read(rows).copy()
        cell = np.searchsorted(end, np.arange(rows.start, rows.stop), side="right")
        target = chunk[:, -1].astype(np.longdouble)
        for column, m in zip(chunk.T[:-1], center.T, strict=True):
            target += column * m[cell].astype(np.longdouble)
        chunk[:, -1] = target
        for column, s in zip(chunk.T[1:-1], shift.T[1:], strict=True):
            if s.any():
                column -= chunk[:, 0] * s[cell].astype(np.longdouble)
        return chunk

    return read_shifted


def _triangles(read: Read, weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the triangle of each cell's weighted rows, shape ``(n, k + 1, k + 1)``."""
    m = read(slice(0, 1)).shape[1]
    block = max(BLOCK, 4 * m)
    while True:
        n_blocks = -(-counts // block)
        triangles = _of_blocks(read, weights, counts, n_blocks, block)
        if (n_blocks == 1).all():
            return triangles
        read, weights = triangles.reshape(-1, m).__getitem__, np.ones(1)
        counts = n_blocks * m


def _of_blocks(
    read: Read, weights: np.ndarray, counts: np.ndarray, n_blocks: np.ndarray, block: int
) -> np.ndarray:
    """Return the triangle of each block of rows; neighboring blocks are read together."""
    m = read(slice(0, 1)).shape[1]
    cell = np.repeat(np.arange(len(counts)), n_blocks)
    before = (np.arange(len(cell)) - (np.cumsum(n_blocks) - n_blocks)[cell]) * block
    begin = (np.cumsum(counts) - counts)[cell] + before
    length = np.minimum(counts[cell] - before, block)
    triangles = np.empty((len(cell), m, m))
    chunk = begin // max(1, CHUNK // m)
    for blocks in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(chunk)) + 1):
        start = begin[blocks[0]]
        rows = slice(start, begin[blocks[-1]] + length[blocks[-1]])
        of_rows = weights[rows] if len(weights) > 1 else weights
        weighted = read(rows) * of_rows[:, None]
        triangles[blocks] = _of_neighbors(weighted, begin[blocks] - start, length[blocks])
    return triangles


def _of_neighbors(rows: np.ndarray, begin: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return the triangles of blocks that begin at some rows; those of similar length together."""
    m = rows.shape[1]
    padded = 2 ** np.ceil(np.log2(length)).astype(int)
    triangles = np.zeros((len(begin), m, m))
    for size in np.unique(padded):
        alike = np.flatnonzero(padded == size)
        at = begin[alike, None] + np.arange(size)
        is_row = np.arange(size) < length[alike, None]
        of_block = np.where(is_row[:, :, None], rows[np.where(is_row, at, 0)], 0)
        upper = np.linalg.qr(of_block, mode="r")
        triangles[alike, : upper.shape[1]] = upper
    return triangles
