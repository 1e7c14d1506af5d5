"""Columns that the rows of a graph read, factorized once for all rules.

Rules ask about the same rows, one after the other. What is read depends on the variable alone, and a
variable keeps its value when the graph around it is rewritten, so that what was found for it stays right.
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

# Next to free in a loop that reads a row anyway, as are Ops that only move entries.
CHEAP = ops_where(lambda facts: facts.cost <= Cost.DIVISION)
COSTLY = (Dot, Softmax, LogSoftmax, LogSumExp)


class Reads(NamedTuple):
    """The columns that an expression reads in a row, and whether it is but arithmetic on them."""

    columns: frozenset[int]
    is_cheap: bool


NOTHING = Reads(frozenset(), True)


class RowReads:
    """Columns read by the rows of one shape.

    Parameters
    ----------
    shape : tuple of int
        The rows: one length, or several for a tensor whose rows are along several axes.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.grid = Grid(shape)
        self.keys = RowKeys(shape)
        self._reads: dict[int, Reads] = {}

    def of(self, x: TensorVariable, where: Where) -> Reads:
        """Return what each row reads of ``x``."""
        if not varies(x, where):
            return NOTHING
        view = self.grid.view(x, where)
        if id(view) not in self._reads:
            columns = [self.keys.add(array) for array in view.reads]
            inputs = [self.of(*viewed) for viewed in view.inputs]
            self._reads[id(view)] = Reads(
                frozenset().union(*columns, *(reads.columns for reads in inputs)),
                all(reads.is_cheap for reads in inputs) and (not inputs or is_cheap(x)),
            )
        return self._reads[id(view)]

    def codes(self, x: TensorVariable, where: Where) -> Codes | None:
        """Return which rows read the same of ``x``, None if they hardly repeat."""
        return self.keys.codes(self.of(x, where).columns)


class SharedReads(Feature):
    """Columns read by all rows of a graph, shared by its rules."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[int, ...], RowReads] = {}
        self._order: list[Apply] | None = None
        self.asked: set[tuple[Hashable, TensorVariable]] = set()

    def clone(self) -> "SharedReads":
        """Return what knows nothing of another graph."""
        return SharedReads()

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Be found by :func:`reads_of`."""
        fgraph.row_reads = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Free the columns."""
        del fgraph.row_reads

    def on_change_input(self, *change: Any, reason: Any = None) -> None:
        """Forget the order of nodes."""
        self._order = None

    def order(self, fgraph: FunctionGraph) -> list[Apply]:
        """Return the nodes in topological order, some that the graph has lost among them."""
        if self._order is None:
            self._order = [*toposort(fgraph.outputs)]
        return self._order

    def of_shape(self, shape: tuple[int, ...]) -> RowReads:
        """Return what rows of a shape read."""
        return self._by_shape.setdefault(shape, RowReads(shape))


def reads_of(fgraph: FunctionGraph, shape: tuple[int, ...]) -> RowReads:
    """Return what rows of this shape read in a graph that :class:`SharedReads` is attached to."""
    shared: SharedReads = fgraph.row_reads
    return shared.of_shape(shape)


def is_asked_again(fgraph: FunctionGraph, rule: Hashable, x: TensorVariable) -> bool:
    """Return whether a rule, which goes over the graph once, has asked this about a variable before."""
    asked: set[tuple[Hashable, TensorVariable]] = fgraph.row_reads.asked
    is_known = (rule, x) in asked
    asked.add((rule, x))
    return is_known


def order_of(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes of a graph that :class:`SharedReads` is attached to, in topological order."""
    shared: SharedReads = fgraph.row_reads
    return shared.order(fgraph)


def is_cheap(x: TensorVariable) -> bool:
    """Return whether the Op that makes ``x`` does little for an entry."""
    op = x.owner.op
    if not isinstance(op, Elemwise):
        return not isinstance(op, COSTLY)
    return squared(x) is not None or isinstance(op.scalar_op, CHEAP)
