"""Write a matrix that is filled from a vector as one set of the vector's entries into zeros.

.. code::

    reshape(join(v[s1], v[s2], ..), (n, m)) * mask  ->  zeros((n, m))[rows, cols].set(v[k])
    pad(zeros((n, m))[i, j].set(c))                 ->  zeros((n + .., m + ..))[i + .., j + ..].set(c)
    pad(reshape(v, (1, 1)))                         ->  zeros((1 + .., 1 + ..))[[0 + ..], [0 + ..]].set(v)

``rows, cols`` are where the constant ``mask`` is one, and ``k`` are the entries of ``v`` that
stand there. Of a batch ``v`` is a matrix with a row for each, joined along its last axis. It is
read as one vector, and the positions of all its entries are listed: ``zeros[batch, rows, cols].set(ravel(v)[k])``.

PyMC's ``CholeskyCorrTransform`` builds its triangle this way: it joins a vector with its
reverse, reshapes, masks the upper half away, pads a row and a column. As one set the triangle can
be followed by :mod:`~pymc_fastlogp.rewrites.filled.lift_set_subtensor`, and the gradient returns along one
permutation instead of through five Ops.

Where ``mask`` is zero the product is zero for every finite entry, and nan for inf and nan; the
set stores zero. So that an infinite entry of ``v`` cannot get lost, the rule demands that each
entry which is masked away is kept at another place, as in that triangle, which has most of them
twice. Without the second copy there is little to gain anyway: multiplying by a mask is as fast
as a set.

The triangle of two variables has one entry, and nothing is masked: what is padded is the vector itself.
"""

import math

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import Join, constant, zeros
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import mul
from pytensor.tensor.pad import Pad
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.vector_reads import chosen
from pymc_fastlogp.rewrites.filled.packed import (
    MANY_ENTRIES,
    flattened,
    keeps_order,
    without_dummies,
)


@node_rewriter([mul])
def local_masked_reshape_to_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``reshape(join(v[s], ..)) * mask -> zeros[rows, cols].set(v[k])``, also of a batch."""
    out = node.outputs[0]
    if len(node.inputs) != 2:
        return None
    x, mask = sorted(node.inputs, key=lambda v: isinstance(v, Constant))
    # A batch of one is reshaped without its axis.
    reshaped = without_dummies(x)
    if not isinstance(reshaped.owner_op, Reshape) or not _is_mask(mask):
        return None
    shape = out.type.shape
    if x.type.shape != shape or None in shape or x.type.dtype != out.type.dtype:
        return None
    if math.prod(shape) > MANY_ENTRIES:
        return None
    v, entries = _entries_of_one_tensor(without_dummies(reshaped.owner.inputs[0]))
    if v is None or entries.size != math.prod(shape):
        return None
    is_kept = np.broadcast_to(mask.data, shape)
    kept = entries[np.flatnonzero(is_kept)]
    if not np.isin(entries, kept).all():
        return None
    filled = zeros(shape, dtype=out.type.dtype)[np.nonzero(is_kept)].set(flattened(v)[kept])
    copy_stack_trace(out, filled)
    return [filled]


def _is_mask(x: TensorVariable) -> bool:
    """Whether ``x`` is a constant matrix, or more, of zeros and ones."""
    if not isinstance(x, TensorConstant) or x.type.ndim < 2:
        return False
    return bool(np.isin(x.data, (0, 1)).all())


def _entries_of_one_tensor(x: TensorVariable) -> tuple[TensorVariable | None, np.ndarray]:
    """Return the tensor that ``x`` repeats entries of, and which of them stands where in ``x``, both flat."""
    nothing = None, np.empty(0, dtype=int)
    is_join = isinstance(x.owner_op, Join)
    parts = x.owner.inputs if is_join else [x]
    tensors, entries = zip(*map(_constant_slice, parts), strict=True)
    if len(set(tensors)) > 1 or any(found is None for found in entries):
        return nothing
    return tensors[0], np.concatenate(entries, axis=x.owner.op.axis if is_join else 0).ravel()


def _constant_slice(x: TensorVariable) -> tuple[TensorVariable, np.ndarray | None]:
    """Return the tensor that ``x`` is a slice of, and its flat entries there, None if they are not known."""
    is_slice = isinstance(x.owner_op, Subtensor)
    tensor, *bounds = x.owner.inputs if is_slice else [x]
    shape = tensor.type.shape
    if None in shape or math.prod(shape) > MANY_ENTRIES:
        return tensor, None
    return tensor, chosen(shape, x.owner.op.idx_list if is_slice else (), bounds)


@node_rewriter([Pad])
def local_pad_of_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``pad(zeros(n)[i].set(c)) -> zeros(n + ..)[i + ..].set(c)``."""
    op, out = node.op, node.outputs[0]
    if op.pad_mode != "constant" or op.static_pad_width is None:
        return None
    filled, _, pad_value = node.inputs
    if None in filled.type.shape or fill_value(pad_value) != 0:
        return None
    write = _single_entries(filled) or _set_into_zeros(filled)
    if write is None:
        return None
    value, positions = write
    widths = op.static_pad_width
    shape = [n + sum(width) for n, width in zip(filled.type.shape, widths, strict=True)]
    moved = tuple(
        constant(index + before) for index, (before, _) in zip(positions, widths, strict=True)
    )
    padded = zeros(shape, dtype=out.type.dtype)[moved].set(value)
    copy_stack_trace(out, padded)
    return [padded]


def _single_entries(x: TensorVariable) -> tuple[TensorVariable, list[np.ndarray]] | None:
    """Return the entries and where they stand, if ``x`` is matrices of one entry, made from fewer dimensions."""
    shape = x.type.shape
    if not isinstance(x.owner_op, DimShuffle) or len(shape) < 2 or shape[-2:] != (1, 1):
        return None
    [entries] = x.owner.inputs
    if entries.type.ndim == 0 or not keeps_order(x.owner.op) or math.prod(shape) > MANY_ENTRIES:
        return None
    return flattened(entries), list(np.indices(shape).reshape(len(shape), -1))


def _set_into_zeros(x: TensorVariable) -> tuple[TensorVariable, list[np.ndarray]] | None:
    """Return ``c`` and the positions on each axis, if ``x`` is ``zeros(n)[i].set(c)``."""
    if not isinstance(x.owner_op, AdvancedIncSubtensor) or not x.owner.op.set_instead_of_inc:
        return None
    base, value, *variables = x.owner.inputs
    if fill_value(base) != 0:
        return None
    indices = indices_from_subtensor(variables, x.owner.op.idx_list)
    if len(indices) != x.type.ndim or not all(map(_lies_within, indices, x.type.shape)):
        return None
    return value, [index.data.astype("int64") for index in indices]


def _lies_within(index: slice | TensorVariable, length: int) -> bool:
    """Whether ``index`` is a constant array of positions, counted from zero, on such an axis."""
    if not isinstance(index, TensorConstant) or index.type.ndim == 0:
        return False
    return index.data.dtype.kind in "iu" and bool(((index.data >= 0) & (index.data < length)).all())
