r"""Read a permuted vector in its own order, and permute the constants around it instead.

.. code::

    y[i, j].set(f(x[p], g[k], c))  ->  y[i[q], j[q]].set(f(x, g[k[q]], c[q]))     q = inverse of p
    y[i].inc(f(x[p], g[k], c))     ->  y[i[q]].inc(f(x, g[k[q]], c[q]))
    y[i].inc(f(x[p], g[k, l]))     ->  y[i[q]].inc(f(x, g[k[q], l[q]]))
    sum(f(x[p], g[k], c))          ->  sum(f(x, g[k[q]], c[q]))        any and all too

with :math:`f` elementwise, :math:`p` a permutation of all of ``x``, and ``c``, ``i``, ``j``, ``k``, ``l`` and ``p`` constants.
The entry at :math:`p_a` of each vector on the right is the entry at :math:`a` of the one on the left, and where it
goes does not depend on the order in which they are listed. A sum adds its terms in another order.

``CholeskyCorrTransform`` reads a vector in spiral order to fill a triangle by rows. The order of rows does
not matter to anything that is computed from it, so the vector is read, and its gradient written,
from the first entry to the last.

The index arrays must not name an entry twice where they set: the last one would win.
"""

from functools import cache

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.basic import constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All, Any, Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.vector_reads import vector_read
from pymc_fastlogp.analysis.writes import positions

REDUCTIONS = (Sum, Any, All)


@node_rewriter([AdvancedIncSubtensor])
def local_write_of_permuted(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``y[i].inc(f(x[p], g[k])) -> y[i[q]].inc(f(x, g[k[q]]))``, and the same with ``set``."""
    base, value, *indices = node.inputs
    if len(indices) != base.type.ndim or not all(map(_is_constant_vector, indices)):
        return None
    permutation = _permutation(fgraph, value)
    if permutation is None or any(i.type.shape != permutation.shape for i in indices):
        return None
    if node.op.set_instead_of_inc and not _is_unique(positions(node)):
        return None
    inverse = np.argsort(permutation)
    reordered = (constant(index.data[inverse]) for index in indices)
    out = node.op(base, _reordered(value, inverse), *reordered)
    copy_stack_trace(node.outputs[0], out)
    return [out]


@node_rewriter([*REDUCTIONS])
def local_reduction_of_permuted(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(f(x[p], g[k])) -> sum(f(x, g[k[q]]))``, and the same with ``any`` and ``all``."""
    [value] = node.inputs
    permutation = _permutation(fgraph, value)
    if permutation is None:
        return None
    out = node.op(_reordered(value, np.argsort(permutation)))
    copy_stack_trace(node.outputs[0], out)
    return [out]


def _permutation(fgraph: FunctionGraph, x: TensorVariable) -> np.ndarray | None:
    """Return the one permutation of a whole vector that ``x`` is made with.

    None too if ``x`` is made from anything that cannot be reordered for free.
    """
    if x.type.ndim != 1:
        return None
    leaves = [leaf for leaf in _leaves(fgraph, x) if not _is_free(leaf)]
    # Before any index is looked at, which may be long.
    if not any(map(_may_be_permuted, leaves)):
        return None
    found: list[np.ndarray] = []
    for leaf in leaves:
        read = vector_read(leaf)
        if _is_read_of_entries(leaf):
            continue
        if read is not None and read.is_permutation:
            found.append(read.positions)
        elif read is None or isinstance(leaf.owner_op, Subtensor):
            return None
    same = found and all(np.array_equal(index, found[0]) for index in found)
    is_identity = same and np.array_equal(found[0], np.arange(found[0].size))
    return found[0] if same and not is_identity else None


def _is_free(leaf: TensorVariable) -> bool:
    """Whether a leaf can be reordered in advance."""
    return isinstance(leaf, TensorConstant) or all(leaf.type.broadcastable)


def _is_read_of_entries(leaf: TensorVariable) -> bool:
    """Whether a leaf reads a tensor of more dimensions than one, with a constant vector for each axis."""
    if not isinstance(leaf.owner_op, AdvancedSubtensor):
        return False
    tensor, *indices = leaf.owner.inputs
    if tensor.type.ndim < 2 or len(indices) != tensor.type.ndim:
        return False
    return all(_is_constant_vector(i) and i.type.shape == leaf.type.shape for i in indices)


def _may_be_permuted(leaf: TensorVariable) -> bool:
    """Whether a leaf reads as many entries of something as that has, as far as is known."""
    if not isinstance(leaf.owner_op, Subtensor | AdvancedSubtensor):
        return False
    return leaf.type.shape in (leaf.owner.inputs[0].type.shape, (None,))


def _leaves(fgraph: FunctionGraph, x: TensorVariable) -> list[TensorVariable]:
    """Return what an elementwise expression is made of, itself if something needs it in its order."""

    @cache
    def is_needed_in_any_order(x: TensorVariable) -> bool:
        """Whether writes at constant positions, and reductions, are all that becomes of ``x``."""
        return all(
            _takes_any_order(client, place)
            or (isinstance(client.op, Elemwise) and is_needed_in_any_order(client.outputs[0]))
            for client, place in fgraph.clients[x]
        )

    def operands(x: TensorVariable) -> list[TensorVariable]:
        return x.owner.inputs if _is_elemwise(x) and is_needed_in_any_order(x) else []

    return [x for x in walk([x], operands) if not operands(x)]


def _takes_any_order(client: Apply, place: int) -> bool:
    if isinstance(client.op, AdvancedIncSubtensor):
        return place == 1 and all(map(_is_constant_vector, client.inputs[2:]))
    return isinstance(client.op, REDUCTIONS)


def _reordered(x: TensorVariable, inverse: np.ndarray) -> TensorVariable:
    """Return ``x[inverse]``, for an expression of which :func:`_permutation` knows the leaves."""

    @cache
    def reordered(x: TensorVariable) -> TensorVariable:
        if all(x.type.broadcastable):
            return x
        if isinstance(x, TensorConstant):
            return constant(x.data[inverse])
        if (read := vector_read(x)) is not None:
            return read.reordered(inverse)
        if _is_read_of_entries(x):
            tensor, *indices = x.owner.inputs
            return tensor[tuple(constant(index.data[inverse]) for index in indices)]
        return x.owner.op(*map(reordered, x.owner.inputs))

    return reordered(x)


def _is_elemwise(x: TensorVariable) -> bool:
    """Whether ``x`` is a vector made elementwise from others."""
    return isinstance(x.owner_op, Elemwise) and x.type.broadcastable == (False,)


def _is_constant_vector(x: TensorVariable) -> bool:
    return isinstance(x, Constant) and x.type.ndim == 1 and x.type.dtype != "bool"


def _is_unique(where: np.ndarray | None) -> bool:
    return where is not None and np.unique(where).size == where.size
