r"""Sum the complete rows of imputed data separately from the rows with unknown entries.

.. code::

    sum(f(x[m].set(u), z))             ->  sum(f(x[k], z[k])) + sum(f(u, z[m]))      k: the rows not in m
    sum(f(join(0, x, u)[order], z))    ->  the same

``x`` and ``m`` are constants, ``u`` is a parameter, and ``f`` computes each row from the same row of its inputs. With
:math:`X_i = x_i` in complete rows and :math:`X_{m_j} = u_j` in all others,

.. math::

    \sum_i f(X_i, z_i) = \sum_{i \in k} f(x_i, z_i) + \sum_j f(u_j, z_{m_j}).

PyMC writes missing values in ``observed`` in this way. The complete rows then read constants, so Gaussian rows and row
compaction apply to them. The incomplete rows are sorted by ``u``, which is then read without an index. The same terms
are summed in another order.

When it applies
---------------
- Before the gradient, to a sum or a check over rows that read an array of constants and unknown entries.
- At least 32 rows are complete, and at least one row is not. With several imputed arrays, a row is complete if all its
  entries are known.
- The array has up to a million entries, and is made by any sequence of sets, slices, joins and gathers
  (:mod:`~pymc_fastlogp.analysis.provenance`). A set or a join has more than 32 entries.

When it refuses
---------------
- An index that is not constant, or data that are not frozen.
- A set that writes a position twice, or an unknown entry that several rows read.
- Entries computed from constants and tables, such as the branches of a likelihood.
- Another parameter with one value per row, which the complete rows would still read.
- Rows with another reader, rows of unknown length, and Ops between array and sum that do not compute rows
  independently.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import Join, constant
from pytensor.tensor.math import All, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.analysis.provenance import (
    Entries,
    Provenance,
    movement_nodes,
    provenance,
    slice_if_consecutive,
)
from pymc_fastlogp.rewrites.packed_matrices.packed_array import array_of, value_of
from pymc_fastlogp.rewrites.rows.compact.reductions import (
    Reduction,
    is_needed_by_row,
    parse_reduction,
    reduce_rows,
    sum_of_blocks,
    with_accumulator_dtype,
)
from pymc_fastlogp.rewrites.rows.refusals import is_row_specific
from pymc_fastlogp.rewrites.rows.view.grid import (
    ChosenRows,
    Grid,
    View,
    static_length,
    varies,
    view_key,
)

NAME = "fastlogp_split_imputed"

# Fewer complete rows save less than the overhead of a second loop.
FEWEST_COMPLETE = 32
# Bound on the entries that are tracked.
MOST_ENTRIES = 1_000_000

# Ops that combine entries of several tensors.
COMBINES = IncSubtensor, AdvancedIncSubtensor, Join


class Imputed(NamedTuple):
    """An array of known shape that holds constants and unknown entries.

    Attributes
    ----------
    x : TensorVariable
        The array.
    axis : int
        The axis of the rows.
    entries : Provenance
        Sources of the entries, with the axis of the rows first.
    unknown : numpy.ndarray of int
        One code of an unknown entry per row, see ``entries.codes``; zero if the row is complete.
    """

    x: TensorVariable
    axis: int
    entries: Provenance
    unknown: np.ndarray

    def at(self, rows: np.ndarray) -> TensorVariable:
        """Return the array at chosen rows, which become the first axis."""
        leaves, codes, zeroed = self.entries
        entries = [*Provenance(leaves, codes[rows], zeroed).entries()]
        shape = codes[rows].shape
        data = np.zeros(shape, self.x.type.dtype)
        for entry in entries:
            if isinstance(entry.leaf, TensorConstant):
                data.ravel()[entry.where] = entry.leaf.data.ravel()[entry.which]
        unknown = [entry for entry in entries if not isinstance(entry.leaf, TensorConstant)]
        if len(unknown) == 1 and np.array_equal(unknown[0].where, np.arange(data.size)):
            return array_of(unknown[0], *shape)
        x = constant(data)
        for entry in unknown:
            where = np.unravel_index(entry.where, shape)
            x = x[slice_if_consecutive(*where) if len(where) == 1 else where].set(value_of(entry))
        return x


class Block(ChosenRows):
    """Chosen rows of one block, with imputed arrays known entry by entry.

    Parameters
    ----------
    n : int
        Number of all rows.
    rows : numpy.ndarray of int
        Rows of the block.
    imputed : list of Imputed
        The imputed arrays.
    """

    def __init__(self, n: int, rows: np.ndarray, imputed: list[Imputed]):
        super().__init__((n,), len(rows))
        self._at_rows = {view_key(each.x, {each.axis: rows}): each for each in imputed}
        self._rows = rows

    def view(self, x: TensorVariable, where: Where) -> View:
        """Return the view of ``x``. An imputed array is viewed as a leaf at the rows of the block."""
        each = self._at_rows.get(view_key(x, where))
        return (
            super().view(x, where)
            if each is None
            else View([], lambda _rows, _inputs: each.at(self._rows))
        )


@node_rewriter([Sum, All])
def local_split_imputed(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(f(x[m].set(u), z)) -> sum(f(x[k], z[k])) + sum(f(u, z[m]))``."""
    reduction = parse_reduction(node)
    if reduction.out.type.dtype != reduction.x.type.dtype:
        return None
    lengths = {axis: static_length(reduction.x, axis) for axis in reduction.long_axes}
    long_enough = {axis: n for axis, n in lengths.items() if n is not None and n > FEWEST_COMPLETE}
    # Most graphs have no such array, and rows are traversed for each sum.
    if not long_enough or not any(map(_combines_many, fgraph.apply_nodes)):
        return None
    if is_needed_by_row(fgraph, reduction):
        return None
    for axis, n in long_enough.items():
        if not (imputed := _imputed(reduction.x, axis, n)):
            continue
        if (blocks := _blocks(imputed)) is None:
            continue
        result = sum_of_blocks(
            reduction, (_at_rows(reduction, axis, Block(n, rows, imputed), rows) for rows in blocks)
        )
        if result is not None:
            decisions.fired(NAME, reduction.out)
            return [result]
    return None


def _at_rows(reduction: Reduction, axis: int, block: Block, rows: np.ndarray) -> TensorVariable:
    """Return the reduction of a block of rows, in the accumulator dtype."""
    where = {axis: rows}
    return reduce_rows(
        with_accumulator_dtype(reduction), where, block.at(reduction.x, where), len(rows)
    )


def _blocks(imputed: list[Imputed]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return complete and incomplete rows, the latter in the order of their unknown entries; None if either are too few."""
    is_complete = np.logical_and.reduce([each.unknown == 0 for each in imputed])
    complete, others = np.flatnonzero(is_complete), np.flatnonzero(~is_complete)
    if len(complete) < FEWEST_COMPLETE or not len(others):
        return None
    # In the order of the array with the most unknown entries.
    most = max(imputed, key=lambda each: np.count_nonzero(each.unknown)).unknown[others]
    return complete, others[np.argsort(np.where(most, most, most.max() + 1), kind="stable")]


def _imputed(x: TensorVariable, axis: int, n: int) -> list[Imputed] | None:
    """Return the imputed arrays that rows read; None if rows read row-specific entries of other variables, or entries of unknown length."""
    grid, found, seen = Grid((n,)), [], set()
    to_see: list[tuple[TensorVariable, Where]] = [(x, {axis: 0})]
    while to_see:
        y, where = to_see.pop()
        if isinstance(y, TensorConstant) or not varies(y, where) or view_key(y, where) in seen:
            continue
        seen.add(view_key(y, where))
        if any(y.type.shape[a] is None for a in where):
            return None
        if (array := _as_imputed(y, where)) is not None:
            found.append(array)
            continue
        view = grid.view(y, where)
        if is_row_specific(y, view):
            return None
        to_see += view.inputs
    return found


def _as_imputed(x: TensorVariable, where: Where) -> Imputed | None:
    """Return ``x`` as an array of constants and unknown entries, None if ``x`` is no such array."""
    if len(where) != 1:
        return None
    [(axis, position)] = where.items()
    # An array is an index into ``x``.
    if isinstance(position, np.ndarray) or not _is_combined(x):
        return None
    found = provenance(x, MOST_ENTRIES)
    if found is None or not found.is_lossless:
        return None
    unknown = [e for e in found.entries() if not isinstance(e.leaf, TensorConstant)]
    if not all(map(_are_parameters, unknown)):
        return None
    codes = np.moveaxis(found.codes, axis, 0)
    is_unknown = np.zeros(x.type.shape, dtype=bool)
    for entry in unknown:
        is_unknown.ravel()[entry.where] = True
    is_unknown = np.moveaxis(is_unknown, axis, 0)
    of_rows = np.where(is_unknown, codes, 0).reshape(len(codes), -1).max(axis=1)
    return Imputed(x, axis, found._replace(codes=codes), of_rows)


def _are_parameters(entries: Entries) -> bool:
    """Return whether entries are read once each, and differ by more than constants and tables."""
    leaf = entries.leaf
    if np.any(np.diff(entries.which) == 0):
        return False
    if prod(leaf.type.shape) == 1:
        return True
    axis = int(np.argmax(leaf.type.shape))
    walk = Grid((leaf.type.shape[axis],)).walk([(leaf, {axis: 0})])
    return any(is_row_specific(x, view) for x, _, view in walk)


def _combines_many(node: Apply) -> bool:
    """Return whether a node combines enough entries for an array with complete rows and others."""
    if not isinstance(node.op, COMBINES):
        return False
    shape = node.outputs[0].type.shape
    return None in shape or prod(shape) > FEWEST_COMPLETE


def _is_combined(x: TensorVariable) -> bool:
    """Return whether ``x`` holds entries of several tensors."""
    return any(isinstance(node.op, COMBINES) for node in movement_nodes(x, MOST_ENTRIES))
