"""Compute only the entries of an elementwise table that an index selects.

.. code::

    log(p)[arange(n), y]       ->  log(p[arange(n), y])
    (w[:, None] * p)[rows, y]  ->  w * p[y]                 rows = arange(n), w of n rows, p a vector

An elementwise function commutes with indexing, :math:`f(a, b)_{i_r j_r} = f(a_{i_r j_r}, b_{i_r j_r})`. The index of an
axis along which an input is broadcast is dropped for this input. An index that counts from 0 to the length of its axis
leaves the axis in place.

Change points, mixtures and multinomial likelihoods compute the log probability of :math:`K` categories, and select the
observed one last. The rule computes one logarithm and one derivative per observation instead of :math:`K`. It applies
repeatedly to the inputs of the elementwise function.

PyTensor's ``local_subtensor_of_batch_dims`` requires that the index selects no more entries than each input has. Here
the size of the computed table counts.

Values are unchanged. PyTensor's gradient multiplies derivatives of entries that are not selected by zero, which is NaN
where such a derivative is infinite. After the rewrite this gradient is finite. An index out of range raises the same
``IndexError``, because each indexed axis is longer than one, so at least one input keeps the index.

When it applies
---------------
- Integer index arrays on adjacent axes, broadcast together. An index may be negative or computed.
- All lengths are known, so data are frozen.
- The index selects at most half of the entries of the table, and nothing else reads the table.

When it refuses
---------------
- Effects of groups, ``exp(a)[group]``: one evaluation per group costs less than one per row.
- Boolean masks, index arrays on separate axes or combined with partial slices, indexed axes of length one.
"""

from math import prod
from typing import TypeGuard

import numpy as np
from pytensor.graph.basic import Apply, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.type import integer_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

# The index of each indexed axis. All indices have the same number of axes.
type Indices = dict[int, TensorVariable]

# Least ratio of the entries of the table to the selected entries.

FEWEST_PER_PICK = 2


@node_rewriter([AdvancedSubtensor])
def local_gather_before_elemwise(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``f(x)[i, j] -> f(x[i, j])`` if at most half of the entries are selected, and drop indices that count."""
    table, [picked] = node.inputs[0], node.outputs
    indices = indices_of(node)
    if indices is None:
        return None
    out = _in_place(table, indices)
    if out is None and _pays(table, picked) and _has_equal_clients_only(fgraph, node):
        out = table.owner.op(*(pick(x, indices) for x in table.owner.inputs))
    if out is None or not picked.type.is_super(out.type):
        return None
    copy_stack_trace([picked, table], out)
    return [out]


def _pays(table: TensorVariable, picked: TensorVariable) -> bool:
    """Return whether an elementwise table of known shape has at most half of its entries selected."""
    if not isinstance(table.owner_op, Elemwise) or len(table.owner.outputs) > 1:
        return False
    sizes = [x.type.shape for x in (table, picked, *table.owner.inputs)]
    if any(None in shape for shape in sizes):
        return False
    return FEWEST_PER_PICK * prod(picked.type.shape) <= prod(table.type.shape)


def _has_equal_clients_only(fgraph: FunctionGraph, node: Apply) -> bool:
    """Return whether the only clients of the table are gathers that equal this node."""
    table, *entries = node.inputs
    return all(
        client is node
        or (client.op == node.op and equal_computations(client.inputs, [table, *entries]))
        for client, _ in fgraph.clients[table]
    )


def indices_of(node: Apply) -> Indices | None:
    """Return the index arrays of adjacent axes, None for other indexing.

    An indexed axis of length one is refused, since no input would raise the error of an index out of range.
    """
    table, *entries = node.inputs
    indices = dict(enumerate(indices_from_subtensor(entries, node.op.idx_list)))
    arrays = {axis: index for axis, index in indices.items() if index != slice(None)}
    if [*arrays] != [*range(min(arrays), max(arrays) + 1)]:
        return None
    found = {axis: index for axis, index in arrays.items() if _is_array(index)}
    if len(found) < len(arrays) or any(table.type.shape[axis] == 1 for axis in found):
        return None
    ndim = max(index.type.ndim for index in found.values())
    return {axis: _with_leading_axes(index, ndim) for axis, index in found.items()}


def _is_array(index: object) -> TypeGuard[TensorVariable]:
    """Return whether an index is an integer array with at least one axis."""
    if not isinstance(index, TensorVariable):
        return False
    return index.type.ndim > 0 and index.type.dtype in integer_dtypes


def _with_leading_axes(index: TensorVariable, ndim: int) -> TensorVariable:
    missing = ndim - index.type.ndim
    return index.dimshuffle(*["x"] * missing, *range(index.type.ndim)) if missing else index


def pick(x: TensorVariable, indices: Indices) -> TensorVariable:
    """Return the entries of an input that the selected entries read, with axes of length one where the input is broadcast."""
    in_place = _in_place(x, indices)
    if in_place is not None:
        return in_place
    kept = [index for axis, index in indices.items() if x.type.shape[axis] != 1]
    narrow = x.squeeze(axis=tuple(axis for axis in indices if x.type.shape[axis] == 1))
    return narrow[(*[slice(None)] * min(indices), *kept)]


def _in_place(x: TensorVariable, indices: Indices) -> TensorVariable | None:
    """Return the input with its axes rearranged if each index counts through its axis; else None."""
    ndim = next(iter(indices.values())).type.ndim
    kept = {axis: index for axis, index in indices.items() if x.type.shape[axis] != 1}
    counted = {_axis_counted(index, x.type.shape[axis]): axis for axis, index in kept.items()}
    if None in counted or len(counted) < len(kept):
        return None
    axes = [counted.get(axis, "x") for axis in range(ndim)]
    return x.dimshuffle(*range(min(indices)), *axes, *range(max(indices) + 1, x.type.ndim))


def _axis_counted(index: TensorVariable, length: int | None) -> int | None:
    """Return the axis along which a constant index counts from 0 to the length, None if there is none."""
    if length is None or not isinstance(index, TensorConstant) or index.data.size != length:
        return None
    shape = index.data.shape
    counts = length in shape and np.array_equal(index.data.ravel(), np.arange(length))
    return shape.index(length) if counts else None
