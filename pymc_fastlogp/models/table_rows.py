r"""Replace the likelihoods over tables by likelihoods over the distinct rows, weighted by their counts.

.. math::

    \sum_{i=1}^N \log p(y_i \mid x_i, \theta) = \sum_u n_u \log p(y_u \mid x_u, \theta)

A likelihood is a random variable whose observed values or parameters read placeholders of :mod:`pymc_fastlogp.tables`. In the
new model the placeholders are constants: the distinct rows of the columns that the likelihood reads. :class:`~pymc_fastlogp.models.weighted_rows.WeightedRows`
multiplies the log density of each by its count. The result is an ordinary PyMC model, so freezing, rewriting, caching and sampling need to know nothing of tables.
Counts are integers, so both sides differ by the rounding of sums only.

This holds if each entry of the elementwise log density depends on one row, which :mod:`pymc_fastlogp.analysis.row_axis` proves for the
graph. Potentials that are elementwise over rows are replaced in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, io_toposort

from pymc_fastlogp.analysis.row_axis import NotByRowError, row_axis
from pymc_fastlogp.models.freeze import can_be_frozen, copy_with_data
from pymc_fastlogp.tables.columns import Column, columns_in

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.tables.engine_table import Rows

type ReadRows = Callable[[list[Column]], "Rows"]


class TableRows(NamedTuple):
    """Rows of a table that a likelihood reads.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    engine : str
        Name of the engine.
    rows : Rows
        The rows.
    axis : int
        Axis of the rows in the elementwise log density.
    """

    columns: tuple[str, ...]
    engine: str
    rows: "Rows"
    axis: int

    def sentence(self) -> str:
        """Return the number of rows before and after, and the query."""
        names = ", ".join(self.columns)
        source = ", found on disk" if self.rows.is_from_disk else ""
        if self.rows.counts is None:
            return f"{self.rows.n_rows} rows of a table are loaded, since rows of {names} hardly repeat{source}"
        return (
            f"{self.rows.n_rows} rows of a table are {self.rows.n_cells} distinct rows with counts"
            f" ({self.engine}: GROUP BY {names}){source}"
        )


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


def without_tables(model: "pm.Model", *, first_rows: bool = False) -> Reduced:
    """Return a model whose likelihoods read distinct rows with counts in place of tables.

    Parameters
    ----------
    model : pymc.Model
        The model, returned as it is if it reads no table.
    first_rows : bool
        Whether the rows are those that the placeholders hold, in place of all.

    Raises
    ------
    ValueError
        If a part of the model reads a table in another way than row by row in a likelihood, if PyMC can't copy the model, or for the values of the table.
    """
    if not columns_in(_variables(model)):
        return Reduced(model, {})
    if not can_be_frozen(model):
        raise ValueError(
            "a model of a table can't be inside of another model, or have symbolic initial values: write it on its own, with numbers."
        )
    copy = copy_with_data(model)
    _refuse_values_by_row(copy)
    tables: dict[str, TableRows] = {}
    factors = [*copy.observed_RVs, *copy.potentials]
    for factor in factors:  # before one is replaced
        _refuse_other_observed(copy, factor)
    for factor in factors:
        columns = columns_in([factor, *_value_of(copy, factor)])
        if not columns:
            continue
        name = factor.name
        axis = _axis(copy, factor, columns)
        table = _table_of(name, columns)
        read: ReadRows = table.first_rows if first_rows else table.rows
        names = tuple(x for x in table.columns if x in {column.name for column in columns.values()})
        rows = read(sorted(columns.values(), key=lambda x: (names.index(x.name), x.is_coded)))
        tables[name] = TableRows(names, table.engine, rows, axis)
        _replace(copy, factor, axis, columns, rows)
    return Reduced(copy, tables)


def _variables(model: "pm.Model") -> list[Variable]:
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    return [*model.basic_RVs, *values, *model.potentials, *model.deterministics]


def _value_of(model: "pm.Model", factor: Variable) -> list[Variable]:
    """Return the value of an observed variable, nothing for a potential."""
    return [model.rvs_to_values[factor]] if factor in model.rvs_to_values else []


def _refuse_values_by_row(model: "pm.Model") -> None:
    """Raise ValueError for free variables and deterministics that read a table."""
    for x in model.deterministics:
        if columns_in([x]):
            raise ValueError(
                f"the Deterministic {x.name} has a value for each row of a table: write it without pm.Deterministic, or an ordered distribution with compute_p=False."
            )
    for x in model.free_RVs:
        if columns_in([x]):
            raise ValueError(
                f"the free variable {x.name} reads a table: only likelihoods may, so give it a fixed shape and index it by a column."
            )


def _refuse_other_observed(model: "pm.Model", factor: Variable) -> None:
    """Raise ValueError if a factor reads an observed variable over a table, whose rows are not those of the factor."""
    above = {*ancestors([factor])} - {factor}
    for x in model.observed_RVs:
        if x in above and columns_in([x, model.rvs_to_values[x]]):
            raise ValueError(
                f"{factor.name} reads the observed variable {x.name}: let it read the column of the table."
            )


def _table_of(name: str, columns: Mapping[Variable, Column]) -> Any:
    """Return the one table of a likelihood."""
    tables = {id(x.table): x.table for x in columns.values()}
    if None in tables.values():
        raise ValueError(
            f"{name} reads a table of another process: call table() and build the model in this process."
        )
    if len(tables) > 1:
        raise ValueError(
            f"{name} reads {len(tables)} tables: join them in their engine, and give the model one."
        )
    [table] = tables.values()
    return table


def _axis(model: "pm.Model", factor: Any, columns: Iterable[Variable]) -> int:
    """Return the axis of the rows in the elementwise log density of a factor."""
    if model.named_vars_to_dims.get(factor.name):
        raise ValueError(
            f"{factor.name} has dims, but rows of a table have no coordinates: leave dims out."
        )
    [density] = model.logp(vars=[factor], jacobian=False, sum=False)
    try:
        axis = row_axis(density, columns)
    except NotByRowError as error:
        raise ValueError(f"{factor.name} is not evaluated row by row, because {error}.") from None
    if axis is None:
        raise ValueError(
            f"{factor.name} has no entry for each row of a table: write a likelihood with observed=table['column']."
        )
    return axis


def _replace(
    model: "pm.Model", factor: Any, axis: int, columns: Mapping[Variable, Column], rows: "Rows"
) -> None:
    """Replace a factor by that of the distinct rows, in place."""
    import pytensor.tensor as pt

    from pymc_fastlogp.models.weighted_rows import WeightedRows, weighted

    name = factor.name
    known = {
        x: pt.constant(rows.columns[column].astype(x.type.dtype)) for x, column in columns.items()
    }
    counts = np.ones(rows.n_cells) if rows.counts is None else rows.counts
    weights = pt.constant(counts.astype(config.floatX), name=f"{name}_n_rows")
    is_weighted = rows.counts is not None
    if is_weighted:  # so that draws come with the counts
        model.data_vars.append(weights)
        model.add_named_variable(weights)
    del model.named_vars[name]
    if factor in model.potentials:
        [new] = _rebuilt([factor], known)
        new = weighted(new, weights, axis) if is_weighted else new
        _exchange(model.potentials, factor, new)
    else:
        new, value = _rebuilt([factor, model.rvs_to_values[factor]], known)
        new = WeightedRows(axis)(new, weights) if is_weighted else new
        # Several variables may observe one column.
        model.values_to_rvs.pop(model.rvs_to_values.pop(factor), None)
        del model.rvs_to_transforms[factor]
        _exchange(model.observed_RVs, factor, new)
        new.name = name
        value = pt.constant(_evaluated(value), name=name)
        model.create_value_var(new, transform=None, default_transform=None, value_var=value)
    new.name = name
    model.add_named_variable(new)


def _exchange(variables: list[Variable], old: Variable, new: Variable) -> None:
    """Replace an entry of a list of a model, which does not allow to assign to it."""
    place = variables.index(old)
    variables.pop(place)
    variables.insert(place, new)


def _evaluated(x: Any) -> np.ndarray:
    """Return the value of a graph of constants."""
    from pymc.pytensorf import constant_fold

    [value] = constant_fold([x])
    return np.asarray(value)


def _rebuilt(outputs: list[Variable], known: Mapping[Variable, Variable]) -> list[Any]:
    """Return graphs with some leaves replaced. Nodes that don't depend on the leaves are shared."""
    new = dict(known)
    for node in io_toposort([], outputs):
        if any(x in new for x in node.inputs):
            inputs = [new.get(x, x) for x in node.inputs]
            # Static shapes may differ.
            rebuilt = node.clone_with_new_inputs(inputs, strict=False)
            new |= dict(zip(node.outputs, rebuilt.outputs))
    return [new.get(x, x) for x in outputs]
