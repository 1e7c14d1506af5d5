r"""Expressions for what is left of squares: the squares of the rows of triangles, summed over cells.

Parameters of a cell come first in its triangle, those that all cells share last, say :math:`p` of
them. The last :math:`p` rows of each triangle read nothing but those, so the ones of all cells
together are rows of one cell, and become one triangle in turn: of ``a[g] + X @ b`` one row is left
for each group, and ``p`` rows for all.

Each row is an expression of its own, a vector over the cells, so that no entry below the diagonal is
multiplied, and all rows share a loop. Where many parameters are shared, they are a vector, and what
multiplies them a matrix.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from pytensor.tensor.basic import constant, join
from pytensor.tensor.math import Sum, dot, sqr
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.rewrites.gaussian.cells import GaussianCells
from pymc_fastlogp.rewrites.gaussian.design import Covariate, Design, Entry
from pymc_fastlogp.rewrites.gaussian.factor import CellFactor, factorized
from pymc_fastlogp.rewrites.gaussian.squares import Square
from pymc_fastlogp.rewrites.rows.view.axes import moved
from pymc_fastlogp.rewrites.rows.view.grid import varies

# The most parameters that are written out one by one.
MOST_UNROLLED = 8

Known = Callable[[np.ndarray], TensorVariable]


def is_scaled_by_cell(cells: GaussianCells, square: Square) -> bool:
    """Return whether what squares are multiplied with differs from cell to cell."""
    factors = (*square.scale.others, *square.multiplier.others)
    return cells.n > 1 and any(varies(f.x, f.where) for f in factors)


def squares_left(cells: GaussianCells, square: Square, design: Design) -> tuple[int, int]:
    """Return how many squares of each cell are left, and how many of all together."""
    k = len(design.covariates)
    if is_scaled_by_cell(cells, square):
        return k + 1, 0
    return design.n_own, k - design.n_own + 1


def sum_of_squares(
    cells: GaussianCells, square: Square, design: Design, factor: CellFactor, dtype: str
) -> TensorVariable | None:
    """Return the sum of a square over all its cells, shape ``(1,)``; None if its constants are not finite."""

    def known(data: np.ndarray) -> TensorVariable:
        return constant(data.astype(dtype))

    rest = np.square(factor.rest)
    if is_scaled_by_cell(cells, square):
        rows = _rows(design.covariates, factor, len(design.covariates), known)
        return _over_cells(_scaled(cells, square, add_all([*map(sqr, rows), known(rest)])))
    own, shared = design.covariates[: design.n_own], design.covariates[design.n_own :]
    parts = []
    if own:
        rows = _rows(design.covariates, factor, len(own), known)
        parts.append(_over_cells(add_all(map(sqr, rows))))
    if own and shared:
        of_shared = _of_shared(factor, len(own), dtype)
        if of_shared is None:
            return None
        factor, rest = of_shared, np.append(rest, np.square(of_shared.rest))
    if shared:
        parts.append(_over_cells(_shared_squares(shared, factor, known)))
    return _scaled(cells, square, add_all([*parts, known(rest.sum(keepdims=True))]))


def _scaled(cells: GaussianCells, square: Square, squared: TensorVariable) -> TensorVariable:
    # The scale twice: its own square would overflow sooner.
    return cells.of(square.multiplier, cells.of(square.scale, cells.of(square.scale, squared)))


def _over_cells(in_cells: TensorVariable) -> TensorVariable:
    """Return the sum over cells, shape ``(1,)``."""
    return moved(Sum()(in_cells), ["x"])


def _rows(
    covariates: Sequence[Covariate], factor: CellFactor, n_rows: int, known: Known
) -> list[TensorVariable]:
    """Return the first rows of the triangles at the parameters, each a vector over the cells."""
    rows = []
    for j in range(n_rows):
        triangle, center = factor.triangle[:, j, j:], factor.center[:, j:]
        products = _products(covariates[j:], triangle, center, known)
        if factor.pivot is not None and j == 0:
            low = _low_products(covariates, factor, known)
            products = [known(factor.pivot) * add_all([*products, *low])]
        rows.append(add_all([*products, known(factor.offset[:, j])]))
    return rows


def _products(
    covariates: Sequence[Covariate], triangle: np.ndarray, center: np.ndarray, known: Known
) -> list[TensorVariable]:
    """Return entries of a row, shape ``(n, k)``, times deviations from the center."""
    n_unrolled = _n_unrolled(covariates)
    products = [
        _product(covariates[k], triangle[:, k], center[:, k], known) for k in range(n_unrolled)
    ]
    if n_unrolled < len(covariates):
        many, at = triangle[:, n_unrolled:], center[:, n_unrolled:].astype(np.longdouble)
        vector = _vector_of(covariates[n_unrolled:])
        products.append(dot(known(many), vector) - known((many * at).sum(axis=1)))
    return products


def _low_products(
    covariates: Sequence[Covariate], factor: CellFactor, known: Known
) -> list[TensorVariable]:
    """Return what rounding has left out of the first row."""
    return [
        _product(covariates[k], factor.low[:, k], factor.center[:, k], known)
        for k in range(_n_unrolled(covariates))
        if factor.low[:, k].any()
    ]


def _n_unrolled(covariates: Sequence[Covariate]) -> int:
    """Return how many products are written out: the shared parameters come last, and may be many."""
    n_shared = sum(covariate.is_shared for covariate in covariates)
    return len(covariates) - (n_shared if n_shared > MOST_UNROLLED else 0)


def _product(
    covariate: Covariate, entries: np.ndarray, center: np.ndarray, known: Known
) -> TensorVariable:
    """Return entries of a column, shape ``(n,)``, times the deviation from the center."""
    return known(entries) * (covariate.parameter - known(center))


def _of_shared(factor: CellFactor, n_own: int, dtype: str) -> CellFactor | None:
    """Make one cell of the rows that read nothing but shared parameters; None if their squares are not what they should be."""
    triangle = np.triu(factor.triangle[:, n_own:, n_own:])
    fit = np.einsum("njk,nk->nj", triangle.astype(np.longdouble), factor.center[:, n_own:])
    rows = np.dstack([triangle, factor.offset[:, n_own:] - fit.astype(float)])
    n_rows = rows.shape[0] * rows.shape[1]
    read = rows.reshape(n_rows, -1).__getitem__
    return factorized(read, np.ones(1), np.array([n_rows]), dtype)


def _shared_squares(
    covariates: Sequence[Covariate], factor: CellFactor, known: Known
) -> TensorVariable:
    """Return the squares of the rows of one triangle."""
    if len(covariates) <= MOST_UNROLLED:
        return add_all(map(sqr, _rows(covariates, factor, len(covariates), known)))
    triangle = np.triu(factor.triangle[0])
    if factor.pivot is not None:
        triangle[0] *= factor.pivot
    deviation = _vector_of(covariates) - known(factor.center[0])
    return sqr(dot(known(triangle), deviation) + known(factor.offset[0]))


def _vector_of(covariates: Sequence[Covariate]) -> TensorVariable:
    """Return shared parameters as a vector; the entries of one, all and in order, as that."""
    pieces: list[TensorVariable] = []
    for _, run in groupby(covariates, lambda covariate: covariate.entry and covariate.entry.x):
        of_run = [*run]
        entries = [covariate.entry for covariate in of_run if covariate.entry is not None]
        is_whole = bool(entries) and _is_whole(entries)
        pieces += (
            [moved(entries[0].x, [entries[0].axis])]
            if is_whole
            else (covariate.parameter for covariate in of_run)
        )
    return join(0, *pieces) if len(pieces) > 1 else pieces[0]


def _is_whole(entries: Sequence[Entry]) -> bool:
    length = entries[0].x.type.shape[entries[0].axis]
    return length is not None and [entry.k for entry in entries] == [*range(length)]
