"""Write a matrix that moves entries of vectors as one set per vector.

.. code::

    pad(reshape(join(v[s1], v[s2], ..), (n, m)) * mask, ..)              ->  zeros(shape)[rows, cols].set(v)
    stack([join(v[0:0], one, zeros), join(v[0:1], one, zeros), ..])      ->  zeros(shape)[rows, cols].set(v)[k, k].set(1)
    where(mask, v[index], eye(n))                                        ->  zeros(shape)[rows, cols].set(v)[k, k].set(1)
    zeros(shape)[rows, cols].set(v[p])                                   ->  zeros(shape)[rows[q], cols[q]].set(v)      q inverts p

Each Op that moves entries is ``out[p] = in[f(p)]`` with a function ``f`` of positions alone. The rule matches no particular
Ops. It numbers the entries, evaluates the graph and reads the position of each entry from the result
(:mod:`~pymc_fastlogp.analysis.provenance`). The entries of a vector are listed in the order of the vector, so it is read, and
its gradient written, contiguously. Value and gradient are bitwise equal, except for the sign of a zero that a mask made of a
negative number.

PyMC's ``CholeskyCorrTransform``, and with it every ``LKJCorr``, builds its triangle the first way. A set can be followed by
:mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_set_subtensor`, :mod:`~pymc_fastlogp.rewrites.packed_matrices.sum_of_filled`
and :mod:`~pymc_fastlogp.rewrites.packed_matrices.diag_of_filled`. A batch of matrices is written with one position per axis.

When it applies
---------------
- Shapes are known, with at most 100 000 entries in the matrix or batch and in each source.
- Entries move by constant indexing and sets, ``inc`` of zeros, ``Reshape``, ``Join``, ``Split``, ``MakeVector``, ``Pad``,
  ``DimShuffle``, ``Alloc``, ``AllocDiag``, ``ExtractDiag``, switches on constants, and products with masks of zeros and ones.
- One value, usually zero, fills the rest.
- The sets are fewer Ops than before. Views do not count; padding and switches count three times.

When it refuses
---------------
- A masked entry without another position: infinity times zero is NaN, but the set stores zero.
- An entry at two positions, which would need a gather; a matrix that is set into another matrix.
- Constant arrays alone, such as padded data, which PyTensor folds to one constant.
- Indices, shapes or masks computed at run time, sets with duplicate positions, sets that cast.
"""

from collections.abc import Iterable
from itertools import pairwise

from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
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
from pymc_fastlogp.rewrites.replacement import replacement

# Ops that store the entries they move. All other moves are views, or one of these Ops follows.
STORES = (switch, mul, Join, Reshape, Pad, IncSubtensor, AdvancedIncSubtensor)


@node_rewriter([*STORES])
def local_moves_to_set(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``pad(reshape(join(v[s], ..)) * mask, ..) -> zeros[rows, cols].set(v)``."""
    [out] = node.outputs
    if (
        not _is_matrix_of_moved(out)
        or _is_intermediate(fgraph, out)
        or _n_stores(movement_nodes(out)) < 2
    ):
        return None
    found = provenance(out)
    filled = packed(out, found)
    if found is None or filled is None or not all(map(_has_single_positions, filled.entries)):
        return None
    if _is_constant(filled.entries):
        return None
    if node.op == mul and all(map(_is_repeated, filled.entries)):
        return None
    n_before = _n_stores(toposort([out], blockers=found.leaves))
    if sum(map(_min_stores, filled.entries)) >= n_before:
        return None
    sets = filled.as_sets()
    if _n_stores(toposort([sets], blockers=found.leaves)) >= n_before:
        return None
    return replacement(out, sets)


def _is_matrix_of_moved(x: TensorVariable) -> bool:
    return x.type.ndim >= 2 and len(moved_inputs(x)) > 0


def _is_intermediate(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether every reader moves the entries of ``x`` into another matrix, which the rule visits too."""
    return all(
        (client.op in STORES or isinstance(client.op, STORES[2:]))
        and _is_matrix_of_moved(client.outputs[0])
        for client, _ in fgraph.clients[x]
    )


def _is_constant(entries: Iterable[Entries]) -> bool:
    """Return whether all arrays in a matrix are constant, so that PyTensor folds the matrix."""
    leaves = [entry for entry in entries if not is_scalar(entry)]
    return bool(leaves) and all(isinstance(entry.leaf, Constant) for entry in leaves)


def _has_single_positions(entry: Entries) -> bool:
    """Return whether each entry of a variable has one position. Scalars and constants may have several."""
    is_free = is_scalar(entry) or isinstance(entry.leaf, Constant)
    return is_free or all(a < b for a, b in pairwise(entry.which))


def _is_repeated(entry: Entries) -> bool:
    """Return whether the entries are constant, or one scalar at several positions. A product with a mask is as simple, and symmetric."""
    return isinstance(entry.leaf, Constant) or (is_scalar(entry) and entry.which.size > 1)


def _min_stores(entry: Entries) -> int:
    """Return a lower bound of the storing nodes that write these entries: one set, and a gather unless the tensor is whole."""
    return 1 if is_scalar(entry) or is_whole(entry) else 2


def _n_stores(moves: Iterable[Apply]) -> int:
    """Return the number of storing nodes. A switch or a padding, which decides per position, counts three times."""
    stores = [node.op for node in moves if not isinstance(node.op, DimShuffle | Reshape | Alloc)]
    return len(stores) + 2 * sum(op == switch or isinstance(op, Pad) for op in stores)
