r"""Replace the likelihoods over tables by likelihoods over the distinct rows, weighted by their counts.

.. math::

    \sum_{i=1}^N \log p(y_i \mid x_i, \theta) = \sum_u n_u \log p(y_u \mid x_u, \theta)

A likelihood is a random variable whose observed values or parameters read placeholders of :mod:`pymc_fastlogp.tables`. In the
new model the columns, or elementwise expressions of columns, are constants: few weighted rows, by one of the ways of
:mod:`pymc_fastlogp.tables.plan`. :class:`~pymc_fastlogp.models.weighted_rows.WeightedRows` multiplies the log density of each row by its weight.
The result is an ordinary PyMC model, so freezing, rewriting, caching and sampling need to know nothing of tables. Both sides differ by the
rounding of sums only.

This holds if each entry of the elementwise log density depends on one row, which :mod:`pymc_fastlogp.analysis.row_axis` proves for the
graph. If the log density is quadratic in continuous columns, which :mod:`pymc_fastlogp.analysis.polynomial_degree` proves, rows that differ in these
columns are merged, too: :mod:`pymc_fastlogp.tables.factors`. Potentials that are elementwise over rows are replaced in the same way.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, io_toposort

from pymc_fastlogp.analysis.polynomial_degree import polynomial_degree
from pymc_fastlogp.analysis.row_axis import NotByRowError, row_axis
from pymc_fastlogp.models.freeze import can_be_frozen, copy_with_data, frozen_copy
from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.columns import Column, columns_in
from pymc_fastlogp.tables.expressions import (
    Expression,
    expression_of_column,
    expressions_in,
)
from pymc_fastlogp.tables.plan import Outlook, Plan, Way

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.tables.engine_table import Table

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
            estimated = f"; estimated from {n_sample} rows"
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
        If a part of the model reads a table in another way than row by row in a likelihood, if PyMC can't copy the model, or for the values of the table.
    """
    if not columns_in(_variables(model)):
        return Reduced(model, {})
    _refuse_uncopied(model)
    copy = copy_with_data(model)
    likelihoods = _likelihoods(copy)
    for x in likelihoods:  # before rows are read
        logger.info("%s: %s (%s)", x.factor.name, _intent(x.plan), x.table.engine)
    tables = {x.factor.name: x.read(rows) for x in likelihoods}
    for x in likelihoods:
        x.replace(copy, tables[x.factor.name].rows)
    return Reduced(copy, tables)


class Split(NamedTuple):
    """Model without the likelihoods whose rows are not repeated, and these likelihoods.

    Attributes
    ----------
    model : pymc.Model
        The model, with constant data. Likelihoods over tables that remain are evaluated at distinct rows.
    likelihoods : tuple of LikelihoodOfRows
        Log likelihoods as functions of rows.
    """

    model: "pm.Model"
    likelihoods: tuple["LikelihoodOfRows", ...]


def split_tables(model: "pm.Model") -> Split:
    """Return a model without its likelihoods over rows of a table that hardly repeat, and these likelihoods.

    Parameters
    ----------
    model : pymc.Model
        The model.

    Raises
    ------
    ValueError
        As :func:`without_tables`; and if the model reads no table.
    """
    if not columns_in(_variables(model)):
        raise ValueError(
            "workers are for likelihoods over a table, and the model has none: put its rows into pymc_fastlogp.table(...)."
        )
    _refuse_uncopied(model)
    copy = frozen_copy(model)
    found = _likelihoods(copy)
    unread = [x for x in found if x.plan.way is Way.LOADED]
    likelihoods = tuple(LikelihoodOfRows.of(copy, x) for x in unread)
    if not likelihoods:
        return Split(model, ())
    for x in found:
        if x in unread:
            _remove(copy, x.factor)
        else:
            x.replace(copy, x.table.rows(x.plan))
    return Split(copy, likelihoods)


def _refuse_uncopied(model: "pm.Model") -> None:
    if not can_be_frozen(model):
        raise ValueError(
            "a model of a table can't be inside of another model, or have symbolic initial values: write it on its own, with numbers."
        )


def _likelihoods(model: "pm.Model") -> list["LikelihoodOfTable"]:
    """Return the likelihoods over tables of a copy of a model."""
    _refuse_values_by_row(model)
    factors = [*model.observed_RVs, *model.potentials]
    for factor in factors:  # before one is replaced
        _refuse_other_observed(model, factor)
    found = (LikelihoodOfTable.of(model, factor) for factor in factors)
    return [x for x in found if x is not None]


@dataclass(frozen=True)
class LikelihoodOfTable:
    """Observed variable or potential that reads a table.

    Attributes
    ----------
    factor : Variable
        The variable.
    axis : int
        Axis of the rows in its elementwise log density.
    table : Table
        The table.
    columns : dict of Variable to Column
        Placeholders that the likelihood reads.
    expressions : dict of Variable to Expression
        Largest expressions of placeholders that the likelihood reads.
    plan : Plan
        How the rows are read.
    """

    factor: Any
    axis: int
    table: "Table"
    columns: Mapping[Variable, Column]
    expressions: Mapping[Variable, Expression]
    plan: Plan

    @classmethod
    def of(cls, model: "pm.Model", factor: Any) -> "LikelihoodOfTable | None":
        """Return the likelihood of a factor, None if the factor reads no table."""
        graphs = graphs_of(model, factor)
        columns = columns_in(graphs)
        if not columns:
            return None
        axis = axis_of_rows(model, factor, columns)
        table = table_of(factor.name, columns)
        expressions = expressions_in(graphs) or _as_expressions(columns)
        density = DensityOfRow.of(graphs, expressions)
        plan = table.plan([*dict.fromkeys(expressions.values())], density)
        return cls(factor, axis, table, columns, expressions, plan)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in the order of the table."""
        read = {column.name for x in self.plan.expressions for column in x.columns}
        return tuple(x for x in self.table.columns if x in read)

    def read(self, rows: RowsRead) -> TableRows:
        """Return the rows."""
        table, plan = self.table, self.plan
        of_likelihood = partial(TableRows, self.names, table.engine, plan, axis=self.axis)
        if rows is RowsRead.FIRST:
            return of_likelihood(table.first_rows(plan))
        if rows is RowsRead.SAMPLE and not table.has_read(plan):
            outlook = table.outlook(plan)
            return of_likelihood(outlook.rows, outlook=outlook)
        found = table.rows(plan)
        return of_likelihood(found, is_from_disk=table.is_from_disk(plan))

    def replace(self, model: "pm.Model", rows: Summary) -> None:
        """Replace the factor by that of weighted rows, in place."""
        values, weights = rows.points(config.floatX)
        named = {x: values[str(k)] for k, x in enumerate(self.plan.expressions)}
        variables = self.expressions
        if self.plan.is_of_columns:
            variables = _as_expressions(self.columns)
        # Of other placeholders the graph reads the length.
        length = len(next(iter(values.values())))
        of_variables = {x: np.zeros(length, x.type.dtype) for x in self.columns}
        of_variables |= {x: named[y] for x, y in variables.items() if y in named}
        _replace(model, self.factor, self.axis, of_variables, weights)


@dataclass(frozen=True)
class LikelihoodOfRows:
    """Log likelihood of rows of a table as a function of unconstrained parameters. Another process gets all but the parts.

    Attributes
    ----------
    name : str
        Name of the likelihood.
    parts : sequence
        The rows of the table, see :meth:`~pymc_fastlogp.tables.engine_table.Table.parts`.
    reader : PartReader
        Reader of the columns of a part.
    columns : dict of Variable to int
        Positions of the placeholders among the columns that are read; -1 for a placeholder of which the graph reads the length.
    parameters : dict of str to Variable
        The unconstrained parameters that the likelihood reads.
    log_likelihood : Variable
        The sum over all rows.
    check_bounds : bool
        ``check_bounds`` of the model.
    """

    name: str
    parts: Sequence[Any]
    reader: Any
    columns: Mapping[Variable, int]
    parameters: Mapping[str, Variable]
    log_likelihood: Variable
    check_bounds: bool

    @classmethod
    def of(cls, model: "pm.Model", likelihood: LikelihoodOfTable) -> "LikelihoodOfRows":
        """Return the log likelihood of a likelihood of a model with constant data."""
        read = [column for x in likelihood.plan.expressions for column in x.columns]
        log_likelihood = model.logp(vars=[likelihood.factor], jacobian=False)
        inputs = {*ancestors([log_likelihood])}
        return cls(
            likelihood.factor.name,
            likelihood.table.parts(read),
            likelihood.table.reader(read),
            {x: read.index(c) if c in read else -1 for x, c in likelihood.columns.items()},
            {x.name: x for x in model.value_vars if x in inputs},
            log_likelihood,
            model.check_bounds,
        )

    def model(self, rows: Any, shapes: Mapping[str, tuple[int, ...]]) -> "pm.Model":
        """Return the model whose log density is the log likelihood of some rows.

        Parameters
        ----------
        rows : object
            A frame in memory with the rows.
        shapes : dict of str to tuple of int
            Shapes of :attr:`parameters` by name, in the order that they have in the new model.
        """
        import pymc as pm
        import pytensor.tensor as pt

        values = self.reader.values(rows)
        known: dict[Variable, Variable] = {}
        for x, k in self.columns.items():
            of_rows = values[k] if k >= 0 else np.zeros(len(values[0]), x.type.dtype)
            # A copy is aligned, unlike arrays from the network.
            known[x] = pt.constant(np.array(of_rows))
        with pm.Model() as model:
            for parameter, shape in shapes.items():
                known[self.parameters[parameter]] = pm.Flat(parameter, shape=shape)
            [total] = _rebuilt([self.log_likelihood], known)
            pm.Potential(self.name, total)
        model.check_bounds = self.check_bounds
        return model


@dataclass(frozen=True)
class DensityOfRow:
    """Elementwise log density as a function of stand-ins for expressions of columns."""

    density: Variable
    stand_ins: Mapping[Expression, Variable]

    @classmethod
    def of(
        cls, graphs: list[Variable], expressions: Mapping[Variable, Expression]
    ) -> "DensityOfRow":
        """Return the log density of a random variable and its value, or of a potential."""
        from pymc.logprob.basic import logp

        stand_ins = {expression: x.type() for x, expression in expressions.items()}
        factor, *values = _rebuilt(graphs, {x: stand_ins[y] for x, y in expressions.items()})
        density = logp(factor, values[0], warn_rvs=False) if values else factor
        return cls(density, stand_ins)

    def is_quadratic(self, expressions: Sequence[Expression]) -> bool:
        """Return whether the log density is a polynomial of degree two in these expressions, jointly."""
        return polynomial_degree(self.density, [self.stand_ins[x] for x in expressions]) <= 2


def _as_expressions(columns: Mapping[Variable, Column]) -> dict[Variable, Expression]:
    return {x: expression_of_column(column, x.type.dtype) for x, column in columns.items()}


def _variables(model: "pm.Model") -> list[Variable]:
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    return [*model.basic_RVs, *values, *model.potentials, *model.deterministics]


def graphs_of(model: "pm.Model", factor: Variable) -> list[Variable]:
    """Return an observed variable and its value, or a potential."""
    return [factor, model.rvs_to_values[factor]] if factor in model.rvs_to_values else [factor]


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


def table_of(name: str, columns: Mapping[Variable, Column]) -> Any:
    """Return the one table of a likelihood.

    Raises
    ------
    ValueError
        If there are several tables, or the table is that of another process.
    """
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


def axis_of_rows(model: "pm.Model", factor: Any, columns: Iterable[Variable]) -> int:
    """Return the axis of the rows in the elementwise log density of a factor.

    Raises
    ------
    ValueError
        If the factor is not evaluated row by row.
    """
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
    model: "pm.Model",
    factor: Any,
    axis: int,
    values: Mapping[Variable, np.ndarray],
    weights_of_rows: np.ndarray | None,
) -> None:
    """Replace a factor by that of weighted rows, given the values of variables, in place."""
    import pytensor.tensor as pt

    from pymc_fastlogp.models.weighted_rows import WeightedRows, weighted

    name = factor.name
    known: dict[Variable, Variable] = {x: pt.constant(value) for x, value in values.items()}
    weights = None
    if weights_of_rows is not None:  # so that draws come with the weights
        weights = pt.constant(weights_of_rows.astype(config.floatX), name=f"{name}_n_rows")
        model.data_vars.append(weights)
        model.add_named_variable(weights)
    del model.named_vars[name]
    if factor in model.potentials:
        [new] = _rebuilt([factor], known)
        new = new if weights is None else weighted(new, weights, axis)
        _exchange(model.potentials, factor, new)
    else:
        new, value = _rebuilt([factor, model.rvs_to_values[factor]], known)
        new = new if weights is None else WeightedRows(axis)(new, weights)
        _forget_value(model, factor)
        _exchange(model.observed_RVs, factor, new)
        new.name = name
        value = pt.constant(_evaluated(value), name=name)
        model.create_value_var(new, transform=None, default_transform=None, value_var=value)
    new.name = name
    model.add_named_variable(new)


def _remove(model: "pm.Model", factor: Any) -> None:
    """Remove a factor from a model, in place."""
    del model.named_vars[factor.name]
    if factor in model.potentials:
        model.potentials.pop(model.potentials.index(factor))
        return
    _forget_value(model, factor)
    model.observed_RVs.pop(model.observed_RVs.index(factor))


def _forget_value(model: "pm.Model", factor: Any) -> None:
    # Several variables may observe one column.
    model.values_to_rvs.pop(model.rvs_to_values.pop(factor), None)
    del model.rvs_to_transforms[factor]


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
    """Return graphs with some variables replaced. Nodes that don't depend on these are shared."""
    new = dict(known)
    for node in io_toposort([], outputs):
        if node.outputs[0] not in known and any(x in new for x in node.inputs):
            inputs = [new.get(x, x) for x in node.inputs]
            # Static shapes may differ.
            rebuilt = node.clone_with_new_inputs(inputs, strict=False)
            new |= dict(zip(node.outputs, rebuilt.outputs))
    return [new.get(x, x) for x in outputs]
