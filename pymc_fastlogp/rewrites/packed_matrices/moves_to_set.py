"""Write a matrix that is filled from vectors as one set of each of them.

.. code::

    pad(reshape(join(v[s1], v[s2], ..), (n, m)) * mask, ..)  ->  zeros(shape)[rows, cols].set(v)
    stack([join(v[0:0], one, zeros), join(v[0:1], one, zeros), ..])  ->  zeros(shape)[rows, cols].set(v)[k, k].set(1)

or however else PyTensor can move entries (:mod:`~pymc_fastlogp.analysis.provenance`), also of a batch of matrices. The entries of a
vector are listed in its own order, so that it is read, and its gradient written, from end to end.

PyMC's ``CholeskyCorrTransform`` builds its triangle the first way. As one set the triangle can be followed by
:mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor`, and the gradient returns along one permutation.

Of a set of a vector into one value nothing is left to do, and the rule demands that what it writes has fewer moves than
there were. Where a vector's entry stands twice, it would have to be gathered: such a matrix is left alone. So is one in
which a masked entry stands nowhere else, and an infinite one would get lost: zero times infinity is nan, and the set stores zero.
"""

from collections.abc import Iterable
from itertools import pairwise

from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Alloc, Join, switch
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import mul
from pytensor.tensor.pad import Pad
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.provenance import Entries, moved_inputs, movement_nodes, provenance
from pymc_fastlogp.rewrites.packed_matrices.packed_array import is_scalar, is_whole, packed

# What stores what it moves; the other Ops that move entries are views, or are followed by one of these.
STORES = (switch, mul, Join, Reshape, Pad, IncSubtensor, AdvancedIncSubtensor)


@node_rewriter([*STORES])
def local_moves_to_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``pad(reshape(join(v[s], ..)) * mask, ..) -> zeros[rows, cols].set(v)``."""
    [out] = node.outputs
    if (
        not _is_matrix_of_moved(out)
        or _is_moved_on(fgraph, out)
        or _n_stores(movement_nodes(out)) < 2
    ):
        return None
    found = provenance(out)
    filled = packed(out, found)
    if found is None or filled is None or not all(map(_stands_once, filled.entries)):
        return None
    if _is_constant(filled.entries):
        return None
    if node.op == mul and all(map(_is_repeated, filled.entries)):
        return None
    n_before = _n_stores(toposort([out], blockers=found.leaves))
    if sum(map(_n_stores_of, filled.entries)) >= n_before:
        return None
    made = filled.as_sets()
    if _n_stores(toposort([made], blockers=found.leaves)) >= n_before:
        return None
    copy_stack_trace(out, made)
    return [made]


def _is_matrix_of_moved(x: TensorVariable) -> bool:
    return x.type.ndim >= 2 and len(moved_inputs(x)) > 0


def _is_moved_on(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether all that reads ``x`` moves its entries on into another matrix, at which the rule looks too."""
    return all(
        (client.op in STORES or isinstance(client.op, STORES[2:]))
        and _is_matrix_of_moved(client.outputs[0])
        for client, _ in fgraph.clients[x]
    )


def _is_constant(entries: Iterable[Entries]) -> bool:
    """Return whether a matrix is made of constant arrays: PyTensor folds it, and a set of most of its entries is no triangle."""
    leaves = [entry for entry in entries if not is_scalar(entry)]
    return bool(leaves) and all(isinstance(entry.leaf, Constant) for entry in leaves)


def _stands_once(entry: Entries) -> bool:
    """Return whether no entry of a tensor stands at two positions, but for a scalar, or a constant."""
    is_free = is_scalar(entry) or isinstance(entry.leaf, Constant)
    return is_free or all(a < b for a, b in pairwise(entry.which))


def _is_repeated(entry: Entries) -> bool:
    """Return whether a constant, or one number at several positions: a product with a mask says that as well, and is symmetric."""
    return isinstance(entry.leaf, Constant) or (is_scalar(entry) and entry.which.size > 1)


def _n_stores_of(entry: Entries) -> int:
    """Return how many nodes are no mere views, at least, of those that write some entries: a set, and a gather."""
    return 1 if is_scalar(entry) or is_whole(entry) else 2


def _n_stores(moves: Iterable[Apply]) -> int:
    """Return how many nodes are no mere views, or fill; those that choose for each position count thrice."""
    stores = [node.op for node in moves if not isinstance(node.op, DimShuffle | Reshape | Alloc)]
    return len(stores) + 2 * sum(op == switch or isinstance(op, Pad) for op in stores)
