r"""Compute eigenvectors with arbitrary signs, where the result does not depend on the signs.

.. code::

    w, Q = eigh(K);  sum((Q.T @ y)**2 / (w + s**2))  ->  w, Q = eigh_up_to_signs(K);  sum((Q.T @ y)**2 / (w + s**2))

The sign of an eigenvector is up to the LAPACK function. A Gaussian density by eigenvectors, such as ``pm.gp.MarginalKron``, is
a sum of squares of :math:`Q_1^\top Y Q_2`, so each sign cancels. Then the faster function may be chosen. For few rows ``syev``
is faster than ``syevr``, which PyTensor calls, and a kernel can call ``syev`` itself.

Independence of the signs is proved node by node from the eigenvectors on. A variable is *signed along* some of its axes if a
change of eigenvector signs multiplies each entry by a sign that depends only on its position along these axes. :data:`STEPS`
has the transfer function of each Op. Squares and inner products of a vector with itself end the propagation.

Signed variables keep their nodes, because a gradient that was taken before may read them: PyMC rewrites a logp in place. The
nodes between the eigenvectors and the first sign-free variables are cloned, and only the sign-free variables are replaced.

Where eigenvalues are equal up to round-off, both functions may return different bases, with the same sum. For a matrix with
NaN, all results are NaN, where PyTensor may return numbers.

When it applies
---------------
Before the gradient is taken, to a float64 matrix of 2 to 25 rows, a known number. Between the eigenvectors and the squares,
transposes, reshapes, multiples, and matrix products that do not sum over the signed axes are allowed.

When it refuses
---------------
Any other reader of the eigenvectors (``Q @ z``, absolute values, sums over entries), more rows or an unknown number, the upper
triangle.
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
from pymc_fastlogp.ops import EighUpToSigns

# Kernels have ``syev`` up to this size.
MAX_ROWS = 25

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
    if rows is None or not 1 < rows <= MAX_ROWS or matrix.type.shape[0] != rows:
        return None
    sign_free = sign_free_variables(fgraph, vectors)
    if sign_free is None:
        return None
    new_values, new_vectors = EighUpToSigns()(matrix)
    new = {values: new_values, **_cloned(sign_free, {values: new_values, vectors: new_vectors})}
    if not all(old.type.is_super(x.type) for old, x in new.items()):
        return None
    copy_stack_trace([*new], [*new.values()])
    return new


def sign_free_variables(
    fgraph: FunctionGraph, vectors: TensorVariable
) -> list[TensorVariable] | None:
    """Return the first variables that do not depend on the column signs of a matrix; None if an output depends on the signs."""
    signed: Signed = {vectors: frozenset({1})}
    to_visit, free = [vectors], dict[TensorVariable, None]()
    while to_visit:
        for client, _ in fgraph.clients[to_visit.pop()]:
            axes = _signed_axes(client, signed)
            if axes is None:
                return None
            [out] = client.outputs
            # Two paths to one variable must agree.
            if axes and signed.setdefault(out, axes) != axes:
                return None
            if axes:
                to_visit.append(out)
            else:
                free[out] = None
    return [*free]


def _cloned(ends: list[TensorVariable], given: Replacements) -> Replacements:
    """Return clones of some variables, with the given variables replaced in their graphs."""
    new = dict(given)
    for node in io_toposort(given, ends):
        if new.keys().isdisjoint(node.inputs):
            continue
        clone = node.clone_with_new_inputs([new.get(x, x) for x in node.inputs])
        new |= zip(node.outputs, clone.outputs, strict=True)
    return {end: new[end] for end in ends}


def _signed_axes(node: Apply, signed: Signed) -> Axes | None:
    """Return the axes along which the output of a node is signed, which may be no axes; None if they are unknown."""
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
    """Return the axes of a matrix product, which must not add entries of different signs, unless they are squares."""
    left, right = node.inputs
    if node.outputs[0].type.shape == (1, 1) and _same_entries(left) is _same_entries(right):
        return frozenset()
    of_left, of_right = signed.get(left, frozenset()), signed.get(right, frozenset())
    if 1 in of_left or 0 in of_right:
        return None
    return of_left | of_right


def _same_entries(x: Variable) -> Variable:
    """Return the vector below the DimShuffles of a row or a column."""
    while isinstance(x.owner_op, DimShuffle):
        [x] = x.owner.inputs
    return x


def _of_elemwise(node: Apply, signed: Signed) -> Axes | None:
    """Return the axes of an operand times sign-free factors; a square has none."""
    if squared(node.outputs[0]) is not None:
        return frozenset()
    factors = [x for x in node.inputs if x in signed]
    is_multiple = isinstance(node.op.scalar_op, ps.Mul | ps.TrueDiv) and len(factors) == 1
    is_numerator = not isinstance(node.op.scalar_op, ps.TrueDiv) or factors == [node.inputs[0]]
    if not is_multiple or not is_numerator:
        return None
    [x] = factors
    # A broadcast axis has the sign of its one entry throughout.
    return signed[x]


STEPS: dict[type, Callable[[Apply, Signed], Axes | None]] = {
    DimShuffle: _of_dimshuffle,
    Reshape: _of_reshape,
    Dot: _of_product,
    Elemwise: _of_elemwise,
}
