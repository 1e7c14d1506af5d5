"""Track the source entry of every element of an array built by data movement alone (indexing, reshape, join, pad).

Some operations move entries and compute nothing: indexing, ``set``, reshape, join, pad, diagonals, a switch on a constant, and a product
with a constant mask of zeros and ones. Each has the form ``out[p] = in[f(p)]`` or ``out[p] = 0``, with a map of positions ``f`` that follows
from static shapes and constant indices. The *leaves* of such a graph are the tensors whose entries are moved.

Number the entries of all leaves 1, 2, ..., write 0 for each zero, and evaluate the graph on these numbers. The result holds
the source of each entry::

    tril(reshape(join(v[2:], v[::-1]), (2, 2)))  with  v = 1 2 3   gives   3 0
                                                                           2 1

PyTensor's own Ops evaluate the graph, so no Op needs a rule for its indices.

The result of any other operation is a leaf:

- an index or a shape that is known only at run time,
- two writes to one position,
- an ``inc`` of anything but zeros,
- a change of dtype, which rounds.

A product with a mask is not exactly a move, because zero times infinity is nan. Entries that are multiplied by zero are recorded. A rule
can check that each such entry is also present at another position, where infinity and nan remain visible.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import toposort, walk
from pytensor.tensor.basic import Alloc, AllocDiag, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.pad import Pad
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import broadcast, fill_value
from pymc_fastlogp.analysis.writes import is_set, positions

# Larger arrays are not tracked: each position takes memory and compile time. Batches of correlation matrices are usually smaller.
MAX_ENTRIES = 100_000
# Limit for the intermediate arrays of one graph together.
MAX_MOVED_ENTRIES = 10 * MAX_ENTRIES

# Dtypes that can hold the number of each entry.
NUMBERS = {"float64", "float32", "int64", "int32"}

# Number of leading inputs whose entries an Op moves, None for all; the other inputs are shapes and indices.
MOVED_INPUTS: dict[type, int | None] = {
    **dict.fromkeys((Subtensor, AdvancedSubtensor, Reshape, DimShuffle, Split), 1),
    **dict.fromkeys((Alloc, AllocDiag, ExtractDiag), 1),
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), 2),
    **dict.fromkeys((Join, MakeVector), None),
}


class Entries(NamedTuple):
    """Flat positions of the entries of a leaf, ``which``, and their flat positions in the array, ``where``; in the order of the leaf."""

    leaf: TensorVariable
    which: np.ndarray
    where: np.ndarray


class Provenance(NamedTuple):
    """Source tensor and source position of each entry of an array.

    Attributes
    ----------
    leaves : dict
        The moved tensors, constants included, with the offset of their numbers.
    codes : numpy.ndarray of int
        For each element of the array the number of its source entry, 0 for a zero.
    zeroed : numpy.ndarray of int
        Numbers of the entries that were multiplied by zero.
    """

    leaves: dict[TensorVariable, int]
    codes: np.ndarray
    zeroed: np.ndarray

    @property
    def is_lossless(self) -> bool:
        """Return whether each entry that was multiplied by zero is also present at another position."""
        return bool(np.isin(self.zeroed, self.codes).all())

    def entries(self) -> Iterator[Entries]:
        """Yield the entries of each leaf that are in the array; zeros are left out."""
        where = np.argsort(self.codes, axis=None, kind="stable")
        found = self.codes.ravel()[where]
        for leaf, start in self.leaves.items():
            begin, end = np.searchsorted(found, (start + 1, start + _size(leaf) + 1))
            if begin < end:
                yield Entries(leaf, found[begin:end] - start - 1, where[begin:end])


def provenance(x: TensorVariable, most: int = MAX_ENTRIES) -> Provenance | None:
    """Return the source of each entry of ``x``, None if its shape is not static or it has more than ``most`` entries."""
    if not _is_listable(x, most):
        return None
    evaluation = _Evaluation(most)
    for node in movement_nodes(x, most):
        evaluation.evaluate(node)
    return Provenance(evaluation.leaves, evaluation.of(x), np.concatenate(evaluation.zeroed))


def slice_if_consecutive(index: np.ndarray) -> np.ndarray | slice:
    """Return positions as a slice if they are consecutive, else unchanged."""
    begin, end = int(index[0]), int(index[-1]) + 1
    return slice(begin, end) if np.array_equal(index, np.arange(begin, end)) else index


def movement_nodes(x: TensorVariable, most: int = MAX_ENTRIES) -> list[Apply]:
    """Return the nodes between the leaves and ``x`` in topological order."""
    budget = MAX_MOVED_ENTRIES

    def moved_within_budget(v: TensorVariable) -> Sequence[TensorVariable]:
        nonlocal budget
        moved = moved_inputs(v, most)
        budget -= sum(map(_size, moved))
        return moved if budget > 0 else ()

    region = walk([x], moved_within_budget, return_children=True)
    return [*toposort([x], blockers=[v for v, inputs in region if not inputs])]


def moved_inputs(x: TensorVariable, most: int = MAX_ENTRIES) -> Sequence[TensorVariable]:
    """Return the inputs whose entries ``x`` moves, as far as shapes and dtypes tell; none if ``x`` is a leaf."""
    if x.owner is None or x.type.dtype not in NUMBERS or not _is_listable(x, most):
        return ()
    op, inputs = x.owner.op, x.owner.inputs
    if isinstance(op, Elemwise):
        moved = _masked_inputs(op, inputs)
    elif isinstance(op, Pad):
        moved = [inputs[0], inputs[2]] if op.pad_mode == "constant" and op.static_pad_width else []
    elif type(op) in MOVED_INPUTS:
        if is_set(x) and not op.set_instead_of_inc and not _may_be_zero(inputs[0]):
            return ()
        moved = inputs[: MOVED_INPUTS[type(op)]]
        if not all(isinstance(v, Constant) for v in inputs[len(moved) :]):
            return ()
    else:
        return ()
    is_same = all(isinstance(v, Constant) or v.type.dtype == x.type.dtype for v in moved)
    return moved if is_same and all(_is_listable(v, most) for v in moved) else ()


def _may_be_zero(base: TensorVariable) -> bool:
    """Return whether entries of ``base`` may be zero, so that an ``inc`` of ``base`` may only move the increment."""
    fill = fill_value(base)
    if fill is not None:
        return bool(fill == 0)
    return isinstance(base, Constant) or len(moved_inputs(base)) > 0


def _masked_inputs(op: Elemwise, inputs: list[TensorVariable]) -> list[TensorVariable]:
    """Return the branches of a switch on a constant, or the factor next to constant masks of zeros and ones."""
    if isinstance(op.scalar_op, ps.Switch):
        return inputs[1:] if isinstance(inputs[0], Constant) else []
    if not isinstance(op.scalar_op, ps.Mul):
        return []
    moved = [v for v in inputs if not isinstance(v, Constant)]
    masks = (v.data for v in inputs if isinstance(v, Constant))
    is_masked = len(moved) == 1 and all(((mask == 0) | (mask == 1)).all() for mask in masks)
    return moved if is_masked else []


class _Evaluation:
    """Evaluation of a graph on the numbers of its entries."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.codes: dict[TensorVariable, np.ndarray] = {}
        self.leaves: dict[TensorVariable, int] = {}
        self.zeroed = [np.empty(0, dtype=int)]
        self.n_numbers = 0

    def of(self, x: TensorVariable) -> np.ndarray:
        """Return the numbers of ``x``; number its entries, as a leaf, if it was not evaluated."""
        if x not in self.codes:
            self.leaves[x] = self.n_numbers
            numbers = self.n_numbers + 1 + np.arange(_size(x)).reshape(x.type.shape)
            self.n_numbers += _size(x)
            is_zero = isinstance(x, Constant) and (x.data == 0) & ~np.signbit(x.data)
            self.codes[x] = np.where(is_zero, 0, numbers)
        return self.codes[x]

    def evaluate(self, node: Apply) -> None:
        """Evaluate a node that moves entries; its outputs stay leaves if the values show that it does more."""
        x = node.outputs[0]
        moved = {v: self.of(v) for v in moved_inputs(x, self.most)}
        if is_set(x) and not self._is_written_once(node):
            return
        known = {v: v.data for v in node.inputs if isinstance(v, Constant)} | moved
        values = [known[v] for v in node.inputs]
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Mul):
            [numbers] = moved.values()
            numbers, mask = broadcast(
                numbers, math.prod(v.data for v in node.inputs if v not in moved)
            )
            self.zeroed.append(numbers[mask == 0])
        try:
            outputs = _evaluate_node(node, values)
        except (IndexError, ValueError):  # PyTensor raises it when the function is called
            return
        # A float mask makes the numbers float, which NumPy does not write into integer arrays.
        numbers_of = (out.astype(int) for out in outputs)
        self.codes.update(zip(node.outputs, numbers_of, strict=True))

    def _is_written_once(self, write: Apply) -> bool:
        """Return whether a ``set``, or an ``inc`` of zeros, writes to each position at most once."""
        where = positions(write)
        if where is None or np.bincount(where).max(initial=0) > 1:
            return False
        return write.op.set_instead_of_inc or not self.of(write.inputs[0]).ravel()[where].any()


def _evaluate_node(node: Apply, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a node for arrays; a SymbolicOp is evaluated node by node, without compilation."""
    if not isinstance(node.op, SymbolicOp):
        outputs: list[list] = [[None] for _ in node.outputs]
        node.op.perform(node, [*values], outputs)
        return [np.asarray(out) for [out] in outputs]
    graph = node.op.fgraph
    known = {v: v.data for v in graph.variables if isinstance(v, Constant)}
    known.update(zip(graph.inputs, values, strict=True))
    for inner in graph.toposort():
        made = _evaluate_node(inner, [known[v] for v in inner.inputs])
        known.update(zip(inner.outputs, made, strict=True))
    return [known[v] for v in graph.outputs]


def _size(x: TensorVariable) -> int:
    return math.prod(x.type.shape)


def _is_listable(x: TensorVariable, most: int) -> bool:
    return None not in x.type.shape and _size(x) <= most
