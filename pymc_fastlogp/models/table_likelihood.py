"""Likelihoods over tables in a PyMC model: their columns, the axis of their rows, and the plan to read these.

A likelihood is an observed variable or a potential that reads placeholders of :mod:`pymc_fastlogp.tables`. A likelihood can be evaluated at weighted rows
if each entry of the elementwise log density depends on one row, which :mod:`pymc_fastlogp.analysis.row_axis` proves for the
graph. If the log density is quadratic in continuous columns, which :mod:`pymc_fastlogp.analysis.polynomial_degree` proves, rows that differ in these
columns are merged, too: :mod:`pymc_fastlogp.tables.factors`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.analysis.polynomial_degree import polynomial_degree
from pymc_fastlogp.analysis.row_axis import NotByRowError, row_axis
from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.columns import Column, columns_in
from pymc_fastlogp.tables.expressions import (
    Expression,
    expression_of_column,
    expressions_in,
)
from pymc_fastlogp.tables.plan import Plan

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.tables.engine_table import Table


def table_likelihoods(model: "pm.Model") -> list["TableLikelihood"]:
    """Return the likelihoods over tables of a model.

    Raises
    ------
    ValueError
        If a part of the model reads a table in another way than row by row in a likelihood, or for the values of the table.
    """
    _refuse_values_by_row(model)
    factors = [*model.observed_RVs, *model.potentials]
    for factor in factors:  # before a table is read
        _refuse_other_observed(model, factor)
    found = (TableLikelihood.of(model, factor) for factor in factors)
    return [x for x in found if x is not None]


@dataclass(frozen=True)
class TableLikelihood:
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
    def of(cls, model: "pm.Model", factor: Any) -> "TableLikelihood | None":
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

    def replace(self, model: "pm.Model", rows: Summary) -> int:
        """Replace the likelihood in a model by that of weighted rows, in place, and return their number."""
        from pymc_fastlogp.models.weighted_rows import replace_likelihood

        values, weights = rows.points(config.floatX)
        named = {x: values[str(k)] for k, x in enumerate(self.plan.expressions)}
        variables = self.expressions
        if self.plan.is_of_columns:
            variables = _as_expressions(self.columns)
        # Of other placeholders the graph reads the length.
        length = len(next(iter(values.values())))
        of_variables = {x: np.zeros(length, x.type.dtype) for x in self.columns}
        of_variables |= {x: named[y] for x, y in variables.items() if y in named}
        replace_likelihood(model, self.factor, self.axis, of_variables, weights)
        return length


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

        from pymc_fastlogp.models.weighted_rows import rebuilt

        stand_ins = {expression: x.type() for x, expression in expressions.items()}
        factor, *values = rebuilt(graphs, {x: stand_ins[y] for x, y in expressions.items()})
        density = logp(factor, values[0], warn_rvs=False) if values else factor
        return cls(density, stand_ins)

    def is_quadratic(self, expressions: Sequence[Expression]) -> bool:
        """Return whether the log density is a polynomial of degree two in these expressions, jointly."""
        return polynomial_degree(self.density, [self.stand_ins[x] for x in expressions]) <= 2


def _as_expressions(columns: Mapping[Variable, Column]) -> dict[Variable, Expression]:
    return {x: expression_of_column(column, x.type.dtype) for x, column in columns.items()}


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
