r"""``cholesky(f(D, s))`` of symmetric constants ``D``: compute ``f`` for the lower triangle alone.

.. code::

    half_logdet(f(D, s))          ->  half_logdet(unpack(f(pack(D), s)))
    quadratic_form(f(D, s), b)    ->  quadratic_form(unpack(f(pack(D), s)), b)
    factor_times_vector(...)          alike

A covariance of a Gaussian process is an elementwise function of distances and of a few parameters. A factorization reads its lower triangle alone, and so is its
gradient: upstream computes each exponential of the upper one for nothing, and multiplies its derivatives by zero. Here elementwise Ops are those of a vector of
:math:`n (n + 1) / 2` elements, the rows of the triangle one behind the other. What is differentiated is this vector, so the gradient is packed, too.

The upper triangle is left out where it is the mirror image of the lower one. Then nothing is infinite or nan there that is not so below the diagonal. So all matrices
must be finite constants that are symmetric up to rounding, multiples of such, or diagonals.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.scalar_facts import Cost, facts_of
from pymc_fastlogp.analysis.scaled_constants import Known, scaled_constant
from pymc_fastlogp.ops import UnpackTriangle
from pymc_fastlogp.rewrites.linalg.factor_times_vector import FactorTimesVector
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import HalfLogDet, QuadraticForm

# Those whose first input is a matrix of which they read the lower triangle.
TERMS = (HalfLogDet, QuadraticForm, FactorTimesVector)


# Of the largest element: a million times that of one operation.
ROUNDING = 1e6 * np.finfo("float64").eps

Packed = dict[TensorVariable, TensorVariable]


@node_rewriter(TERMS)
def local_packed_covariance(fgraph: FunctionGraph, node: Apply) -> Packed | None:
    """Rewrite ``f(D, s) -> unpack(f(pack(D), s))``, for all that factors it."""
    covariance = node.inputs[0]
    if None in covariance.type.shape:
        return None
    if not all(_reads_lower(*client) for client in fgraph.clients[covariance]):
        return None
    leaves: Packed = {}
    nodes = _elementwise(covariance, leaves)
    if not any(facts_of(each.op.scalar_op).cost >= Cost.FUNCTION for each in nodes):
        return None
    if any(_is_read_elsewhere(fgraph, each, nodes) for each in nodes[:-1]):
        return None
    packed = dict(leaves)
    for each in nodes:
        packed[each.outputs[0]] = each.op(*(packed[x] for x in each.inputs))
    unpacked = UnpackTriangle()(packed[covariance])
    copy_stack_trace(covariance, unpacked)
    return {covariance: unpacked} if covariance.type.is_super(unpacked.type) else None


def _elementwise(matrix: TensorVariable, leaves: Packed) -> list[Apply]:
    """Return the nodes that make a matrix, operands first; nothing if not all are elementwise.

    What they are made of is added to the leaves, as vectors.
    """
    nodes: set[Apply] = set()
    known: Known = {}
    pending = [matrix]
    while pending:
        x = pending.pop()
        if x in leaves or x.owner in nodes:
            continue
        leaf = _leaf(x, matrix, known)
        if leaf is not None:
            leaves[x] = leaf
        elif isinstance(x.owner_op, Elemwise) and x.type.shape == matrix.type.shape:
            nodes.add(x.owner)
            pending += x.owner.inputs
        else:
            return []
    return [node for node in io_toposort(list(leaves), [matrix]) if node in nodes]


def _leaf(x: TensorVariable, matrix: TensorVariable, known: Known) -> TensorVariable | None:
    """Return the lower triangle of a diagonal or of a multiple of a symmetric constant, or a scalar, as a vector; None of all else."""
    if all(x.type.broadcastable):
        return x.squeeze(0)
    if isinstance(x.owner_op, AllocDiag) and x.owner_op.offset == 0:
        [values] = x.owner.inputs
        # Its own type may not have come to know how long it is.
        return _diagonal(values) if values.type.shape == matrix.type.shape[:1] else None
    # A constant keeps its type, which may be a mask's.
    scaled = None if isinstance(x, Constant) else scaled_constant(x, known)
    data = x.data if isinstance(x, Constant) else scaled and scaled.data
    if data is None or data.shape != matrix.type.shape or not _is_symmetric(data):
        return None
    packed = pt.constant(data[np.tril_indices(len(data))])
    return packed * scaled.scale() if scaled else packed


def _diagonal(values: TensorVariable) -> TensorVariable:
    """Return the lower triangle of a diagonal matrix as a vector."""
    [n] = values.type.shape
    i = np.arange(n)
    zeros = pt.zeros(n * (n + 1) // 2, dtype=values.type.dtype)
    return zeros[i * (i + 3) // 2].set(values)


def _is_symmetric(data: np.ndarray) -> bool:
    """Return whether a matrix is finite and its own mirror image, but for rounding: squared distances are differences of larger numbers."""
    data = data.astype("float64")
    largest = np.abs(data).max(initial=0)
    return bool(np.isfinite(largest) and np.abs(data - data.T).max(initial=0) <= ROUNDING * largest)


def _reads_lower(client: Apply, k: int) -> bool:
    """Return whether a node reads the lower triangle alone of its input ``k``."""
    op = core_op(client.op)
    return (isinstance(op, TERMS) and k == 0) or (isinstance(op, Cholesky) and op.lower)


def _is_read_elsewhere(fgraph: FunctionGraph, node: Apply, nodes: list[Apply]) -> bool:
    return any(client not in nodes for client, _ in fgraph.clients[node.outputs[0]])
