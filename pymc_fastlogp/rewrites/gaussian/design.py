"""Write the core of a square as a linear model: a target plus covariates times parameters."""

from typing import NamedTuple

import numpy as np
from pytensor.tensor.basic import constant, stack
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all
from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.analysis.triangles import ReadRows
from pymc_fastlogp.rewrites.gaussian.cells import GaussianCells
from pymc_fastlogp.rewrites.gaussian.squares import Monomial, Square
from pymc_fastlogp.rewrites.rows.view.axes import arrange_axes
from pymc_fastlogp.rewrites.rows.view.grid import ChosenRows, Grid, view_key


class Entry(NamedTuple):
    """The entry at position ``k`` along the only axis of ``x`` that is not of length one."""

    x: TensorVariable
    axis: int
    k: int


class Covariate(NamedTuple):
    """A column of the design matrix, and its coefficient in each cell.

    Attributes
    ----------
    column : Monomial
        The column.
    parameter : TensorVariable
        The coefficient, shape ``(n_cells,)``, or ``(1,)`` if all cells share it.
    entry : Entry, optional
        The vector entry that a shared parameter is, if the parameter is a plain entry.
    """

    column: Monomial
    parameter: TensorVariable
    entry: Entry | None

    @property
    def is_shared(self) -> bool:
        """Return whether all cells have the same parameter."""
        return self.parameter.type.broadcastable[0]


class Design(NamedTuple):
    """A target plus covariates times parameters.

    Parameters that cells share come last. Within each kind, columns that are the same in each row come first.
    """

    target: list[Monomial]
    covariates: list[Covariate]

    @property
    def n_cell_specific(self) -> int:
        """Return the number of parameters that differ between cells."""
        return sum(not covariate.is_shared for covariate in self.covariates)


def build_design(square: Square, cells: GaussianCells) -> Design:
    """Collect the monomials of a square by their constants."""
    target: list[Monomial] = []
    by_constants: dict[object, list[Monomial]] = {}
    for monomial in square.core:
        if monomial.unknowns:
            key = tuple((view_key(f.x, f.where), f.divides) for f in monomial.constants)
            by_constants.setdefault(key, []).append(monomial)
        else:
            target.append(monomial)
    covariates = [_covariate(cells, monomials) for monomials in by_constants.values()]
    return Design(target, sorted(covariates, key=lambda c: (c.is_shared, len(c.column.factors))))


def _covariate(cells: GaussianCells, monomials: list[Monomial]) -> Covariate:
    """Return the sum of monomials with the same constants."""
    # The column has the sign of the first monomial, so that the parameter of this monomial is unsigned.
    column = Monomial(monomials[0].constants, monomials[0].is_negative)
    parameters = [Monomial(m.unknowns, m.is_negative != column.is_negative) for m in monomials]
    return Covariate(column, cells.sum_of(parameters), _entry(parameters))


def _entry(parameters: list[Monomial]) -> Entry | None:
    """Return the vector entry that all rows read, if the coefficient is a plain entry."""
    first, *others = (factor for parameter in parameters for factor in parameter.unknowns)
    axes = [axis for axis in first.where if not first.x.type.broadcastable[axis]]
    if others or first.divides or parameters[0].is_negative or len(axes) != 1:
        return None
    position = first.where[axes[0]]
    if isinstance(position, int) or position.size > 1:
        return None
    return Entry(first.x, axes[0], int(position.flat[0]))


class Weights(NamedTuple):
    """Row weights before squaring, and the sign of the squares."""

    of_rows: np.ndarray
    is_negative: bool


def row_weights(grid: Grid, cells: GaussianCells, square: Square) -> Weights | None:
    """Return the weights of the rows, sorted by cell; None for squares of both signs."""
    multiplier = square.multiplier.at(grid, cells.rows)
    is_negative = bool((multiplier < 0).any())
    if is_negative and (multiplier > 0).any():
        return None
    scale = square.scale.at(grid, cells.rows)
    return Weights(np.sqrt(np.abs(multiplier)) * scale, is_negative)


def depends_on_data(design: Design) -> bool:
    """Return whether covariates or target are known only with the data."""
    columns = [covariate.column for covariate in design.covariates]
    return any(monomial.depends_on_data for monomial in [*columns, *design.target])


def rows_of_data(grid: Grid, cells: GaussianCells, design: Design) -> TensorVariable:
    """Return covariates and target as a function of data, shape ``(n_rows, k + 1)``, sorted by cell."""
    rows = _RowsOfData(grid, cells.rows)
    columns = [[covariate.column] for covariate in design.covariates] + [design.target]
    return stack([rows.sum_of(monomials) for monomials in columns], axis=1)


class _RowsOfData:
    """Some rows of factors that are known with the data.

    Parameters
    ----------
    grid : Grid
        All rows.
    rows : numpy.ndarray of int
        Numbers of the rows.
    """

    def __init__(self, grid: Grid, rows: np.ndarray):
        self._grid, self._rows = grid, rows
        self._at = np.unravel_index(rows, grid.shape)
        self._chosen = ChosenRows(grid.shape, len(rows))

    def sum_of(self, monomials: list[Monomial]) -> TensorVariable:
        """Return the sum of monomials in each row."""
        zeros = constant(np.zeros(len(self._rows)))
        return add_all([zeros, *map(self._product, monomials)])

    def _product(self, monomial: Monomial) -> TensorVariable:
        of_data = [factor for factor in monomial.factors if factor.depends_on_data]
        others = tuple(factor for factor in monomial.factors if not factor.depends_on_data)
        product = constant(Monomial(others, monomial.is_negative).at(self._grid, self._rows))
        for factor in of_data:
            where: Where = {axis: self._position(p) for axis, p in factor.where.items()}
            x = in_type(arrange_axes(self._chosen.at(factor.x, where), [0]), "float64")
            product = product / x if factor.divides else product * x
        return product

    def _position(self, position: int | np.ndarray) -> np.ndarray:
        if isinstance(position, int):
            return self._at[position]
        return np.broadcast_to(position, self._grid.shape)[self._at]


def row_reader(grid: Grid, cells: GaussianCells, design: Design) -> ReadRows:
    """Return a function that reads covariates and target, shape ``(.., k + 1)``, sorted by cell."""
    columns = [[covariate.column] for covariate in design.covariates] + [design.target]

    def read(part: slice) -> np.ndarray:
        rows = cells.rows[part]
        chunk = np.zeros((len(rows), len(columns)))
        for column, monomials in zip(chunk.T, columns):
            for monomial in monomials:
                column += monomial.at(grid, rows)
        return chunk

    return read
