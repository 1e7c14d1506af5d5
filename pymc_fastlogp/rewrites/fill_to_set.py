"""Write a matrix that is filled from a vector as one set of the vector's entries into zeros.

.. code::

    reshape(v, (n, m)) * mask          ->  zeros((n, m))[rows, cols].set(v[k])
    pad(zeros((n, m))[i, j].set(c))    ->  zeros((n + .., m + ..))[i + .., j + ..].set(c)
    join(v[s1], v[s2], ...)[k]         ->  v[k']

``rows, cols`` are where the constant ``mask`` is one, and ``k`` their flat positions. The third rule reads
through the copies that ``join`` made, so that what is left of them is one gather.

PyMC's ``CholeskyCorrTransform`` builds its triangle this way: it joins a vector with its
reverse, reshapes, masks the upper half away, pads a row and a column. As one set the triangle can
be followed by :mod:`~pymc_fastlogp.rewrites.lift_set_subtensor`, and the gradient returns along one
permutation instead of through five Ops.

Where ``mask`` is zero, ``reshape(v) * mask`` is zero for every finite ``v``, and nan where the entry
is inf or nan. The set stores zero there in any case. The entries that are kept do not differ.
"""

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import Join, constant, zeros
from pytensor.tensor.math import mul
from pytensor.tensor.pad import Pad
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value


@node_rewriter([mul])
def local_masked_reshape_to_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``reshape(v, (n, m)) * mask -> zeros((n, m))[rows, cols].set(v[k])``."""
    out = node.outputs[0]
    if len(node.inputs) != 2 or None in out.type.shape:
        return None
    for x, mask in (node.inputs, reversed(node.inputs)):
        if isinstance(x.owner_op, Reshape) and x.owner.inputs[0].type.ndim == 1 and _is_mask(mask):
            break
    else:
        return None
    if not x.type.shape == mask.type.shape == out.type.shape or x.type.dtype != out.type.dtype:
        return None
    where = np.nonzero(mask.data)
    k = np.ravel_multi_index(where, mask.data.shape)
    filled = zeros(out.type.shape, dtype=out.type.dtype)[where].set(x.owner.inputs[0][k])
    copy_stack_trace(out, filled)
    return [filled]


def _is_mask(x: TensorVariable) -> bool:
    """Whether ``x`` is a constant of zeros and ones, with enough zeros to be worth leaving out."""
    if not isinstance(x, TensorConstant) or x.type.ndim < 2:
        return False
    return bool(np.isin(x.data, (0, 1)).all()) and 0 < x.data.mean() <= 0.75


@node_rewriter([Pad])
def local_pad_of_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``pad(zeros(n)[i].set(c)) -> zeros(n + ..)[i + ..].set(c)``."""
    op, out = node.op, node.outputs[0]
    if op.pad_mode != "constant" or op.static_pad_width is None or None in out.type.shape:
        return None
    filled, _, pad_value = node.inputs
    write = filled.owner
    if write is None or not isinstance(write.op, AdvancedIncSubtensor):
        return None
    if (
        not write.op.set_instead_of_inc
        or not fill_value(write.inputs[0]) == fill_value(pad_value) == 0
    ):
        return None
    indices = indices_from_subtensor(write.inputs[2:], write.op.idx_list)
    if len(indices) != filled.type.ndim or not all(map(_is_non_negative, indices)):
        return None
    moved = tuple(
        index.data + before for index, (before, _) in zip(indices, op.static_pad_width, strict=True)
    )
    padded = zeros(out.type.shape, dtype=out.type.dtype)[moved].set(write.inputs[1])
    copy_stack_trace(out, padded)
    return [padded]


def _is_non_negative(index: slice | TensorVariable) -> bool:
    return (
        isinstance(index, TensorConstant) and index.type.ndim > 0 and bool((index.data >= 0).all())
    )


@node_rewriter([AdvancedSubtensor])
def local_gather_of_join(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``join(v[s1], v[s2], ...)[k] -> v[k']`` for constant slices and constant ``k``."""
    joined, k = node.inputs[0], node.inputs[1]
    if node.op.idx_list != (0,) or not isinstance(k, Constant) or k.type.dtype == "bool":
        return None
    if joined.type.ndim != 1 or not isinstance(joined.owner_op, Join):
        return None
    sources, positions = zip(*map(_slice_of_vector, joined.owner.inputs), strict=True)
    if len(set(sources)) > 1 or sources[0] is None:
        return None
    try:
        gathered = sources[0][constant(np.concatenate(positions)[k.data])]
    except IndexError:  # upstream raises it when the function is called
        return None
    copy_stack_trace(node.outputs[0], gathered)
    return [gathered]


def _slice_of_vector(x: TensorVariable) -> tuple[TensorVariable | None, np.ndarray | None]:
    """Return the vector that ``x`` is a constant slice of, and the positions in it."""
    if not isinstance(x.owner_op, Subtensor):
        source, index = x, (slice(None),)
    else:
        source, *variables = x.owner.inputs
        if not all(isinstance(v, Constant) for v in variables):
            return None, None
        index = tuple(indices_from_subtensor([v.data for v in variables], x.owner.op.idx_list))
    if source.type.ndim != 1 or source.type.shape[0] is None:
        return None, None
    return source, np.arange(source.type.shape[0])[index]
