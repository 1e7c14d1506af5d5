r"""Triangular factors of cells: the summary of rows by which a quadratic log density can be evaluated exactly.

Rows with the same keys are a cell. Let the log density of a row be a polynomial :math:`q` of degree two in some columns
:math:`x_i \in \mathbb{R}^m`, as that of a normal distribution is in outcome and covariates. Its coefficients depend on the keys and on
parameters. Then the number, mean :math:`\bar x` and scatter :math:`S` of the rows of a cell determine

.. math::

    \sum_{i=1}^n q(x_i) = n \, q(\bar x) + \tfrac12 \operatorname{tr}(S \nabla^2 q), \qquad
    S = \sum_i (x_i - \bar x)(x_i - \bar x)^\top .

**Summary.** The triangular factor of the rows :math:`[1, x_i - c]`, with any center :math:`c`,

.. math::

    \begin{bmatrix} \sqrt n & \sqrt n \, (\bar x - c)^\top \\ 0 & L \end{bmatrix}, \qquad L^\top L = S,

is orthogonal throughout: nothing is expanded into moments, so nothing cancels. The center is a row of the cell, so differences from it
are of the size of the spread, whatever the mean. Factors of two parts of a table merge by the factorization of one upon the other, after both
have the same center. A change of the center changes the first row alone. Merging in another order changes the last digits.

**Points.** The sum over the rows of a cell is that over weighted points, for all quadratic :math:`q`. A reduced model is therefore an ordinary model
of few rows. With the rows :math:`\ell_j` of :math:`L / \sqrt n`, and any :math:`K`,

.. math::

    \sum_i q(x_i) = n \Bigl(1 - \frac{m}{K^2}\Bigr) q(\bar x)
    + \sum_{j=1}^m \frac{n}{2 K^2} \bigl(q(\bar x + K \ell_j) + q(\bar x - K \ell_j)\bigr) .

Points have to be numbers of the precision of the data. If the mean is much larger than the spread, :math:`\bar x + \ell_j` has few digits of
:math:`\ell_j`. So :math:`K` is the ratio of both, and a power of two. The mean itself lies between two numbers: the number :math:`c_0`
next to it gets the weight of the mean, and a part of the weight moves to :math:`c_0 + h e_k` for each column :math:`k`, so that the mean is that of the
rows. These steps :math:`h` are of the size of round-off, so their squares are negligible.

References
----------
J. Demmel, L. Grigori, M. Hoemmen and J. Langou, "Communication-optimal parallel and sequential QR and LU factorizations", SIAM Journal on
Scientific Computing 34 (2012).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pymc_fastlogp.analysis.triangles import triangles
from pymc_fastlogp.tables.cells import Points, sort_by_cell, without_negative_zero


@dataclass(frozen=True)
class Factors:
    """Triangular factors of the rows of each cell.

    Attributes
    ----------
    keys : dict of str to ndarray
        Keys of the cells, in lexicographic order.
    names : tuple of str
        Names of the ``m`` other columns.
    counts : ndarray of int64
        Number of rows of each cell.
    centers : ndarray
        A row of each cell, shape ``(n_cells, m)``.
    triangles : ndarray
        Upper triangles with a diagonal that is not negative, shape ``(n_cells, m + 1, m + 1)``.
    """

    keys: Mapping[str, np.ndarray]
    names: tuple[str, ...]
    counts: np.ndarray
    centers: np.ndarray
    triangles: np.ndarray

    @classmethod
    def summarize(
        cls, keys: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
    ) -> "Factors":
        """Return the factors of rows, of which there is at least one."""
        keys = {name: without_negative_zero(x) for name, x in keys.items()}
        rows = np.column_stack([np.ones(len(next(iter(others.values())))), *others.values()])
        order, starts = sort_by_cell(keys, len(rows))
        first, counts = order[starts], np.diff(starts, append=len(rows))
        centers = rows[first]
        centers[:, 0] = 0
        rows = np.take(rows, order, axis=0)
        rows -= np.repeat(centers, counts, axis=0)
        upper = triangles(rows.__getitem__, np.ones(1), counts)
        of_cells = {name: x[first] for name, x in keys.items()}
        return cls(of_cells, tuple(others), counts, centers[:, 1:], _signed(upper))

    def merge(self, other: "Factors") -> "Factors":
        """Return the factors of the rows of both."""
        keys = {name: np.concatenate([x, other.keys[name]]) for name, x in self.keys.items()}
        counts = np.concatenate([self.counts, other.counts])
        centers = np.concatenate([self.centers, other.centers])
        upper = np.concatenate([self.triangles, other.triangles])
        order, starts = sort_by_cell(keys, len(counts))
        first = order[starts]
        [in_both] = np.nonzero(np.diff(starts, append=len(order)) == 2)
        one, two = first[in_both], order[starts[in_both] + 1]
        moved = upper[two]
        moved[:, 0, 1:] += moved[:, 0, :1] * (centers[two] - centers[one])
        merged = upper[first]
        stacked = np.concatenate([upper[one], moved], axis=1)
        merged[in_both] = _signed(np.linalg.qr(stacked, mode="r"))
        return Factors(
            {name: x[first] for name, x in keys.items()},
            self.names,
            np.add.reduceat(counts[order], starts),
            centers[first],
            merged,
        )

    @property
    def n_cells(self) -> int:
        """Return the number of cells."""
        return len(self.counts)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(self.counts.sum())

    def points(self, dtype: str) -> Points:
        """Return weighted points with the counts, means and scatter of the cells, in a floating dtype."""
        m, n, center = len(self.names), self.counts.astype(np.float64), self.centers
        root = np.sqrt(n)[:, None]
        # Differences from the center, since the mean may have more digits than a number.
        mean = self.triangles[:, 0, 1:] / root
        axes = self.triangles[:, 1:, 1:] / root[:, None]
        middle, spread = (center + mean).astype(dtype), np.linalg.norm(axes, axis=1)
        far = _distance(middle, spread)
        away = far[:, None, None] * axes
        ends = [(middle[:, None] + x).astype(dtype) for x in (away, -away)]
        of_axes = np.where(away.any(axis=2), (n / (2 * np.square(far)))[:, None], 0)
        # Exact difference between the mean of the points so far and that of the rows.
        missing = n[:, None] * ((center - middle.astype(np.longdouble)) + mean)
        for x in ends:
            moved = x.astype(np.longdouble) - middle[:, None]
            missing -= np.einsum("cj,cjk->ck", of_axes, moved)
        steps = middle + np.sign(missing).astype(dtype) * _step(middle, spread)
        length = steps.astype(np.longdouble) - middle
        of_steps = np.divide(missing, length, out=np.zeros_like(missing), where=missing != 0)
        beside = middle[:, None] + (steps - middle)[:, :, None] * np.eye(m, dtype=dtype)
        points = np.concatenate([middle[:, None], *ends, beside], axis=1)
        weights = np.concatenate([np.zeros((len(n), 1)), of_axes, of_axes, of_steps], axis=1)
        weights[:, 0] = n - weights.sum(axis=1)
        cell, place = np.nonzero(weights)
        columns = {name: x[cell] for name, x in self.keys.items()}
        columns |= dict(zip(self.names, points[cell, place].T, strict=True))
        return Points(columns, weights[cell, place].astype(np.float64))


def _signed(upper: np.ndarray) -> np.ndarray:
    """Return the triangles with a diagonal that is not negative."""
    sign = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return np.triu(upper * sign[:, :, None])


def _distance(middle: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return ``K`` of each cell: the largest ratio of mean and spread, and enough for a positive weight of the mean."""
    ratio = np.divide(np.abs(middle), spread, out=np.zeros_like(spread), where=spread > 0)
    return np.exp2(np.ceil(np.log2(np.maximum(ratio.max(axis=1), 4 * np.sqrt(spread.shape[1])))))


def _step(middle: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return ``h`` of each column: units of round-off, so many that steps get a small part of the weight."""
    unit = np.spacing(np.maximum(np.abs(middle), spread).astype(middle.dtype))
    # A power of two, so that the product is exact.
    return unit * middle.dtype.type(2 ** (8 * spread.shape[1] - 1).bit_length())
