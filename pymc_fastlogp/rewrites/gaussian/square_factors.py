"""Factors of a square: those of each cell and, if parameters are shared, that of all cells.

The factors of constant rows are constants. Rows of :class:`~pymc_fastlogp.analysis.known_data.KnownData` are known only with the data, so
:class:`FactorsOfData` computes their factors in the graph.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import constant
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.known_data import UnusableDataError
from pymc_fastlogp.analysis.triangles import ReadRows
from pymc_fastlogp.rewrites.gaussian.cells import GaussianCells
from pymc_fastlogp.rewrites.gaussian.design import Design, depends_on_data, row_reader, rows_of_data
from pymc_fastlogp.rewrites.gaussian.factor import CellFactor, factorized
from pymc_fastlogp.rewrites.rows.view.grid import Grid


class SquareFactors(NamedTuple):
    """Factors of the rows of a square.

    Attributes
    ----------
    cells : CellFactor
        Factors of the rows of each cell.
    shared : CellFactor, optional
        Factor of those rows of all triangles that read shared parameters only, as one cell.
    """

    cells: CellFactor
    shared: CellFactor | None


def square_factors(
    read: ReadRows,
    weights: np.ndarray,
    counts: np.ndarray,
    n_own: int | None,
    dtype: str,
    *,
    may_have_intercept: bool = True,
) -> SquareFactors | None:
    """Factorize rows; arguments and result as for :func:`~pymc_fastlogp.rewrites.gaussian.factor.factorized`.

    ``n_own`` is the number of parameters that differ between cells, None if the rows of shared parameters stay apart by cell.
    """
    cells = factorized(read, weights, counts, dtype, may_have_intercept=may_have_intercept)
    if cells is None or not n_own or n_own == cells.center.shape[1]:
        return None if cells is None else SquareFactors(cells, None)
    triangle = np.triu(cells.triangle[:, n_own:, n_own:])
    fit = np.einsum("njk,nk->nj", triangle.astype(np.longdouble), cells.center[:, n_own:])
    rows = np.dstack([triangle, cells.offset[:, n_own:] - fit.astype(float)])
    n_rows = rows.shape[0] * rows.shape[1]
    read = rows.reshape(n_rows, -1).__getitem__
    counts = np.array([n_rows])
    # Below the diagonal are zeros.
    shared = factorized(read, np.ones(1), counts, dtype, may_have_intercept=False)
    return None if shared is None else SquareFactors(cells, shared)


def factors_of_design(
    grid: Grid,
    cells: GaussianCells,
    design: Design,
    weights: np.ndarray,
    n_own: int | None,
    dtype: str,
) -> SquareFactors | None:
    """Return the factors of the rows of a design, None if they are constants that are not finite, overflow or underflow."""
    if not depends_on_data(design):
        rows = row_reader(grid, cells, design)
        return square_factors(rows, weights, cells.counts, n_own, dtype)
    has_intercept = len(design.covariates) > 1 and _is_intercept(design, grid, cells)
    op = FactorsOfData(n_own, dtype, has_intercept=has_intercept)
    return op.factors(rows_of_data(grid, cells, design), weights, cells.counts)


def _is_intercept(design: Design, grid: Grid, cells: GaussianCells) -> bool:
    """Return whether the first covariate is the same nonzero number in all rows, whatever the data."""
    column = design.covariates[0].column
    if column.depends_on_data:
        return False
    values = column.at(grid, cells.rows)
    return bool(values[0] != 0 and (values == values[0]).all())


class FactorsOfData(Op):
    """Factors of rows that are known with the data: the arrays of each :class:`CellFactor` of :func:`square_factors`.

    Parameters
    ----------
    n_own : int, optional
        As for :func:`square_factors`.
    dtype : str
        Dtype of the sum.
    has_intercept : bool
        Whether the first covariate is the same number in all rows, for any data.
    """

    __props__: ClassVar[tuple[str, ...]] = ("n_own", "dtype", "has_intercept")

    def __init__(self, n_own: int | None, dtype: str, *, has_intercept: bool):
        self.n_own, self.dtype, self.has_intercept = n_own, dtype, has_intercept

    def make_node(self, rows: Any, weights: Any, counts: Any) -> Apply:
        """Return the node of rows, shape ``(n_rows, k + 1)``, their weights, and the numbers of rows of the cells."""
        n, k = counts.type.shape[0], rows.type.shape[1] - 1
        levels = [(n, k)]
        if self.n_own and self.n_own < k:
            levels.append((1, k - self.n_own))
        shapes = [shape for level in levels for shape in _shapes(*level)]
        return Apply(
            self, [rows, weights, counts], [TensorType(self.dtype, shape)() for shape in shapes]
        )

    def perform(self, node: Apply, inputs: list[Any], output_storage: list[list[Any]]) -> None:
        """Factorize the rows.

        Raises
        ------
        UnusableDataError
            If the data are not finite, or squares of data overflow or underflow.
        """
        rows, weights, counts = inputs
        with np.errstate(all="ignore"):
            found = square_factors(
                rows.__getitem__,
                weights,
                counts,
                self.n_own,
                self.dtype,
                may_have_intercept=self.has_intercept,
            )
        if found is None:
            raise UnusableDataError("data are not finite, or their squares overflow or underflow")
        levels = [level for level in found if level is not None]
        arrays = [x for level in levels for x in _arrays(level, self.dtype)]
        for cell, x in zip(output_storage, arrays, strict=True):
            cell[0] = x

    def factors(
        self, rows: TensorVariable, weights: np.ndarray, counts: np.ndarray
    ) -> SquareFactors:
        """Return the factors of rows as variables."""
        outputs = self.make_node(rows, constant(weights), constant(counts)).outputs
        n = len(CellFactor._fields)
        cells, shared = CellFactor(*outputs[:n]), None
        if not self.has_intercept:
            cells = cells._replace(pivot=None)
        if len(outputs) > n:
            shared = CellFactor(*outputs[n:])._replace(pivot=None)
        return SquareFactors(cells, shared)


def _shapes(n: int, k: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the arrays of a :class:`CellFactor`, for ``n`` cells with ``k`` covariates."""
    return (n, k), (n, k, k), (n, k), (n,), (n, k), (n,)


def _arrays(factor: CellFactor, dtype: str) -> list[np.ndarray]:
    """Return the arrays of a factor, of which the graph needs all: low parts of zero become negligible, with the sign of their shares."""
    negligible = np.copysign(np.finfo(dtype).tiny, factor.triangle[:, 0])
    low = np.where(factor.low == 0, negligible, factor.low)
    pivot = np.ones(len(low)) if factor.pivot is None else factor.pivot
    arrays = (factor.center, factor.triangle, low, pivot, factor.offset, factor.rest)
    return [x.astype(dtype) for x in arrays]
