"""Everything that reads the same rows: what has to be permuted together, or not at all.

Two reductions read the same rows if a variable is computed row by row for both of them, or if they read tables with the
same index: their gathers are one, once equal nodes are merged, and a kernel makes one loop of theirs.
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
from pymc_fastlogp.rewrites.rows.order.scatter_order import Scattered
from pymc_fastlogp.rewrites.rows.refusals import (
    NEEDED_ROW_BY_ROW,
    READS_OTHERS,
    name_of,
    own_entry_of,
)
from pymc_fastlogp.rewrites.rows.view.chunks import narrowest
from pymc_fastlogp.rewrites.rows.view.columns import order_of
from pymc_fastlogp.rewrites.rows.view.grid import Grid, static_length


class Reader(NamedTuple):
    """A reduction, and the one of its axes that the rows are along."""

    node: Apply
    axis: int


@dataclass
class Reading:
    """Index arrays that a reduction reads its rows by.

    Attributes
    ----------
    computed : dict of TensorVariable to tuple of int
        What is computed row by row, and along which axes.
    indices : dict of bytes to numpy.ndarray
        The indices that tables are read with, by their digests.
    names : dict of bytes to str
        Their names, or those of what is read with them.
    tables : set of (TensorVariable, bytes)
        The tables, each with an index it is read with.
    refusal : Refusal, optional
        Why the rows have to stay as they are; None where they may be permuted.
    """

    computed: dict[TensorVariable, tuple[int, ...]] = field(default_factory=dict)
    indices: dict[bytes, np.ndarray] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    tables: set[tuple[TensorVariable, bytes]] = field(default_factory=set)
    refusal: Refusal | None = None

    @cached_property
    def rows(self) -> set[TensorVariable | bytes]:
        """Key that is equal for reductions that read the same rows."""
        return {*self.computed, *self.indices}


class KnownReaders(Feature):
    """The reductions of a graph by the lengths of their axes, and what each reads of its rows.

    A graph has as many of them as likelihoods, and each is to be compared with those of its length: they are looked up here,
    where for each the whole graph was gone over. :func:`readers_with` knows it as ``fgraph.row_readers``. Nothing is known
    before the first question.
    """

    def __init__(self) -> None:
        self._is_asked = False
        # Those of unknown length, which a change of what they read may tell, are below None.
        self._of_length: dict[int | None, dict[Reader, None]] = {}
        self._lengths: dict[Reader, int | None] = {}
        self._readings: dict[Reader, Reading] = {}

    def clone(self) -> "KnownReaders":
        """Return what knows nothing of another graph."""
        return KnownReaders()

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Be found by :func:`readers_with`."""
        fgraph.row_readers = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Be found no more."""
        del fgraph.row_readers

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        """Know one more reduction."""
        if self._is_asked:
            self._add(_along_axes(node))

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        """Forget a reduction."""
        self._drop(_along_axes(node))

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply, i: int, old: Any, new: Any, reason: Any = None
    ) -> None:
        """Forget what is read by way of a variable that is another one now, and the length of a reduction of it."""
        if not self._is_asked:
            return
        changed = {old, *node.outputs}
        stale = [r for r, reading in self._readings.items() if not changed.isdisjoint(reading.rows)]
        for reader in stale:
            del self._readings[reader]
        readers = _along_axes(node)
        self._drop(readers)
        self._add(readers)

    def along(self, fgraph: FunctionGraph, n: int) -> dict[Reader, Reading]:
        """Return the reductions over an axis of this length, and what they read."""
        if not self._is_asked:
            self._is_asked = True
            for node in order_of(fgraph):
                if node in fgraph.apply_nodes:
                    self._add(_along_axes(node))
        self._add([*self._of_length.pop(None, ())])
        return {reader: self.reading(reader, n) for reader in self._of_length.get(n, ())}

    def reading(self, reader: Reader, n: int) -> Reading:
        """Return what a reduction reads of its rows, of which there are so many."""
        if reader not in self._readings:
            self._readings[reader] = reading_of(reader, n)
        return self._readings[reader]

    def _add(self, readers: list[Reader]) -> None:
        for reader in readers:
            n = self._lengths[reader] = length_of(*reader)
            self._of_length.setdefault(n, {})[reader] = None

    def _drop(self, readers: list[Reader]) -> None:
        for reader in readers:
            self._readings.pop(reader, None)
            if reader in self._lengths:
                del self._of_length[self._lengths.pop(reader)][reader]


def _along_axes(node: Apply) -> list[Reader]:
    if not isinstance(node.op, Sum | All):
        return []
    return [Reader(node, axis) for axis in axes_of(node)]


def readers_with(fgraph: FunctionGraph, reader: Reader, n: int) -> dict[Reader, Reading]:
    """Return a reduction and all others that read the same rows, directly or by way of another."""
    known: KnownReaders = fgraph.row_readers
    others = known.along(fgraph, n)
    found = {reader: known.reading(reader, n)}
    rows = found[reader].rows
    joining = found
    while joining:
        taken = {each.node for each in joining}
        others = {each: reading for each, reading in others.items() if each.node not in taken}
        joining = {e: reading for e, reading in others.items() if not rows.isdisjoint(reading.rows)}
        found = found | joining
        rows = rows.union(*(reading.rows for reading in joining.values()))
    return found


def why_not(fgraph: FunctionGraph, found: dict[Reader, Reading]) -> Refusal | None:
    """Say why the rows that these read cannot be permuted, None if they can."""
    if refusals := [reading.refusal for reading in found.values() if reading.refusal]:
        return refusals[0]
    nodes = [reader.node for reader in found]
    if len({*nodes}) < len(nodes):
        return READS_OTHERS
    computed = {x for reading in found.values() for x in reading.computed}
    clients = (client for x in computed for client, _ in fgraph.clients[x])
    by_row = (c for c in clients if c not in nodes and computed.isdisjoint(c.outputs))
    return NEEDED_ROW_BY_ROW if any(True for _ in by_row) else None


def scattered_by(found: dict[Reader, Reading]) -> list[Scattered]:
    """Return the indices by which the gradients of the sums are scattered."""
    of_sums = [reading for reader, reading in found.items() if isinstance(reader.node.op, Sum)]
    indices = {digest: index for reading in of_sums for digest, index in reading.indices.items()}
    names = {digest: name for reading in of_sums for digest, name in reading.names.items()}
    tables = {table for reading in of_sums for table in reading.tables}
    return [
        Scattered(index, sum(digest == its_index for _, its_index in tables), names[digest])
        for digest, index in indices.items()
    ]


def length_of(node: Apply, axis: int) -> int | None:
    """Return the length of an axis of what is reduced, if it is known."""
    return static_length(node.inputs[0], axis)


def reading_of(reader: Reader, n: int) -> Reading:
    """Return what a reduction reads of its rows."""
    reading = Reading()
    for x, where, view in Grid((n,)).walk([(reader.node.inputs[0], {reader.axis: 0})]):
        if isinstance(x, Constant) or (not view.inputs and _is_permuted(reading, x, where)):
            continue
        axes = tuple(where)
        if reading.computed.setdefault(x, axes) != axes or not _in_order(where):
            reading.refusal = READS_OTHERS
        # An index that is read out of order is not one of the rows, and may have another length.
        elif not view.inputs:
            _read_leaf(reading, x, where)
    return reading


def _is_permuted(reading: Reading, x: TensorVariable, where: Where) -> bool:
    """Note the index of rows that read each entry of a leaf once, a join for instance, in another order."""
    if len(where) > 1 or _in_order(where) or isinstance(x.owner_op, AdvancedSubtensor):
        return False
    [(axis, index)] = where.items()
    if (
        isinstance(index, int)
        or x.type.shape[axis] != index.size
        or np.unique(index).size < index.size
    ):
        return False
    _note_index(reading, x, index, name_of(x))
    return True


def _in_order(where: Where) -> bool:
    """Return whether each row reads what is its own."""
    return all(isinstance(p, int) or np.array_equal(p, np.arange(len(p))) for p in where.values())


def _read_leaf(reading: Reading, x: TensorVariable, where: Where) -> None:
    """Note what is not computed row by row, but looked up."""
    gather = parse_gather(x.owner) if isinstance(x.owner_op, AdvancedSubtensor) else None
    of_arrays = {} if gather is None else gather.of_arrays(where)
    if gather is None or not of_arrays:
        reading.refusal = own_entry_of(x)
        return
    [index, *others] = gather.arrays.values()
    if index.ndim == 1 and isinstance(position := of_arrays.get(0, 0), np.ndarray):
        index = index[position]
    is_counted = not others and index.ndim == 1 and index.size and index.min() >= 0
    if is_counted and not isinstance(x.owner.inputs[0], Constant):
        table, *entries = x.owner.inputs
        named = (entry.name for entry in entries if entry.name)
        _note_index(reading, table, index, next(named, None) or name_of(table))


def _note_index(reading: Reading, table: TensorVariable, index: np.ndarray, name: str) -> None:
    digest = sha256(index.astype("int64")).digest()
    reading.indices[digest] = index.astype(narrowest(int(index.max()) + 1))
    reading.names[digest] = name
    reading.tables.add((table, digest))
