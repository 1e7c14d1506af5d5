"""Read a vector that was put on a diagonal from there, without the matrix.

.. code::

    diagonal(diag(v))  ->  v

PyTensor makes ``diagonal(diag(v))[:, None] * x`` of ``diag(v) @ x``, and leaves the rest for after the
gradient. Whether the diagonal is positive, and what it cancels, can only be seen without it.
"""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import AllocDiag, ExtractDiag
from pytensor.tensor.variable import TensorVariable


@node_rewriter([ExtractDiag])
def local_diag_of_diag(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``diagonal(diag(v)) -> v``."""
    [out] = node.outputs
    v = put_on_diagonal(out)
    return [v] if v is not None and out.type.is_super(v.type) else None


def put_on_diagonal(x: TensorVariable) -> TensorVariable | None:
    """Return ``v`` if ``x`` is ``diagonal(diag(v))``, of a matrix and its main diagonal."""
    if not isinstance(x.owner_op, ExtractDiag) or x.owner.op.offset != 0:
        return None
    [matrix] = x.owner.inputs
    if matrix.type.ndim != 2 or not isinstance(matrix.owner_op, AllocDiag):
        return None
    return matrix.owner.inputs[0] if matrix.owner.op.offset == 0 else None
