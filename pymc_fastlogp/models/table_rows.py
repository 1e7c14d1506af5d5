r"""Replace the likelihoods over tables by likelihoods over the distinct rows, weighted by their counts.

.. math::

    \sum_{i=1}^N \log p(y_i \mid x_i, \theta) = \sum_u n_u \log p(y_u \mid x_u, \theta)

In the new model the columns, or elementwise expressions of columns, are constants: few weighted rows, by one of the ways of
:mod:`pymc_fastlogp.tables.plan`. :class:`~pymc_fastlogp.models.weighted_rows.WeightedRows` multiplies the log density of each row by its weight.
The result is an ordinary PyMC model, so freezing, rewriting, caching and sampling need to know nothing of tables. Both sides differ by the
rounding of sums only.
"""

import logging
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pymc_fastlogp.models.freeze import can_be_frozen, copy_with_data
from pymc_fastlogp.models.table_likelihood import TableLikelihood, table_likelihoods
from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.columns import columns_in
from pymc_fastlogp.tables.expressions import Expression
from pymc_fastlogp.tables.plan import Outlook, Plan, Way

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")


class TableRows(NamedTuple):
    """Rows of a table that a likelihood reads: all, or those of a sample.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    engine : str
        Name of the engine.
    plan : Plan
        How the rows are read.
    rows : Summary
        The rows.
    axis : int
        Axis of the rows in the elementwise log density.
    is_from_disk : bool
        Whether a process before has read the rows.
    outlook : Outlook, optional
        Estimates for all rows, if the rows are those of the sample.
    """

    columns: tuple[str, ...]
    engine: str
    plan: Plan
    rows: Summary
    axis: int
    is_from_disk: bool = False
    outlook: Outlook | None = None

    def sentence(self) -> str:
        """Return the number of rows before and after, and how they were or are going to be read."""
        outlook, names = self.outlook, ", ".join(self.columns)
        if outlook is None:
            source = ", found on disk" if self.is_from_disk else ""
            if self.plan.way is Way.LOADED:
                loaded = f"loaded, since rows of {names} hardly repeat"
                return f"{self.rows.n_rows} rows of a table are {loaded}{source}"
            return f"{self.rows.n_rows} rows of a table are {self._reduced(str(self.rows.n_cells))}{source}"
        if outlook.loading:
            return outlook.loading
        n_sample = self.rows.n_rows
        if outlook.n_rows == n_sample:
            n_rows, n_cells, estimated = str(n_sample), str(outlook.n_cells), ""
        else:
            n_rows, n_cells = str(outlook.n_rows or "all"), f"about {outlook.n_cells}"
            first = "" if outlook.n_first is None else f" of the first {outlook.n_first}"
            estimated = f"; estimated from {n_sample}{first} rows"
        return f"{n_rows} rows of a table are to be read as {self._reduced(n_cells)}{estimated}"

    def _reduced(self, n_cells: str) -> str:
        """Return the number of cells, and how the engine finds them."""
        names = ", ".join(self.columns)
        match self.plan.way:
            case Way.FACTORED:
                return f"{n_cells} {_factors(self.plan)} ({self.engine}: {names} in batches)"
            case Way.EVALUATED:
                of = f"of {_texts(self.plan.keys)} with counts"
                return f"{n_cells} distinct rows {of} ({self.engine}: {names} in batches)"
        return f"{n_cells} distinct rows with counts ({self.engine}: GROUP BY {names})"


def _factors(plan: Plan) -> str:
    by = f" by {_texts(plan.keys)}" if plan.keys else ""
    return f"triangular factors of 1, {_texts(plan.others)}{by}"


def _texts(expressions: Iterable[Expression]) -> str:
    return ", ".join(x.text for x in expressions)


def _intent(plan: Plan) -> str:
    """Return how rows are going to be read."""
    match plan.way:
        case Way.LOADED:
            return f"all rows of {_texts(plan.keys)} are loaded"
        case Way.GROUPED:
            return f"distinct rows are counted by GROUP BY {_texts(plan.keys)}"
        case Way.FACTORED:
            return f"batches of rows are summarized as {_factors(plan)}"
    return f"batches of rows are summarized as distinct rows of {_texts(plan.keys)}"


class Reduced(NamedTuple):
    """Model whose likelihoods over tables are evaluated at distinct rows.

    Attributes
    ----------
    model : pymc.Model
        The model.
    tables : dict of str to TableRows
        Rows by the name of the likelihood.
    """

    model: "pm.Model"
    tables: Mapping[str, TableRows]


class RowsRead(Enum):
    """Rows of a table by which a model is reduced."""

    ALL = auto()
    # The sample that decides how rows are read, unless all rows were read before.
    SAMPLE = auto()
    # Those that the placeholders hold.
    FIRST = auto()


def reads_table(model: "pm.Model") -> bool:
    """Return whether any variable of a model reads a table.

    Raises
    ------
    ValueError
        If a variable does, and PyMC can't copy the model.
    """
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if not columns_in([*model.basic_RVs, *values, *model.potentials, *model.deterministics]):
        return False
    if not can_be_frozen(model):
        raise ValueError(
            "a model of a table can't be inside of another model, or have symbolic initial values: write it on its own, with numbers."
        )
    return True


def without_tables(model: "pm.Model", rows: RowsRead = RowsRead.ALL) -> Reduced:
    """Return a model whose likelihoods read distinct rows with counts in place of tables.

    Parameters
    ----------
    model : pymc.Model
        The model, returned as it is if it reads no table.
    rows : RowsRead
        Rows of the tables.

    Raises
    ------
    ValueError
        If PyMC can't copy the model, or as :func:`~pymc_fastlogp.models.table_likelihood.table_likelihoods`.
    """
    if not reads_table(model):
        return Reduced(model, {})
    copy = copy_with_data(model)
    likelihoods = table_likelihoods(copy)
    for x in likelihoods:  # before rows are read
        before = ", read before" if x.table.has_read(x.plan) else ""
        logger.info("%s: %s (%s%s)", x.factor.name, _intent(x.plan), x.table.engine, before)
    tables = {x.factor.name: _read(x, rows) for x in likelihoods}
    for x in likelihoods:
        x.replace(copy, tables[x.factor.name].rows)
    return Reduced(copy, tables)


def _read(likelihood: TableLikelihood, rows: RowsRead) -> TableRows:
    """Return the rows of a likelihood."""
    table, plan = likelihood.table, likelihood.plan
    of_likelihood = partial(TableRows, likelihood.names, table.engine, plan, axis=likelihood.axis)
    if rows is RowsRead.FIRST:
        return of_likelihood(table.first_rows(plan))
    if rows is RowsRead.SAMPLE and not table.has_read(plan):
        outlook = table.outlook(plan)
        return of_likelihood(outlook.rows, outlook=outlook)
    found = table.rows(plan)
    return of_likelihood(found, is_from_disk=table.is_from_disk(plan))
