"""Likelihoods over tables whose rows hardly repeat, as functions of rows that other processes evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.models.table_likelihood import TableLikelihood, table_likelihoods
from pymc_fastlogp.models.table_rows import reads_table
from pymc_fastlogp.tables.column_values import PartitionReader
from pymc_fastlogp.tables.plan import Way

if TYPE_CHECKING:
    import pymc as pm


class Split(NamedTuple):
    """Model without the likelihoods whose rows are not repeated, and these likelihoods.

    Attributes
    ----------
    model : pymc.Model
        The model, with constant data. Likelihoods over tables that remain are evaluated at distinct rows.
    likelihoods : tuple of RowLikelihood
        Log likelihoods as functions of rows.
    """

    model: "pm.Model"
    likelihoods: tuple["RowLikelihood", ...]


def split_tables(model: "pm.Model") -> Split:
    """Return a model without its likelihoods over rows of a table that hardly repeat, and these likelihoods.

    Parameters
    ----------
    model : pymc.Model
        The model.

    Raises
    ------
    ValueError
        If the model reads no table, if PyMC can't copy the model, or as :func:`~pymc_fastlogp.models.table_likelihood.table_likelihoods`.
    """
    from pymc_fastlogp.models.weighted_rows import remove_likelihood

    if not reads_table(model):
        raise ValueError(
            "workers are for likelihoods over a table, and the model has none: put its rows into pymc_fastlogp.table(...)."
        )
    copy = frozen_copy(model)
    found = table_likelihoods(copy)
    unread = [x for x in found if x.plan.way is Way.LOADED]
    likelihoods = tuple(RowLikelihood.of(copy, x) for x in unread)
    if not likelihoods:
        return Split(model, ())
    for x in found:
        if x in unread:
            remove_likelihood(copy, x.factor)
        else:
            x.replace(copy, x.table.rows(x.plan))
    return Split(copy, likelihoods)


@dataclass(frozen=True)
class RowLikelihood:
    """Log likelihood of rows of a table as a function of unconstrained parameters. Another process gets all but the partitions.

    Attributes
    ----------
    name : str
        Name of the likelihood.
    partitions : sequence
        The rows of the table, see :mod:`pymc_fastlogp.tables.partitions`.
    reader : PartitionReader
        Reader of the columns of a partition.
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
    partitions: Sequence[Any]
    reader: PartitionReader
    columns: Mapping[Variable, int]
    parameters: Mapping[str, Variable]
    log_likelihood: Variable
    check_bounds: bool

    @classmethod
    def of(cls, model: "pm.Model", likelihood: TableLikelihood) -> "RowLikelihood":
        """Return the log likelihood of a likelihood of a model with constant data."""
        read = [column for x in likelihood.plan.expressions for column in x.columns]
        log_likelihood = model.logp(vars=[likelihood.factor], jacobian=False)
        inputs = {*ancestors([log_likelihood])}
        return cls(
            likelihood.factor.name,
            likelihood.table.partitions(read),
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

        from pymc_fastlogp.models.weighted_rows import rebuilt

        values = self.reader.values(rows)
        known: dict[Variable, Variable] = {}
        for x, k in self.columns.items():
            of_rows = values[k] if k >= 0 else np.zeros(len(values[0]), x.type.dtype)
            # A copy is aligned, unlike arrays from the network.
            known[x] = pt.constant(np.array(of_rows))
        with pm.Model() as model:
            for parameter, shape in shapes.items():
                known[self.parameters[parameter]] = pm.Flat(parameter, shape=shape)
            [total] = rebuilt([self.log_likelihood], known)
            pm.Potential(self.name, total)
        model.check_bounds = self.check_bounds
        return model
