"""Read the diagonal of a filled matrix from the vector that holds it.

.. code::

    diagonal(x[i, i].set(d))          ->  d                    i == arange(n)
    diagonal(zeros[tril].set(v))      ->  v[where the diagonal is packed]
    diagonal(zeros[strict tril].set(v))  ->  zeros
    diagonal(x[:, i, i].set(d))       ->  d                    of a batch

PyTensor reads through sets too, but ``ExtractDiag`` only in ``specialize``, after the gradient. By then
a gradient of the diagonal has gone through a matrix, and its zeros to everything else that was
set, and ``log(1 / norm)`` did not become ``-log(norm)``.
"""

import math

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import ExtractDiag, alloc
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.rewrites.filled.packed import filled_matrix


@node_rewriter([ExtractDiag])
def local_diag_of_filled(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(x[i, j].set(v)) -> v[k]``, where ``i[k]`` and ``j[k]`` are the diagonal."""
    [matrix], [out] = node.inputs, node.outputs
    last_axes = matrix.type.ndim - 2, matrix.type.ndim - 1
    if (node.op.offset, node.op.axis1, node.op.axis2) != (0, *last_axes):
        return None
    filled = filled_matrix(fgraph, matrix)
    if filled is None:
        return None
    everywhere = np.arange(math.prod(matrix.type.shape)).reshape(matrix.type.shape)
    diagonal = np.diagonal(everywhere, axis1=-2, axis2=-1)
    diag = None
    for entry in filled.entries:
        on_diagonal = np.isin(diagonal, entry.where)
        if on_diagonal.all():
            diag = entry.at(diagonal)
        elif on_diagonal.any():
            return None
    if diag is None:
        fill = fill_value(filled.root)
        if fill is None:
            return None
        diag = alloc(fill.astype(out.type.dtype), *diagonal.shape)
    copy_stack_trace(out, diag)
    return [diag]
