r"""Choose how the rows of a likelihood are read, from a sample of the rows.

=============  =========================================================  ===========================================================
way            if                                                         read
=============  =========================================================  ===========================================================
``GROUPED``    the columns have few distinct rows                         ``GROUP BY`` the columns, by the engine
``FACTORED``   the log density is quadratic in some expressions of        batches, as a :class:`triangular factor
               columns, and the others have few distinct values           <pymc_fastlogp.tables.factors.Factors>` per value of the others
``EVALUATED``  expressions of columns have few distinct values            batches, as distinct values of the expressions
``LOADED``     none of these                                              all rows, if they fit into memory
=============  =========================================================  ===========================================================

The number of cells of the table is estimated from a random sample, by the numbers :math:`f_1` and :math:`f_2` of cells with one and with two rows of the sample.
With :math:`d` cells among :math:`n` of :math:`N` rows, the bias-corrected estimator of Chao is

.. math::

    \min\Bigl(d + \frac{f_1 (f_1 - 1)}{2 (f_2 + 1)}, \; d - f_1 + \frac{N}{n} f_1\Bigr),

where the bound takes each cell with one row as cells of the rows that it stands for.

References
----------
A. Chao, "Nonparametric estimation of the number of classes in a population", Scandinavian Journal of Statistics 11 (1984).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Protocol

import numpy as np

from pymc_fastlogp.tables.cells import AllRows, Cells, Summary
from pymc_fastlogp.tables.columns import Column
from pymc_fastlogp.tables.expressions import Expression, is_finite
from pymc_fastlogp.tables.factors import Factors
from pymc_fastlogp.tables.sample import N_SAMPLE

# Rows are merged if fewer than this share of the rows remain.
MAX_DISTINCT_SHARE = 0.7
# So few distinct rows of the columns need no comparison with other ways.
FEW_SHARE = 0.1


class Way(Enum):
    """Method of reading the rows, as in the table of the module."""

    GROUPED = auto()
    FACTORED = auto()
    EVALUATED = auto()
    LOADED = auto()


@dataclass(frozen=True)
class Plan:
    """Method of reading the rows of a likelihood, and its expressions.

    Attributes
    ----------
    way : Way
        The method.
    keys : tuple of Expression
        Expressions whose distinct values are cells: columns, if the engine groups or all rows are loaded.
    others : tuple of Expression
        Expressions in which the log density is quadratic.
    """

    way: Way
    keys: tuple[Expression, ...]
    others: tuple[Expression, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions whose values are needed."""
        return (*self.keys, *self.others)

    def values(self, columns: Mapping[Column, np.ndarray]) -> list[np.ndarray]:
        """Return the values of the expressions in some rows.

        Raises
        ------
        ValueError
            If a value is not finite.
        """
        values = [x.values(columns) for x in self.expressions]
        for x, of_rows in zip(self.expressions, values):
            if not is_finite(of_rows):
                raise ValueError(
                    f"{x.text} has NaN or infinite values: drop or fill such rows in the table, as by table(frame.filter(...))."
                )
        return values

    @property
    def is_of_columns(self) -> bool:
        """Return whether the keys are all columns that the likelihood reads."""
        return self.way in (Way.GROUPED, Way.LOADED)


@dataclass(frozen=True)
class Outlook:
    """Rows of a table before they are read.

    Attributes
    ----------
    rows : Summary
        Summary of the rows of the sample.
    n_rows : int, optional
        Number of rows of the table, if known.
    n_cells : int
        Number of cells of the table, estimated.
    n_first : int, optional
        The sample is drawn from so many first rows; None if it is drawn from all parts of the table.
    loading : str
        Number and bytes of rows that have to be loaded, and what to do; empty if rows are reduced.
    """

    rows: Summary
    n_rows: int | None
    n_cells: int
    n_first: int | None = None
    loading: str = ""


class Density(Protocol):
    """Log density of a row as a function of expressions."""

    def is_quadratic(self, expressions: Sequence[Expression]) -> bool:
        """Return whether the log density is a polynomial of degree two in these expressions, jointly."""
        ...


def plan_of(
    sample: Mapping[Expression, np.ndarray],
    columns: Sequence[Expression],
    expressions: Sequence[Expression],
    density: Density,
    count_rows: Callable[[], int],
) -> Plan:
    """Return the way to read the rows of a likelihood.

    Parameters
    ----------
    sample : dict of Expression to ndarray
        Values in at most :data:`~pymc_fastlogp.tables.sample.N_SAMPLE` rows, at least one.
    columns, expressions : sequence of Expression
        The columns, and the expressions of these that the log density reads.
    density : Density
        The log density.
    count_rows : callable
        Returns the number of rows of the table.
    """
    of_columns = _cells(sample, columns)
    grouped = Plan(Way.GROUPED, (*columns,))
    if of_columns.n_cells <= FEW_SHARE * of_columns.n_rows:
        return grouped
    n_rows = of_columns.n_rows if of_columns.n_rows < N_SAMPLE else count_rows()
    n_distinct = expected_cells(of_columns.counts, n_rows)
    of_rows = (
        grouped if n_distinct <= MAX_DISTINCT_SHARE * n_rows else Plan(Way.LOADED, (*columns,))
    )
    if not all(is_finite(sample[x]) for x in expressions):  # a key may be no NaN
        return of_rows
    points, factored = _fewest_points(sample, expressions, density, n_rows)
    if points <= MAX_DISTINCT_SHARE * n_distinct:
        return factored
    evaluated = expected_cells(_cells(sample, expressions).counts, n_rows)
    if evaluated <= MAX_DISTINCT_SHARE * n_distinct:
        return Plan(Way.EVALUATED, (*expressions,))
    return of_rows


def summarize(plan: Plan, values: Sequence[np.ndarray]) -> Summary:
    """Return the summary of rows, from the values of the expressions of a plan. Columns of a summary are named by their place in the plan."""
    named = {str(k): x for k, x in enumerate(values)}
    keys = {name: named.pop(name) for name in [*named][: len(plan.keys)]}
    match plan.way:
        case Way.LOADED:
            return AllRows(keys)
        case Way.FACTORED:
            return Factors.summarize(keys, named)
    return Cells.summarize(keys)


def expected_cells(counts: np.ndarray, n_rows: float) -> float:
    """Return the expected number of cells of ``n_rows`` rows, by the numbers of rows of the cells of a sample."""
    d, n = len(counts), counts.sum()
    single, double = (counts == 1).sum(), (counts == 2).sum()
    return min(d + single * (single - 1) / (2 * (double + 1)), d + single * (n_rows / n - 1))


def n_points(n_others: int) -> int:
    """Return the number of points that stand for the rows of a cell, at most."""
    return 1 + 3 * n_others


def _fewest_points(
    sample: Mapping[Expression, np.ndarray],
    expressions: Sequence[Expression],
    density: Density,
    n_rows: int,
) -> tuple[float, Plan]:
    """Return the plan of factors that needs the fewest points, and their number.

    Floating numbers are no keys if the log density is quadratic in them, because few distinct values in the sample may be many in the table.
    Expressions with many distinct values come first.
    """
    n_distinct = {x: len(np.unique(sample[x])) for x in expressions}
    best, others = (inf, Plan(Way.FACTORED, (*expressions,))), list[Expression]()
    for x in sorted(expressions, key=lambda x: (not _is_floating(x), -n_distinct[x])):
        if x.dtype == "bool" or not density.is_quadratic([*others, x]):
            continue
        others.append(x)
        keys = [key for key in expressions if key not in others]
        n = n_points(len(others)) * expected_cells(_cells(sample, keys).counts, n_rows)
        if n < best[0] or _is_floating(x):
            best = n, Plan(Way.FACTORED, (*keys,), (*others,))
    return best


def _is_floating(x: Expression) -> bool:
    return x.dtype.startswith("float")


def _cells(sample: Mapping[Expression, np.ndarray], expressions: Sequence[Expression]) -> Cells:
    if not expressions:
        return Cells({}, np.array([len(next(iter(sample.values())))]))
    return Cells.summarize({x.text: sample[x] for x in expressions})
