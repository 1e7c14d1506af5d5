"""Columns that a variable reads in each row: the data and indices that determine its value in the row, cached for all rules.

A *column* is an array with one number per row: entries of a constant, or positions in another variable. Two rows with the same
numbers in all columns of a variable have the same value of the variable. :mod:`~pymc_fastlogp.rewrites.rows.view.keys`
factorizes columns.

Consecutive rules query the same rows. A column depends on its variable alone, so the column stays valid when the graph
around the variable is rewritten.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import squared
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.analysis.scalar_facts import Cost, ops_where
from pymc_fastlogp.rewrites.rows.view.grid import Grid, varies
from pymc_fastlogp.rewrites.rows.view.keys import Codes, RowKeys

# Their cost is hidden by the loads of a loop over rows, as is the cost of Ops that only move entries.
CHEAP = ops_where(lambda facts: facts.cost <= Cost.DIVISION)
COSTLY = (Dot, Softmax, LogSoftmax, LogSumExp)


class ColumnsRead(NamedTuple):
    """Numbers of the columns that a variable reads in a row, and whether the variable is computed by cheap arithmetic."""

    columns: frozenset[int]
    is_cheap: bool


NO_COLUMNS = ColumnsRead(frozenset(), True)


class RowReads:
    """Columns of the variables that are computed at the rows of one grid.

    Parameters
    ----------
    shape : tuple of int
        Lengths of the axes of the rows.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.grid = Grid(shape)
        self.keys = RowKeys(shape)
        self._reads: dict[int, ColumnsRead] = {}

    def of(self, x: TensorVariable, where: Where) -> ColumnsRead:
        """Return the columns that each row reads of ``x``."""
        if not varies(x, where):
            return NO_COLUMNS
        view = self.grid.view(x, where)
        if id(view) not in self._reads:
            columns = [self.keys.add(array) for array in view.reads]
            inputs = [self.of(*viewed) for viewed in view.inputs]
            self._reads[id(view)] = ColumnsRead(
                frozenset().union(*columns, *(reads.columns for reads in inputs)),
                all(reads.is_cheap for reads in inputs) and (not inputs or is_cheap(x)),
            )
        return self._reads[id(view)]

    def codes(self, x: TensorVariable, where: Where) -> Codes | None:
        """Return one code per row, equal for rows with equal columns of ``x``; None if rows hardly repeat."""
        return self.keys.codes(self.of(x, where).columns)


class SharedReads(Feature):
    """Feature that caches the columns read by all rows of a graph, shared by its rules."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[int, ...], RowReads] = {}
        self._order: list[Apply] | None = None
        self.queries: set[tuple[Hashable, TensorVariable]] = set()

    def clone(self) -> "SharedReads":
        """Return an empty cache for another graph."""
        return SharedReads()

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Register the cache for :func:`reads_of`."""
        fgraph.row_reads = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Free the columns."""
        del fgraph.row_reads

    def on_change_input(self, *change: Any, reason: Any = None) -> None:
        """Discard the topological order."""
        self._order = None

    def order(self, fgraph: FunctionGraph) -> list[Apply]:
        """Return the nodes in topological order; nodes pruned since may be among them."""
        if self._order is None:
            self._order = [*toposort(fgraph.outputs)]
        return self._order

    def of_shape(self, shape: tuple[int, ...]) -> RowReads:
        """Return the columns of rows of a shape."""
        return self._by_shape.setdefault(shape, RowReads(shape))


def reads_of(fgraph: FunctionGraph, shape: tuple[int, ...]) -> RowReads:
    """Return the columns of rows of a shape, in a graph with :class:`SharedReads` attached."""
    shared: SharedReads = fgraph.row_reads
    return shared.of_shape(shape)


def is_repeated_query(fgraph: FunctionGraph, rule: Hashable, x: TensorVariable) -> bool:
    """Return whether a rule has queried a variable before, and record the query."""
    queries: set[tuple[Hashable, TensorVariable]] = fgraph.row_reads.queries
    is_known = (rule, x) in queries
    queries.add((rule, x))
    return is_known


def order_of(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes of a graph with :class:`SharedReads` attached, in topological order."""
    shared: SharedReads = fgraph.row_reads
    return shared.order(fgraph)


def is_cheap(x: TensorVariable) -> bool:
    """Return whether the Op of ``x`` costs little per entry."""
    op = x.owner.op
    if not isinstance(op, Elemwise):
        return not isinstance(op, COSTLY)
    return squared(x) is not None or isinstance(op.scalar_op, CHEAP)
