"""Read the diagonal of a filled matrix from the vector that holds it.

.. code::

    diagonal(x[i, i].set(d))          ->  d                    i == arange(n)
    diagonal(zeros[tril].set(v))      ->  v[where the diagonal is packed]
    diagonal(zeros[strict tril].set(v))  ->  zeros
    diagonal(diag(v))                 ->  v

The last comes up where PyTensor makes ``diag(v)[:, None] * x`` of ``diag(v) @ x``. PyTensor reads through sets too, but ``ExtractDiag`` only in ``specialize``, after the gradient. By then
a gradient of the diagonal has gone through a matrix, and its zeros to everything else that was
set, and ``log(1 / norm)`` did not become ``-log(norm)``.
"""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import AllocDiag, ExtractDiag, alloc
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value
from pymc_fastlogp.rewrites.packed import filled_matrix


@node_rewriter([ExtractDiag])
def local_diag_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(x[i, j].set(v)) -> v[k]``, where ``i[k]`` and ``j[k]`` are the diagonal."""
    [matrix], [out] = node.inputs, node.outputs
    if (node.op.offset, node.op.axis1, node.op.axis2) != (0, 0, 1):
        return None
    diag = _of_alloc_diag(matrix)
    if diag is None:
        diag = _of_filled(fgraph, matrix)
    if diag is None or not out.type.is_super(diag.type):
        return None
    copy_stack_trace(out, diag)
    return [diag]


def _of_alloc_diag(matrix: TensorVariable) -> TensorVariable | None:
    """Return ``v`` if the matrix is ``diag(v)``."""
    if matrix.type.ndim != 2 or not isinstance(matrix.owner_op, AllocDiag):
        return None
    return matrix.owner.inputs[0] if matrix.owner.op.offset == 0 else None


def _of_filled(fgraph: FunctionGraph, matrix: TensorVariable) -> TensorVariable | None:
    """Return the part of the vectors that were set into a matrix which is on its diagonal."""
    filled = filled_matrix(fgraph, matrix)
    if filled is None:
        return None
    rows, cols = matrix.type.shape
    diagonal = np.arange(min(rows, cols)) * (cols + 1)
    diag = None
    for entry in filled.entries:
        on_diagonal = np.isin(diagonal, entry.where)
        if on_diagonal.all():
            diag = entry.at(diagonal)
        elif on_diagonal.any():
            return None
    fill = fill_value(filled.root)
    if diag is None and fill is not None:
        return alloc(fill.astype(matrix.type.dtype), diagonal.size)
    return diag
