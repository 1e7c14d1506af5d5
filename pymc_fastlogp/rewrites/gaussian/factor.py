r"""Replace the rows of each cell in a sum of squares by one row per parameter.

The squares of the rows :math:`w_i (t_i + c_i^\top h)` of a cell are summed. Weights :math:`w_i`, targets :math:`t_i`
and covariates :math:`c_i` are known. All rows of the cell share the :math:`K` parameters :math:`h`. For any *center*
:math:`m`, and the residuals :math:`r_i = t_i + c_i^\top m`,

.. math::

    \sum_i w_i^2 (t_i + c_i^\top h)^2 = \| W r + W C (h - m) \|^2
    = \| d + R (h - m) \|^2 + \rho^2, \qquad
    W \, [C \mid r] = Q \begin{bmatrix} R & d \\ 0 & \rho \end{bmatrix}

since an orthogonal matrix keeps norms. Nothing is expanded into moments, so nothing cancels.

**The center** removes large offsets. Near the values that fit the data, :math:`h - m` is a difference of nearby
numbers, which is exact: the center is rounded to the precision of the sum before residuals are computed. With
:math:`m = 0` the target would be part of :math:`d`. The rounding of a target near 1e6 would put an error of 1e-10 into
a residual of order 1. The center need not be the best fit. The center solves the triangular system :math:`R m = -d_0`
of the target, without covariates that are nearly combinations of earlier covariates: their coefficients could be huge.
The remaining target stays in :math:`d`.

**Intercepts.** A covariate with a mean far from zero would be factorized with an error relative to that mean. If the
first covariate is an intercept, the others are taken relative to it: :mod:`~pymc_fastlogp.rewrites.gaussian.intercept`.

**Zeros.** An entry that is zero by chance, for example of a balanced covariate, would turn an infinite parameter into
NaN. Such entries are replaced by entries too small to change any finite value. The exception is a covariate that is
zero in all rows of the cell, where PyTensor's sum is NaN as well.

**Rounding** grows with the logarithm of the number of rows: :mod:`~pymc_fastlogp.analysis.triangles`.
"""

from typing import NamedTuple

import numpy as np

from pymc_fastlogp.analysis.triangles import ReadRows, triangles
from pymc_fastlogp.rewrites.gaussian.float_limits import FloatLimits
from pymc_fastlogp.rewrites.gaussian.intercept import first_row, round_center, shares_of_first
from pymc_fastlogp.rewrites.rows.view.chunks import chunks_of

# A covariate whose part independent of earlier covariates is a smaller share has no part in the center.
NEW_SHARE = 1e-3


class CellFactor(NamedTuple):
    """Triangular factors of the rows of each cell, for ``n`` cells and ``k`` covariates.

    At the parameters ``h`` the sum of squares of a cell is
    ``sum((triangle @ (h - center) + offset) ** 2) + rest ** 2``. In the first row, ``low`` is added to the triangle, and ``pivot``
    multiplies the product.

    Attributes
    ----------
    center : numpy.ndarray
        Shape ``(n, k)``.
    triangle : numpy.ndarray
        Upper triangles, shape ``(n, k, k)``.
    low : numpy.ndarray
        Rounding error of the first row of the triangle, zero in columns where the error is negligible; shape ``(n, k)``.
    pivot : numpy.ndarray, optional
        Factor of the first row of the triangle, shape ``(n,)``, if there is an intercept; the diagonal entry is then one.
    offset : numpy.ndarray
        Shape ``(n, k)``.
    rest : numpy.ndarray
        Norm of the residual that no parameter can change, shape ``(n,)``.
    """

    center: np.ndarray
    triangle: np.ndarray
    low: np.ndarray
    pivot: np.ndarray | None
    offset: np.ndarray
    rest: np.ndarray


def factorized(
    read: ReadRows,
    weights: np.ndarray,
    counts: np.ndarray,
    dtype: str = "float64",
    *,
    may_have_intercept: bool = True,
) -> CellFactor | None:
    """Factorize the rows of each cell.

    Parameters
    ----------
    read : callable
        Returns the rows of a slice, sorted by cell: covariates and, last, the target, shape ``(.., k + 1)``.
    weights : numpy.ndarray
        Factors of the rows, shape ``(n_rows,)`` or ``(1,)``.
    counts : numpy.ndarray of int
        Number of rows of each cell, shape ``(n,)``, all positive.
    dtype : str
        Dtype of the sum, ``float32`` or ``float64``. The factorization uses float64.
    may_have_intercept : bool
        Whether the first covariate is an intercept if it is the same number in all rows.

    Returns
    -------
    CellFactor
        None if rows are not finite, or if squares would overflow or underflow.
    """
    limits = FloatLimits(dtype)
    k = read(slice(0, 1)).shape[1] - 1
    has_intercept = (
        may_have_intercept and k > 1 and _has_constant_first_covariate(read, counts.sum())
    )
    joint = triangles(read, weights, counts)
    if not np.isfinite(joint).all() or not limits.has_squares_of(joint):
        return None
    norms = np.linalg.norm(joint[:, :, :k], axis=1)
    center, shift = _center(joint, norms), np.zeros((len(counts), k))
    if has_intercept:
        shift = shares_of_first(joint)
        center[:, 0] = round_center(center[:, 0], joint, norms, limits)
    center = limits.rounded(center)
    joint = triangles(_shifted(read, center, shift, counts), weights, counts)
    if not np.isfinite(center).all() or not np.isfinite(joint).all():
        return None
    triangle, low, pivot = joint[:, :k, :k].copy(), np.zeros((len(counts), k)), None
    if has_intercept:
        triangle[:, 0], low, pivot = first_row(joint, shift, norms, limits)
    is_accidental = (triangle == 0) & np.triu(np.ones((k, k), dtype=bool))
    triangle[is_accidental] = np.broadcast_to(limits.tiny * norms[:, None, :], triangle.shape)[
        is_accidental
    ]
    return CellFactor(center, triangle, low, pivot, joint[:, :k, k], np.abs(joint[:, k, k]))


def _center(joint: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Solve ``R m = -d`` by back substitution, with zero for covariates that are nearly combinations."""
    k = joint.shape[-1] - 1
    center = np.zeros((len(joint), k))
    for i in reversed(range(k)):
        pivot = joint[:, i, i]
        to_fit = -joint[:, i, k] - np.einsum("nk,nk->n", joint[:, i, i + 1 : k], center[:, i + 1 :])
        is_new = np.abs(pivot) > NEW_SHARE * norms[:, i]
        np.divide(to_fit, pivot, out=center[:, i], where=is_new)
    return center


def _has_constant_first_covariate(read: ReadRows, n_rows: int) -> bool:
    """Return whether the first covariate is the same nonzero number in all rows."""
    first = read(slice(0, 1))[0, 0]
    return first != 0 and all((read(rows)[:, 0] == first).all() for rows in chunks_of(n_rows))


def _shifted(read: ReadRows, center: np.ndarray, shift: np.ndarray, counts: np.ndarray) -> ReadRows:
    """Add the covariates at the center to the targets, and subtract shares of the first covariate from the others.

    Computed in extended precision, if numpy has it.
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
