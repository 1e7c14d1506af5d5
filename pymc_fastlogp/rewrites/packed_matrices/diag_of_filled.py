"""Read the diagonal of a filled matrix from the vector that holds it.

.. code::

    diagonal(x[i, i].set(d))          ->  d                    i == arange(n)
    diagonal(zeros[tril].set(v))      ->  v[where the diagonal is packed]
    diagonal(zeros[strict tril].set(v))  ->  zeros
    diagonal(x[:, i, i].set(d))       ->  d                    of a batch
    diagonal(x[i, i].set(d)[None])    ->  d[None]

PyTensor reads through sets too, but ``ExtractDiag`` only in ``specialize``, after the gradient. By then
a gradient of the diagonal has gone through a matrix, and its zeros to everything else that was
set, and ``log(1 / norm)`` did not become ``-log(norm)``.

A diagonal on which nothing was set is left alone where something was multiplied by zero: infinity times zero is nan.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag, alloc, expand_dims, zeros
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.provenance import Entries, moved_inputs, provenance
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.packed_array import (
    array_of,
    flattened,
    is_scalar,
    is_whole,
    value_of,
)


@node_rewriter([ExtractDiag])
def local_diag_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(x[i, j].set(v)) -> v[k]``, where ``i[k]`` and ``j[k]`` are the diagonal."""
    [matrix], [out] = node.inputs, node.outputs
    if 0 in out.type.shape:  # nothing is gained, and whether what was set fits is to be looked at
        return None
    found = provenance(out) if _is_filled(matrix) and moved_inputs(out) else None
    if found is None:
        return None
    entries = [*found.entries()]
    if not entries and not found.is_lossless:
        return None
    if not entries:
        diag = zeros(out.type.shape, dtype=out.type.dtype)
    elif len(entries) == 1 and found.codes.all() and entries[0].leaf.type.ndim < matrix.type.ndim:
        diag = _taken(entries[0], out.type.shape)
    else:
        return None
    copy_stack_trace(out, diag)
    return (
        [diag] if out.type.is_super(diag.type) else None
    )  # a constant that was set may have another type


def _is_filled(matrix: TensorVariable) -> bool:
    """Return whether a set made what is a matrix, or one with axes of length one, which PyMC gives the covariance of a normal with many rows."""
    while isinstance(matrix.owner_op, DimShuffle):
        matrix = matrix.owner.inputs[0]
    return is_set(matrix)


def _taken(entry: Entries, shape: tuple[int, ...]) -> TensorVariable:
    """Return the entries of one tensor that make up an array of this shape."""
    if is_scalar(entry):
        return alloc(value_of(entry), *shape)
    in_order = entry._replace(which=entry.which[np.argsort(entry.where)])
    *batch, _ = shape
    if all(n == 1 for n in batch):
        return expand_dims(value_of(in_order), tuple(range(len(batch))))
    if is_whole(in_order):
        return array_of(in_order, *shape)
    return flattened(entry.leaf)[in_order.which.reshape(shape)]
