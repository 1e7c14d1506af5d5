"""Find the reductions that read the same rows, which have to be permuted together.

Two reductions read the same rows if a variable is computed row by row for both, or if they read tables with the same
index. Equal gathers are merged, and a kernel fuses the loops of both reductions.
"""

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Where, parse_gather
from pymc_fastlogp.decisions import Refusal
from pymc_fastlogp.rewrites.rows.compact.reductions import axes_of
from pymc_fastlogp.rewrites.rows.order.scatter_order import ScatterIndex
from pymc_fastlogp.rewrites.rows.refusals import (
    NEEDED_ROW_BY_ROW,
    READS_OTHERS,
    name_of,
    row_specific,
)
from pymc_fastlogp.rewrites.rows.view.chunks import narrowest
from pymc_fastlogp.rewrites.rows.view.columns import order_of
from pymc_fastlogp.rewrites.rows.view.grid import Grid, static_length


class RowReader(NamedTuple):
    """A reduction, and the reduced axis that holds the rows."""

    node: Apply
    axis: int


@dataclass
class RowIndices:
    """Indices by which a reduction reads its rows.

    Attributes
    ----------
    computed : dict of TensorVariable to tuple of int
        Variables computed row by row, with the axes of the rows.
    indices : dict of bytes to numpy.ndarray
        Indices into tables, by their digests.
    names : dict of bytes to str
        Names of the indices, or of the tables.
    tables : set of (TensorVariable, bytes)
        Tables, each with the digest of an index into the table.
    refusal : Refusal, optional
        The reason not to permute the rows; None if they may be permuted.
    """

    computed: dict[TensorVariable, tuple[int, ...]] = field(default_factory=dict)
    indices: dict[bytes, np.ndarray] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    tables: set[tuple[TensorVariable, bytes]] = field(default_factory=set)
    refusal: Refusal | None = None

    @cached_property
    def rows(self) -> set[TensorVariable | bytes]:
        """Keys that two reductions share if they read the same rows."""
        return {*self.computed, *self.indices}


class ReadersByLength(Feature):
    """Feature that indexes readers by row count, so that one lookup replaces a graph traversal per likelihood.

    :func:`readers_with` finds the feature as ``fgraph.row_readers``. The index is built at the first query.
    """

    def __init__(self) -> None:
        self._is_built = False
        # Readers of unknown length have the key None. A change of the graph may reveal their length.
        self._of_length: dict[int | None, dict[RowReader, None]] = {}
        self._lengths: dict[RowReader, int | None] = {}
        self._row_indices: dict[RowReader, RowIndices] = {}

    def clone(self) -> "ReadersByLength":
        """Return an empty index for another graph."""
        return ReadersByLength()

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Register the index for :func:`readers_with`."""
        fgraph.row_readers = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Unregister the index."""
        del fgraph.row_readers

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        """Add a reduction."""
        if self._is_built:
            self._add(_readers_of(node))

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        """Remove a reduction."""
        self._drop(_readers_of(node))

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply, i: int, old: Any, new: Any, reason: Any = None
    ) -> None:
        """Discard the indices read through a changed variable, and the length of a changed reduction."""
        if not self._is_built:
            return
        changed = {old, *node.outputs}
        stale = [
            r for r, indices in self._row_indices.items() if not changed.isdisjoint(indices.rows)
        ]
        for reader in stale:
            del self._row_indices[reader]
        readers = _readers_of(node)
        self._drop(readers)
        self._add(readers)

    def of_length(self, fgraph: FunctionGraph, n: int) -> dict[RowReader, RowIndices]:
        """Return the reductions over an axis of this length, with their row indices."""
        if not self._is_built:
            self._is_built = True
            for node in order_of(fgraph):
                if node in fgraph.apply_nodes:
                    self._add(_readers_of(node))
        self._add([*self._of_length.pop(None, ())])
        return {reader: self.row_indices(reader, n) for reader in self._of_length.get(n, ())}

    def row_indices(self, reader: RowReader, n: int) -> RowIndices:
        """Return the indices by which a reduction reads its ``n`` rows."""
        if reader not in self._row_indices:
            self._row_indices[reader] = indices_of(reader, n)
        return self._row_indices[reader]

    def _add(self, readers: list[RowReader]) -> None:
        for reader in readers:
            n = self._lengths[reader] = length_of(*reader)
            self._of_length.setdefault(n, {})[reader] = None

    def _drop(self, readers: list[RowReader]) -> None:
        for reader in readers:
            self._row_indices.pop(reader, None)
            if reader in self._lengths:
                del self._of_length[self._lengths.pop(reader)][reader]


def _readers_of(node: Apply) -> list[RowReader]:
    if not isinstance(node.op, Sum | All):
        return []
    return [RowReader(node, axis) for axis in axes_of(node)]


def readers_with(fgraph: FunctionGraph, reader: RowReader, n: int) -> dict[RowReader, RowIndices]:
    """Return a reduction and all others that read the same rows, directly or through further reductions."""
    known: ReadersByLength = fgraph.row_readers
    others = known.of_length(fgraph, n)
    found = {reader: known.row_indices(reader, n)}
    rows = found[reader].rows
    joining = found
    while joining:
        taken = {each.node for each in joining}
        others = {each: indices for each, indices in others.items() if each.node not in taken}
        joining = {e: indices for e, indices in others.items() if not rows.isdisjoint(indices.rows)}
        found = found | joining
        rows = rows.union(*(indices.rows for indices in joining.values()))
    return found


def why_fixed(fgraph: FunctionGraph, found: dict[RowReader, RowIndices]) -> Refusal | None:
    """Return the reason why the rows of these reductions cannot be permuted, None if they can."""
    if refusals := [indices.refusal for indices in found.values() if indices.refusal]:
        return refusals[0]
    nodes = [reader.node for reader in found]
    if len({*nodes}) < len(nodes):
        return READS_OTHERS
    computed = {x for indices in found.values() for x in indices.computed}
    clients = (client for x in computed for client, _ in fgraph.clients[x])
    by_row = (c for c in clients if c not in nodes and computed.isdisjoint(c.outputs))
    return NEEDED_ROW_BY_ROW if any(True for _ in by_row) else None


def scatter_indices(found: dict[RowReader, RowIndices]) -> list[ScatterIndex]:
    """Return the indices of the scatters in the gradients of the sums."""
    of_sums = [each for reader, each in found.items() if isinstance(reader.node.op, Sum)]
    indices = {digest: index for each in of_sums for digest, index in each.indices.items()}
    names = {digest: name for each in of_sums for digest, name in each.names.items()}
    tables = {table for each in of_sums for table in each.tables}
    return [
        ScatterIndex(index, sum(digest == its_index for _, its_index in tables), names[digest])
        for digest, index in indices.items()
    ]


def length_of(node: Apply, axis: int) -> int | None:
    """Return the length of a reduced axis, None if unknown."""
    return static_length(node.inputs[0], axis)


def indices_of(reader: RowReader, n: int) -> RowIndices:
    """Return the indices by which a reduction reads its rows."""
    found = RowIndices()
    for x, where, view in Grid((n,)).walk([(reader.node.inputs[0], {reader.axis: 0})]):
        if isinstance(x, Constant) or (not view.inputs and _is_permuted(found, x, where)):
            continue
        axes = tuple(where)
        if found.computed.setdefault(x, axes) != axes or not _in_order(where):
            found.refusal = READS_OTHERS
        # An index that is not read in the order of the rows may have another length.
        elif not view.inputs:
            _read_leaf(found, x, where)
    return found


def _is_permuted(found: RowIndices, x: TensorVariable, where: Where) -> bool:
    """Record the index of rows that read each entry of a leaf once, for example of a join, in another order."""
    if len(where) > 1 or _in_order(where) or isinstance(x.owner_op, AdvancedSubtensor):
        return False
    [(axis, index)] = where.items()
    if (
        isinstance(index, int)
        or x.type.shape[axis] != index.size
        or np.unique(index).size < index.size
    ):
        return False
    _record_index(found, x, index, name_of(x))
    return True


def _in_order(where: Where) -> bool:
    """Return whether each row reads its own position."""
    return all(isinstance(p, int) or np.array_equal(p, np.arange(len(p))) for p in where.values())


def _read_leaf(found: RowIndices, x: TensorVariable, where: Where) -> None:
    """Record the index of a leaf, or a refusal if each row reads a different entry."""
    gather = parse_gather(x.owner) if isinstance(x.owner_op, AdvancedSubtensor) else None
    of_arrays = {} if gather is None else gather.of_arrays(where)
    if gather is None or not of_arrays:
        found.refusal = row_specific(x)
        return
    [index, *others] = gather.arrays.values()
    if index.ndim == 1 and isinstance(position := of_arrays.get(0, 0), np.ndarray):
        index = index[position]
    is_counted = not others and index.ndim == 1 and index.size and index.min() >= 0
    if is_counted and not isinstance(x.owner.inputs[0], Constant):
        table, *entries = x.owner.inputs
        named = (entry.name for entry in entries if entry.name)
        _record_index(found, table, index, next(named, None) or name_of(table))


def _record_index(found: RowIndices, table: TensorVariable, index: np.ndarray, name: str) -> None:
    digest = sha256(np.ascontiguousarray(index, "int64")).digest()
    found.indices[digest] = index.astype(narrowest(int(index.max()) + 1))
    found.names[digest] = name
    found.tables.add((table, digest))
