"""Track the source entry of every element of an array built by data movement alone (indexing, reshape, join, pad).

Indexing, ``set``, reshaping, joining, padding, diagonals, a switch on a constant and a product with a constant mask of
zeros and ones move entries, and compute nothing. What they do does not depend on what the entries are. So if
each entry of the leaves, which are the tensors that such a graph moves, is replaced by a number of its own,
and each zero by 0, the array that the graph makes of the numbers says of each position what stands there::

    tril(reshape(join(v[2:], v[::-1]), (2, 2)))  of  v = 1 2 3   is   3 0
                                                                     2 1

PyTensor's own Ops evaluate it: nothing is indexed here, and it does not matter by which Ops an array was made.

This is sound, since each of these Ops is ``out[p] = in[f(p)]``, with a function of positions ``f`` that is known from static shapes
and constant indices. What is not is a leaf itself: an index or a shape at run time, a write to one position
twice, an ``inc`` of anything but zeros, and what changes the type of the entries, which rounds.

The product with a mask is an exception: zero times infinity is nan. Which entries were multiplied by zero is kept, so
that one can ask whether each of them stands at another position, where infinity and nan still show.
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

# Each position is listed, which takes memory and compile time. Correlation matrices are smaller, also in most batches.
MANY_ENTRIES = 100_000
# Of all the arrays that lead to one.
MOST_MOVED = 10 * MANY_ENTRIES

# What Ops move has to hold a number for each entry.
NUMBERS = {"float64", "float32", "int64", "int32"}

# Ops that move their first inputs, so many of them or all, as the others say, which are shapes and indices.
MOVES: dict[type, int | None] = {
    **dict.fromkeys((Subtensor, AdvancedSubtensor, Reshape, DimShuffle, Split), 1),
    **dict.fromkeys((Alloc, AllocDiag, ExtractDiag), 1),
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), 2),
    **dict.fromkeys((Join, MakeVector), None),
}


class Entries(NamedTuple):
    """The entries of a leaf, in its order, and the positions in the array at which they stand, both counted as if flat."""

    leaf: TensorVariable
    which: np.ndarray
    where: np.ndarray


class Provenance(NamedTuple):
    """Source tensor and source position of each entry of an array.

    Attributes
    ----------
    leaves : dict
        The tensors that are moved, constants among them, and how many numbers come before their own.
    codes : numpy.ndarray of int
        Of the shape of the array: the number of the entry that stands there, 0 for zero.
    zeroed : numpy.ndarray of int
        The numbers that are multiplied by zero on the way.
    """

    leaves: dict[TensorVariable, int]
    codes: np.ndarray
    zeroed: np.ndarray

    @property
    def is_lossless(self) -> bool:
        """Return whether each entry that is multiplied by zero stands at another position."""
        return bool(np.isin(self.zeroed, self.codes).all())

    def entries(self) -> Iterator[Entries]:
        """Yield what stands in the array, leaf by leaf, without the zeros."""
        where = np.argsort(self.codes, axis=None, kind="stable")
        found = self.codes.ravel()[where]
        for leaf, start in self.leaves.items():
            begin, end = np.searchsorted(found, (start + 1, start + _size(leaf) + 1))
            if begin < end:
                yield Entries(leaf, found[begin:end] - start - 1, where[begin:end])


def provenance(x: TensorVariable, most: int = MANY_ENTRIES) -> Provenance | None:
    """Return where the entries of ``x`` come from, None if it is of open length or has more than ``most`` of them."""
    if not _is_listable(x, most):
        return None
    evaluation = _Evaluation(most)
    for node in moves_to(x, most):
        evaluation.evaluate(node)
    return Provenance(evaluation.leaves, evaluation.of(x), np.concatenate(evaluation.zeroed))


def in_a_row(index: np.ndarray) -> np.ndarray | slice:
    """Return some positions, as a slice if they follow each other."""
    begin, end = int(index[0]), int(index[-1]) + 1
    return slice(begin, end) if np.array_equal(index, np.arange(begin, end)) else index


def moves_to(x: TensorVariable, most: int = MANY_ENTRIES) -> list[Apply]:
    """Return the nodes that move entries until ``x`` is made of them, the first of them first."""
    budget = MOST_MOVED

    def moved_within_budget(v: TensorVariable) -> Sequence[TensorVariable]:
        nonlocal budget
        moved = moved_inputs(v, most)
        budget -= sum(map(_size, moved))
        return moved if budget > 0 else ()

    region = walk([x], moved_within_budget, return_children=True)
    return [*toposort([x], blockers=[v for v, inputs in region if not inputs])]


def moved_inputs(x: TensorVariable, most: int = MANY_ENTRIES) -> Sequence[TensorVariable]:
    """Return the tensors of which ``x`` moves entries, as far as shapes and types tell; none if it does not only move."""
    if x.owner is None or x.type.dtype not in NUMBERS or not _is_listable(x, most):
        return ()
    op, inputs = x.owner.op, x.owner.inputs
    if isinstance(op, Elemwise):
        moved = _masked_inputs(op, inputs)
    elif isinstance(op, Pad):
        moved = [inputs[0], inputs[2]] if op.pad_mode == "constant" and op.static_pad_width else []
    elif type(op) in MOVES:
        if is_set(x) and not op.set_instead_of_inc and not _may_be_zero(inputs[0]):
            return ()
        moved = inputs[: MOVES[type(op)]]
        if not all(isinstance(v, Constant) for v in inputs[len(moved) :]):
            return ()
    else:
        return ()
    is_same = all(isinstance(v, Constant) or v.type.dtype == x.type.dtype for v in moved)
    return moved if is_same and all(_is_listable(v, most) for v in moved) else ()


def _may_be_zero(base: TensorVariable) -> bool:
    """Return whether what is added to a tensor may be all that stands there then."""
    fill = fill_value(base)
    if fill is not None:
        return bool(fill == 0)
    return isinstance(base, Constant) or len(moved_inputs(base)) > 0


def _masked_inputs(op: Elemwise, inputs: list[TensorVariable]) -> list[TensorVariable]:
    """Return the branches of a switch on a constant, or what is multiplied by constants of zeros and ones."""
    if isinstance(op.scalar_op, ps.Switch):
        return inputs[1:] if isinstance(inputs[0], Constant) else []
    if not isinstance(op.scalar_op, ps.Mul):
        return []
    moved = [v for v in inputs if not isinstance(v, Constant)]
    masks = (v.data for v in inputs if isinstance(v, Constant))
    is_masked = len(moved) == 1 and all(((mask == 0) | (mask == 1)).all() for mask in masks)
    return moved if is_masked else []


class _Evaluation:
    """Numbers in the place of tensors."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.codes: dict[TensorVariable, np.ndarray] = {}
        self.leaves: dict[TensorVariable, int] = {}
        self.zeroed = [np.empty(0, dtype=int)]
        self.n_numbers = 0

    def of(self, x: TensorVariable) -> np.ndarray:
        """Return the numbers of ``x``, its own if it was not evaluated."""
        if x not in self.codes:
            self.leaves[x] = self.n_numbers
            numbers = self.n_numbers + 1 + np.arange(_size(x)).reshape(x.type.shape)
            self.n_numbers += _size(x)
            is_zero = isinstance(x, Constant) and (x.data == 0) & ~np.signbit(x.data)
            self.codes[x] = np.where(is_zero, 0, numbers)
        return self.codes[x]

    def evaluate(self, node: Apply) -> None:
        """Evaluate a node that moves entries; leave it a leaf if it turns out to do more."""
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
            outputs = _performed(node, values)
        except (IndexError, ValueError):  # upstream raises it when the function is called
            return
        # A mask of floats makes floats of numbers, which NumPy does not write into integers.
        numbers_of = (out.astype(int) for out in outputs)
        self.codes.update(zip(node.outputs, numbers_of, strict=True))

    def _is_written_once(self, write: Apply) -> bool:
        """Return whether a set, or an inc of zeros, writes to no position twice."""
        where = positions(write)
        if where is None or np.bincount(where).max(initial=0) > 1:
            return False
        return write.op.set_instead_of_inc or not self.of(write.inputs[0]).ravel()[where].any()


def _performed(node: Apply, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what a node makes of arrays; one that is a graph is evaluated node by node, without compiling it."""
    if not isinstance(node.op, SymbolicOp):
        outputs: list[list] = [[None] for _ in node.outputs]
        node.op.perform(node, [*values], outputs)
        return [np.asarray(out) for [out] in outputs]
    graph = node.op.fgraph
    known = {v: v.data for v in graph.variables if isinstance(v, Constant)}
    known.update(zip(graph.inputs, values, strict=True))
    for inner in graph.toposort():
        made = _performed(inner, [known[v] for v in inner.inputs])
        known.update(zip(inner.outputs, made, strict=True))
    return [known[v] for v in graph.outputs]


def _size(x: TensorVariable) -> int:
    return math.prod(x.type.shape)


def _is_listable(x: TensorVariable, most: int) -> bool:
    return None not in x.type.shape and _size(x) <= most
