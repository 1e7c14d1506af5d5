r"""``eigh(K)``: let the eigenvectors have any signs, where nothing depends on them.

.. code::

    sum((Q.T @ y)**2 / (w + s**2)), w, Q = eigh(K)  ->  the same of eigh_up_to_signs(K)

An eigenvector has two signs, and which of them a function of LAPACK returns is its own affair. A Gaussian density by eigenvectors, as that of
``pm.gp.MarginalKron``, has no use for them: it is a sum of squares of :math:`Q_1^\top Y Q_2`, and each sign is a factor of entries that are squared.
So the function can be chosen by its time: for few rows ``syev`` takes less than ``syevr``, which PyTensor calls, and it is called from within a
kernel.

That nothing depends on signs is shown from the eigenvectors on, node by node. A variable is *signed along* some of its axes if a change of
signs of eigenvectors multiplies each entry by a sign that depends on its position in these axes alone. :data:`STEPS` says what each Op makes of it; squares end it, and what is not
in the table refuses.

What has signs stays as it is: the nodes from the eigenvectors to what has none are made again, and the latter alone are replaced, by what is equal. PyMC
rewrites a logp in place, and what was made of it before, as a gradient, may read some of the nodes between.
"""

from collections.abc import Callable

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.eigen import Eigh
from pytensor.tensor.math import Dot
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import squared
from pymc_fastlogp.ops import MAX_ROWS_SYEV, EighUpToSigns

# The axes along which a variable is signed.
Axes = frozenset[int]
Signed = dict[Variable, Axes]
Replacements = dict[TensorVariable, TensorVariable]


@node_rewriter([blockwise_of(Eigh)])
def local_eigh_up_to_signs(fgraph: FunctionGraph, node: Apply) -> Replacements | None:
    """Rewrite ``eigh(K) -> eigh_up_to_signs(K)``."""
    op = core_op(node.op)
    matrix, *others = node.inputs
    values, vectors = node.outputs
    rows = matrix.type.shape[-1]
    if others or not op.lower or matrix.type.ndim != 2 or matrix.type.dtype != "float64":
        return None
    if rows is None or not 1 < rows <= MAX_ROWS_SYEV or matrix.type.shape[0] != rows:
        return None
    ends = free_of_signs(fgraph, vectors)
    if ends is None:
        return None
    new_values, new_vectors = EighUpToSigns()(matrix)
    new = {values: new_values, **_made_again(ends, {values: new_values, vectors: new_vectors})}
    if not all(old.type.is_super(x.type) for old, x in new.items()):
        return None
    copy_stack_trace([*new], [*new.values()])
    return new


def free_of_signs(fgraph: FunctionGraph, vectors: TensorVariable) -> list[TensorVariable] | None:
    """Return the first variables that do not depend on the signs of the columns of a matrix, None if an output depends on them."""
    signed: Signed = {vectors: frozenset({1})}
    to_visit, free = [vectors], dict[TensorVariable, None]()
    while to_visit:
        for client, _ in fgraph.clients[to_visit.pop()]:
            axes = _after(client, signed)
            if axes is None:
                return None
            [out] = client.outputs
            # A variable that another path has visited is as it was, or is refused.
            if axes and signed.setdefault(out, axes) != axes:
                return None
            if axes:
                to_visit.append(out)
            else:
                free[out] = None
    return [*free]


def _made_again(ends: list[TensorVariable], given: Replacements) -> Replacements:
    """Return for some variables what is made by the same nodes of others."""
    new = dict(given)
    for node in io_toposort(given, ends):
        if new.keys().isdisjoint(node.inputs):
            continue
        again = node.clone_with_new_inputs([new.get(x, x) for x in node.inputs])
        new |= zip(node.outputs, again.outputs, strict=True)
    return {end: new[end] for end in ends}


def _after(node: Apply, signed: Signed) -> Axes | None:
    """Return the axes along which the output of a node is signed, none if it is not; None where that is not known."""
    step = STEPS.get(type(node.op)) if len(node.outputs) == 1 else None
    return None if step is None else step(node, signed)


def _of_dimshuffle(node: Apply, signed: Signed) -> Axes | None:
    [x] = node.inputs
    order = node.op.new_order
    return frozenset(i for i, axis in enumerate(order) if axis in signed[x])


def _of_reshape(node: Apply, signed: Signed) -> Axes | None:
    if node.inputs[1] in signed:
        return None
    return frozenset(range(node.outputs[0].type.ndim))


def _of_product(node: Apply, signed: Signed) -> Axes | None:
    """Return those of a product of matrices, which must not add up entries of several signs unless they are squares."""
    left, right = node.inputs
    if node.outputs[0].type.shape == (1, 1) and _same_entries(left) is _same_entries(right):
        return frozenset()
    of_left, of_right = signed.get(left, frozenset()), signed.get(right, frozenset())
    if 1 in of_left or 0 in of_right:
        return None
    return of_left | of_right


def _same_entries(x: Variable) -> Variable:
    """Return the vector that a row or a column was made of."""
    while isinstance(x.owner_op, DimShuffle):
        [x] = x.owner.inputs
    return x


def _of_elemwise(node: Apply, signed: Signed) -> Axes | None:
    """Return those of a multiple by what has no signs; a square has none."""
    if squared(node.outputs[0]) is not None:
        return frozenset()
    factors = [x for x in node.inputs if x in signed]
    is_multiple = isinstance(node.op.scalar_op, ps.Mul | ps.TrueDiv) and len(factors) == 1
    is_numerator = not isinstance(node.op.scalar_op, ps.TrueDiv) or factors == [node.inputs[0]]
    if not is_multiple or not is_numerator:
        return None
    [x] = factors
    # An axis of length one may be repeated: all of it then has the sign of one entry.
    return signed[x]


STEPS: dict[type, Callable[[Apply, Signed], Axes | None]] = {
    DimShuffle: _of_dimshuffle,
    Reshape: _of_reshape,
    Dot: _of_product,
    Elemwise: _of_elemwise,
}
