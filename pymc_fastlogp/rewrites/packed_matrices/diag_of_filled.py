"""Read the diagonal of a filled matrix from the vector that holds it.

.. code::

    diagonal(x[i, i].set(d))             ->  d                    i == arange(n)
    diagonal(zeros[tril].set(v))         ->  v[k]                 k the packed positions of the diagonal
    diagonal(zeros[strict tril].set(v))  ->  zeros(n)
    diagonal(x[:, i, i].set(d))          ->  d                    for a batch
    diagonal(x[i, i].set(d)[None])       ->  d[None]              as in ``MvNormal``

PyTensor has the rewrite for ``ExtractDiag`` in ``specialize``, after the gradient. Without the rule, the gradient of the
diagonal goes through a matrix, whose zeros go on to every other vector that was set. Also ``log(1 / norm)`` would not become
``-log(norm)``.

When it applies
---------------
To a matrix or a batch of matrices into which vectors or scalars were set at constant positions. The shape is known and has at
most 100 000 entries. One of them must hold the whole diagonal. If none holds any of it, the rest must be filled with one value.

When it refuses
---------------
- Indices computed at run time, duplicate indices, a diagonal from several vectors.
- A diagonal that was not set, of a matrix that a mask multiplied by zeros: infinity times zero is NaN.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
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
from pymc_fastlogp.rewrites.replacement import replacement


@node_rewriter([ExtractDiag])
def local_diag_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(x[i, j].set(v)) -> v[k]``, where ``i[k] == j[k]`` runs along the diagonal."""
    [matrix], [out] = node.inputs, node.outputs
    if 0 in out.type.shape:  # no gain, and the write still has to check its shapes
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
    return replacement(out, diag)


def _is_filled(matrix: TensorVariable) -> bool:
    """Return whether a matrix is the result of a set, below axes of length one that PyMC adds for many observations."""
    while isinstance(matrix.owner_op, DimShuffle):
        matrix = matrix.owner.inputs[0]
    return is_set(matrix)


def _taken(entry: Entries, shape: tuple[int, ...]) -> TensorVariable:
    """Return the entries of one tensor as an array of this shape."""
    if is_scalar(entry):
        return alloc(value_of(entry), *shape)
    in_order = entry._replace(which=entry.which[np.argsort(entry.where)])
    *batch, _ = shape
    if all(n == 1 for n in batch):
        return expand_dims(value_of(in_order), tuple(range(len(batch))))
    if is_whole(in_order):
        return array_of(in_order, *shape)
    return flattened(entry.leaf)[in_order.which.reshape(shape)]
