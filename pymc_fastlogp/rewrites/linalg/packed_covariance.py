r"""Evaluate the covariance function of a Gaussian process for the lower triangle alone.

.. code::

    half_logdet(f(D, s))          ->  half_logdet(unpack(f(pack(D), s)))
    quadratic_form(f(D, s), b)    ->  quadratic_form(unpack(f(pack(D), s)), b)
    factor_times_vector(f(D, s), z)   ->  factor_times_vector(unpack(f(pack(D), s)), z)

``f`` is elementwise, ``D`` are constant distances, and ``s`` scalars. A factorization reads the lower triangle only, and its
gradient is zero above. PyTensor evaluates each exponential of the upper triangle too, and multiplies its derivative by zero.
Here ``f`` acts on a vector of :math:`n (n + 1) / 2` elements, the rows of the triangle one after another. The gradient is
packed too.

The squared distances of ``pm.gp.cov.Stationary`` are not constant, because points are divided by the length scale first. The
rule recognizes them as a multiple of a constant (:mod:`~pymc_fastlogp.analysis.scaled_constants`):

.. math:: -2 (s x_i)(s x_j) + (s x_i)^2 + (s x_j)^2 = s^2 \left(-2 x_i x_j + x_i^2 + x_j^2\right) .

The upper triangle must mirror the lower one, so that no infinity or NaN is lost with it. A factored scale rounds differently.
Tests bound the error by four times PyTensor's, against 60 digits. A scale whose square overflows makes distances infinite,
where PyTensor has NaN; the density is NaN on both sides.

When it applies
---------------
Before the gradient is taken, to matrices of more than 32 rows behind :mod:`~pymc_fastlogp.rewrites.linalg.terms_of_covariance`
and :mod:`~pymc_fastlogp.rewrites.linalg.factor_times_vector`. Each matrix in ``f`` is finite and symmetric up to rounding. Each
is a constant, a constant times powers of scalars, or diagonal. At least one Op costs as much as an exponential.

When it refuses
---------------
- Distances of unknown points, or of several columns with a length scale each.
- Asymmetric or infinite matrices.
- A covariance, or an intermediate matrix, with another reader.
- The upper factor, few rows, scales whose square or product may overflow or underflow only when factored out.
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

# Ops that read the lower triangle of their first input.
TERMS = (HalfLogDet, QuadraticForm, FactorTimesVector)

# Tolerance of symmetry, relative to the largest element: squared distances are differences of larger numbers.
ROUNDING = 1e6 * np.finfo("float64").eps

Packed = dict[TensorVariable, TensorVariable]


@node_rewriter(TERMS)
def local_packed_covariance(fgraph: FunctionGraph, node: Apply) -> Packed | None:
    """Rewrite ``f(D, s) -> unpack(f(pack(D), s))`` for every reader."""
    covariance = node.inputs[0]
    if None in covariance.type.shape:
        return None
    if not all(_reads_lower(*client) for client in fgraph.clients[covariance]):
        return None
    leaves: Packed = {}
    nodes = _elementwise(covariance, leaves)
    if not any(facts_of(each.op.scalar_op).cost >= Cost.FUNCTION for each in nodes):
        return None
    if any(_has_other_readers(fgraph, each, nodes) for each in nodes[:-1]):
        return None
    packed = dict(leaves)
    for each in nodes:
        packed[each.outputs[0]] = each.op(*(packed[x] for x in each.inputs))
    unpacked = UnpackTriangle()(packed[covariance])
    copy_stack_trace(covariance, unpacked)
    return {covariance: unpacked} if covariance.type.is_super(unpacked.type) else None


def _elementwise(matrix: TensorVariable, leaves: Packed) -> list[Apply]:
    """Return the elementwise nodes of a matrix in topological order; an empty list if other nodes are among them.

    Add the operands of these nodes to ``leaves``, as packed vectors.
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
    """Return the packed lower triangle of a diagonal, a scalar or a scaled symmetric constant, as a vector; None for other variables."""
    if all(x.type.broadcastable):
        return x.squeeze(0)
    if isinstance(x.owner_op, AllocDiag) and x.owner_op.offset == 0:
        [values] = x.owner.inputs
        # The static shape of an AllocDiag may be less specific than the matrix.
        return _diagonal(values) if values.type.shape == matrix.type.shape[:1] else None
    # A constant keeps its dtype, which may be bool.
    scaled = None if isinstance(x, Constant) else scaled_constant(x, known)
    data = x.data if isinstance(x, Constant) else scaled and scaled.data
    if data is None or data.shape != matrix.type.shape or not _is_symmetric(data):
        return None
    packed = pt.constant(data[np.tril_indices(len(data))])
    return packed * scaled.scale() if scaled else packed


def _diagonal(values: TensorVariable) -> TensorVariable:
    """Return the packed lower triangle of a diagonal matrix."""
    [n] = values.type.shape
    i = np.arange(n)
    zeros = pt.zeros(n * (n + 1) // 2, dtype=values.type.dtype)
    return zeros[i * (i + 3) // 2].set(values)


def _is_symmetric(data: np.ndarray) -> bool:
    """Return whether a matrix is finite and symmetric up to rounding."""
    data = data.astype("float64")
    largest = np.abs(data).max(initial=0)
    return bool(np.isfinite(largest) and np.abs(data - data.T).max(initial=0) <= ROUNDING * largest)


def _reads_lower(client: Apply, k: int) -> bool:
    """Return whether a node reads only the lower triangle of its input ``k``."""
    op = core_op(client.op)
    return (isinstance(op, TERMS) and k == 0) or (isinstance(op, Cholesky) and op.lower)


def _has_other_readers(fgraph: FunctionGraph, node: Apply, nodes: list[Apply]) -> bool:
    return any(client not in nodes for client, _ in fgraph.clients[node.outputs[0]])
