"""Build the squares of the rows of triangles, summed over cells.

Parameters that differ between cells come first in a triangle, the :math:`p` parameters shared by all cells last. The
last :math:`p` rows of each triangle read shared parameters only. These rows of all cells are the rows of one cell, and
become one triangle. So of ``a[g] + X @ b`` remain one row per group, and ``p`` rows for all groups.

Each row is a vector expression over the cells, so entries below the diagonal are not multiplied, and all rows share a
loop. Many shared parameters are one vector, multiplied by a matrix.
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
from pymc_fastlogp.rewrites.gaussian.factor import CellFactor
from pymc_fastlogp.rewrites.gaussian.square_factors import SquareFactors
from pymc_fastlogp.rewrites.gaussian.squares import Square
from pymc_fastlogp.rewrites.rows.view.axes import arrange_axes
from pymc_fastlogp.rewrites.rows.view.grid import varies

# Most parameters that are written out one by one.
MOST_UNROLLED = 8

# Of constant rows, and of rows that are known with the data.
type Array = np.ndarray | TensorVariable
type AsConstant = Callable[[Array], TensorVariable]


def is_scaled_by_cell(cells: GaussianCells, square: Square) -> bool:
    """Return whether scale or multiplier differ between cells."""
    factors = (*square.scale.unknowns, *square.multiplier.unknowns)
    return cells.n > 1 and any(varies(f.x, f.where) for f in factors)


def count_squares(cells: GaussianCells, square: Square, design: Design) -> tuple[int, int]:
    """Return the number of remaining squares per cell, and of all cells together."""
    k = len(design.covariates)
    if is_scaled_by_cell(cells, square):
        return k + 1, 0
    return design.n_cell_specific, k - design.n_cell_specific + 1


def sum_of_squares(
    cells: GaussianCells, square: Square, design: Design, factors: SquareFactors, dtype: str
) -> TensorVariable:
    """Return the sum of a square over all its cells, shape ``(1,)``."""

    def as_constant(x: Array) -> TensorVariable:
        return constant(x.astype(dtype)) if isinstance(x, np.ndarray) else x.astype(dtype)

    factor, rest = factors.cells, factors.cells.rest**2
    if is_scaled_by_cell(cells, square):
        rows = _rows(design.covariates, factor, len(design.covariates), as_constant)
        return _over_cells(_scaled(cells, square, add_all([*map(sqr, rows), as_constant(rest)])))
    own, shared = (
        design.covariates[: design.n_cell_specific],
        design.covariates[design.n_cell_specific :],
    )
    parts = []
    if own:
        rows = _rows(design.covariates, factor, len(own), as_constant)
        parts.append(_over_cells(add_all(map(sqr, rows))))
    total = rest.sum(keepdims=True)
    if factors.shared is not None:
        factor, total = factors.shared, total + factors.shared.rest**2
    if shared:
        parts.append(_over_cells(_shared_squares(shared, factor, as_constant)))
    return _scaled(cells, square, add_all([*parts, as_constant(total)]))


def _scaled(cells: GaussianCells, square: Square, squared: TensorVariable) -> TensorVariable:
    # Multiplied twice, because the square of the scale would overflow sooner.

    return cells.of(square.multiplier, cells.of(square.scale, cells.of(square.scale, squared)))


def _over_cells(in_cells: TensorVariable) -> TensorVariable:
    """Return the sum over cells, shape ``(1,)``."""
    return arrange_axes(Sum()(in_cells), ["x"])


def _rows(
    covariates: Sequence[Covariate], factor: CellFactor, n_rows: int, as_constant: AsConstant
) -> list[TensorVariable]:
    """Return the first rows of the triangles at the parameters, each a vector over the cells."""
    rows = []
    for j in range(n_rows):
        triangle, center = factor.triangle[:, j, j:], factor.center[:, j:]
        products = _products(covariates[j:], triangle, center, as_constant)
        if factor.pivot is not None and j == 0:
            low = _low_products(covariates, factor, as_constant)
            products = [as_constant(factor.pivot) * add_all([*products, *low])]
        rows.append(add_all([*products, as_constant(factor.offset[:, j])]))
    return rows


def _products(
    covariates: Sequence[Covariate],
    triangle: Array,
    center: Array,
    as_constant: AsConstant,
) -> list[TensorVariable]:
    """Return entries of a row, shape ``(n, k)``, times deviations from the center."""
    n_unrolled = _n_unrolled(covariates)
    products = [
        _product(covariates[k], triangle[:, k], center[:, k], as_constant)
        for k in range(n_unrolled)
    ]
    if n_unrolled < len(covariates):
        many, at = triangle[:, n_unrolled:], center[:, n_unrolled:]
        vector = _vector_of(covariates[n_unrolled:])
        products.append(dot(as_constant(many), vector) - as_constant(_row_sums(many, at)))
    return products


def _row_sums(many: Array, at: Array) -> Array:
    """Return the sums of products, in extended precision if they are constants and numpy has it."""
    if isinstance(at, np.ndarray):
        at = at.astype(np.longdouble)
    return (many * at).sum(axis=1)


def _low_products(
    covariates: Sequence[Covariate], factor: CellFactor, as_constant: AsConstant
) -> list[TensorVariable]:
    """Return the products of the low parts of the first row."""
    return [
        _product(covariates[k], factor.low[:, k], factor.center[:, k], as_constant)
        for k in range(1, _n_unrolled(covariates))
        if not isinstance(factor.low, np.ndarray) or factor.low[:, k].any()
    ]


def _n_unrolled(covariates: Sequence[Covariate]) -> int:
    """Return the number of products that are written out. Shared parameters come last, and may be many."""
    n_shared = sum(covariate.is_shared for covariate in covariates)
    return len(covariates) - (n_shared if n_shared > MOST_UNROLLED else 0)


def _product(
    covariate: Covariate, entries: Array, center: Array, as_constant: AsConstant
) -> TensorVariable:
    """Return entries of a column, shape ``(n,)``, times the deviation from the center."""
    return as_constant(entries) * (covariate.parameter - as_constant(center))


def _shared_squares(
    covariates: Sequence[Covariate], factor: CellFactor, as_constant: AsConstant
) -> TensorVariable:
    """Return the squares of the rows of one triangle."""
    if len(covariates) <= MOST_UNROLLED:
        return add_all(map(sqr, _rows(covariates, factor, len(covariates), as_constant)))
    triangle = factor.triangle[0]
    if factor.pivot is not None:
        is_first = np.eye(len(covariates))[:, :1]
        triangle = is_first * (factor.pivot * triangle) + (1 - is_first) * triangle
    deviation = _vector_of(covariates) - as_constant(factor.center[0])
    return sqr(dot(as_constant(triangle), deviation) + as_constant(factor.offset[0]))


def _vector_of(covariates: Sequence[Covariate]) -> TensorVariable:
    """Return shared parameters as a vector. All entries of one vector in order are this vector itself."""
    pieces: list[TensorVariable] = []
    for _, run in groupby(covariates, lambda covariate: covariate.entry and covariate.entry.x):
        of_run = [*run]
        entries = [covariate.entry for covariate in of_run if covariate.entry is not None]
        is_whole = bool(entries) and _is_whole(entries)
        pieces += (
            [arrange_axes(entries[0].x, [entries[0].axis])]
            if is_whole
            else (covariate.parameter for covariate in of_run)
        )
    return join(0, *pieces) if len(pieces) > 1 else pieces[0]


def _is_whole(entries: Sequence[Entry]) -> bool:
    length = entries[0].x.type.shape[entries[0].axis]
    return length is not None and [entry.k for entry in entries] == [*range(length)]
