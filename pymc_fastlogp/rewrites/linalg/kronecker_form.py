r"""Differentiate the quadratic form of a Kronecker covariance by its factors, not through their eigenvectors.

.. code::

    w_i, Q_i = eigh(K_i)
    z = kron(Q_1.T, ..., Q_D.T) @ y / sqrt(kron(w_1, ..., w_D) + noise)
    dot(z, z)  ->  kronecker_form(y, noise, K_1, ..., K_D)

``pm.KroneckerNormal``, so ``pm.gp.MarginalKron``, has the covariance :math:`\Sigma = K_1 \otimes \dots \otimes K_D + s I`. With
:math:`K_i = Q_i \operatorname{diag}(w_i) Q_i^\top`, write :math:`y` as an array of :math:`D` axes and

.. math::

    u = (Q_1^\top \otimes \dots \otimes Q_D^\top) y, \qquad e = w_1 \otimes \dots \otimes w_D + s, \qquad \beta = u / e.

The form :math:`q = y^\top \Sigma^{-1} y = \sum u^2 / e` has the differential, with :math:`\alpha = \Sigma^{-1} y = (Q_1 \otimes
\dots \otimes Q_D) \beta`,

.. math:: dq = 2 \alpha^\top dy - \alpha^\top d\Sigma\, \alpha.

Let :math:`\beta_{(i)}` be :math:`\beta` with axis :math:`i` as rows and all other axes as columns, and :math:`w_{(i)}` the
eigenvalues of the other factors, multiplied, in the order of these columns. Then

.. math::

    \frac{dq}{dK_i} = -Q_i\, \beta_{(i)} \operatorname{diag}(w_{(i)})\, \beta_{(i)}^\top Q_i^\top,
    \qquad \frac{dq}{ds} = -\sum \beta^2.

PyTensor differentiates the eigenvectors of :math:`K_i` by :math:`(c_{jk} - c_{kj}) / (w_k - w_j)`. A smooth kernel has many
eigenvalues next to zero, whose differences are round-off, so this gradient has no correct digit. The formula above has no such
difference. The log-determinant :math:`\sum \log e` reads eigenvalues alone, whose gradient has no difference either.

The value is computed as before. As in PyTensor, the gradient is taken with respect to the lower triangle of :math:`K_i`, where an
element below the diagonal counts twice. Second derivatives differentiate eigenvectors, as without the rule.

When it applies
---------------
Before the gradient is taken, to float64 matrices of at least two rows, whose numbers are known, with one noise variance for all
entries or none, and one or several vectors ``y``.

When it refuses
---------------
- A product in which a matrix of eigenvectors is missing, or applies to an axis other than that of its eigenvalues.
- A noise of its own for each entry.
- A constant factor, whose eigenvectors PyTensor computes in advance.
- Upper triangles, single precision, unknown shapes.

References
----------
Y. Saatchi, "Scalable inference for structured Gaussian process models", PhD thesis, University of Cambridge, 2011.
"""

from functools import reduce
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.eigen import Eigh, eigh
from pytensor.tensor.math import Dot
from pytensor.tensor.rewriting.blockwise import blockwise_of
from pytensor.tensor.shape import Reshape
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import in_type, operand, operands
from pymc_fastlogp.ops import MAX_ROWS_SYEV, EighUpToSigns, of_lower_triangle
from pymc_fastlogp.rewrites.replacement import replacement

# For each axis of an array the numbers of the factors whose entries it runs through, the last one fastest; BATCH for many vectors.
type Layout = list[tuple[int, ...]]
BATCH = -1


class KroneckerForm(SymbolicOp):
    """``y @ inv(kron(K_1, ..., K_D) + noise * eye) @ y`` of each array ``y`` of a batch.

    The inputs are the batch, of one axis for the batch and one for each matrix, the noise and the matrices.
    """

    inline = True

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph of the values."""
        rotated, _, _, variances = _decomposed(*inputs)
        return [(pt.sqr(rotated) / variances).sum(axis=range(1, rotated.ndim))]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradients of the docstring of the module."""
        [cotangent] = cotangents
        rotated, values, vectors, variances = _decomposed(*inputs)
        n_axes = rotated.ndim
        scale = cotangent.dimshuffle(0, *["x"] * (n_axes - 1))
        beta = rotated / variances
        by_matrix = []
        for axis, rotation in enumerate(vectors, start=1):
            others = _outer([value for i, value in enumerate(values, start=1) if i != axis])
            weighted = scale * beta * pt.expand_dims(others, (0, axis))
            rest = [i for i in range(n_axes) if i != axis]
            inner = pt.tensordot(weighted, beta, axes=[rest, rest])
            by_matrix.append(-of_lower_triangle(rotation @ inner @ rotation.T))
        solution = _rotated(beta, [rotation.T for rotation in vectors])
        by_noise = -(scale * pt.sqr(beta)).sum()
        return [2 * scale * solution, by_noise, *by_matrix]


def _decomposed(
    y: TensorVariable, noise: TensorVariable, *matrices: TensorVariable
) -> tuple[TensorVariable, list[TensorVariable], list[TensorVariable], TensorVariable]:
    """Return ``u``, the eigenvalues and the eigenvectors of each matrix, and ``e``."""
    pairs = [
        EighUpToSigns()(matrix) if matrix.type.shape[0] <= MAX_ROWS_SYEV else eigh(matrix)
        for matrix in matrices
    ]
    values, vectors = [value for value, _ in pairs], [vector for _, vector in pairs]
    return _rotated(y, vectors), values, vectors, _outer(values) + noise


def _rotated(y: TensorVariable, rotations: list[TensorVariable]) -> TensorVariable:
    """Multiply each axis but the first by the transpose of a matrix."""
    # The product with axis 1 becomes the last axis, so that all axes are in order at the end.
    return reduce(lambda x, rotation: pt.tensordot(x, rotation, axes=[[1], [0]]), rotations, y)


def _outer(vectors: list[TensorVariable]) -> TensorVariable:
    """Return the products of the entries of vectors, with one axis for each vector."""
    one = pt.constant(1.0, dtype="float64")
    return reduce(lambda x, vector: x[..., None] * vector, vectors, one)


@node_rewriter([Dot, blockwise_of(Dot)])
def local_kronecker_form(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``dot(z, z) -> kronecker_form(y, noise, K_1, ..., K_D)``."""
    [out] = node.outputs
    left, right = (_whitened(x, axis) for x, axis in zip(node.inputs, (-1, -2), strict=True))
    if left is None or left != right or out.ndim > 3:
        return None
    if None in out.type.shape or out.type.shape[-2:] != (1, 1):
        return None
    (rotated, axis), variances = left
    if (found := _factors_and_noise(variances)) is None:
        return None
    factors, noise = found
    lengths = dict(enumerate(factor.outputs[0].type.shape[0] for factor in factors))
    n = prod(lengths.values())
    if (rotated.type.shape[axis], variances.x.type.shape[variances.axis]) != (n, n):
        return None
    lengths[BATCH] = out.type.shape[0]
    layout: Layout = [(BATCH,) if length != 1 else () for length in rotated.type.shape]
    layout[axis] = tuple(range(len(factors)))
    if (batch := _before_rotations(rotated, layout, factors, lengths)) is None:
        return None
    forms = KroneckerForm()(batch, noise, *(factor.inputs[0] for factor in factors))
    return replacement(out, pt.expand_dims(forms, tuple(range(1, out.ndim))))


class Along(NamedTuple):
    """An array and one of its axes."""

    x: TensorVariable
    axis: int


def _whitened(x: TensorVariable, axis: int) -> tuple[Along, Along] | None:
    """Return ``u`` and ``e`` along an axis if ``x`` is ``u / sqrt(e)``, else None."""
    quotient = _below_dimshuffle(Along(x, axis % x.ndim))
    if len(sides := operands(quotient.x, ps.TrueDiv)) != 2:
        return None
    rotated, deviation = (_below_dimshuffle(Along(side, quotient.axis)) for side in sides)
    if (variances := operand(deviation.x, ps.Sqrt)) is None:
        return None
    return rotated, _below_dimshuffle(Along(variances, deviation.axis))


def _below_dimshuffle(along: Along) -> Along:
    """Return the array below DimShuffles, and its axis."""
    x, axis = along
    while isinstance(x.owner_op, DimShuffle) and isinstance(x.owner_op.new_order[axis], int):
        axis, [x] = x.owner_op.new_order[axis], x.owner.inputs
    return Along(x, axis)


def _factors_and_noise(variances: Along) -> tuple[list[Apply], TensorVariable] | None:
    """Return the decompositions of the factors and the noise if an axis is that of ``kron(w_1, ..., w_D) + noise``, else None."""
    x, axis = variances
    terms = operands(x, ps.Add) or [x]
    products = [Along(term, axis) for term in terms if not all(term.type.broadcastable)]
    if len(products) != 1 or (factors := _factors(products[0])) is None:
        return None
    noises = [term.squeeze() for term in terms if all(term.type.broadcastable)]
    return factors, reduce(pt.add, noises, pt.constant(0.0, dtype="float64"))


def _factors(along: Along) -> list[Apply] | None:
    """Return the decompositions whose eigenvalues are multiplied along an axis, as ``ravel(outer(ravel(outer(w_1, w_2)), w_3))``."""
    x, _ = _below_dimshuffle(along)
    if x.ndim != 1:
        return None
    if _is_decomposition(x.owner):
        return [x.owner]
    if not isinstance(x.owner_op, Reshape):
        return None
    sides = operands(x.owner.inputs[0], ps.Mul)
    if [side.type.broadcastable for side in sides] != [(False, True), (True, False)]:
        return None
    first, second = (_factors(Along(side, axis)) for axis, side in enumerate(sides))
    return None if first is None or second is None else first + second


def _is_decomposition(node: Apply | None) -> bool:
    """Return whether a node returns eigenvalues and eigenvectors of a float64 matrix of known length, read from its lower triangle."""
    if node is None or len(node.inputs) != 1:
        return False
    [matrix], op = node.inputs, core_op(node.op)
    if not isinstance(op, EighUpToSigns) and not (isinstance(op, Eigh) and op.lower):
        return False
    n = node.outputs[0].type.shape[-1]
    return matrix.type.dtype == "float64" and matrix.type.shape == (n, n) and n not in (None, 1)


def _before_rotations(
    x: TensorVariable, layout: Layout, factors: list[Apply], lengths: dict[int, int]
) -> TensorVariable | None:
    """Return the array that is multiplied by all eigenvectors to give ``x``, with one axis for the batch and for each factor; else None."""
    remaining = {*range(len(factors))}
    while remaining:
        match x.owner_op_and_inputs:
            case (DimShuffle(new_order=order), y):
                layout = [layout[order.index(i)] if i in order else () for i in range(y.ndim)]
            case (Reshape(), y, _):
                if (split := _split([*chain.from_iterable(layout)], y.type.shape, lengths)) is None:
                    return None
                layout = split
            case (Dot(), left, right):
                of_rows = _rotation(left, 0, layout[0], factors)
                of_columns = _rotation(right, 1, layout[1], factors)
                if of_rows in remaining:
                    remaining.remove(of_rows)
                    y = right
                elif of_columns in remaining:
                    remaining.remove(of_columns)
                    y = left
                else:
                    return None
            case _:
                return None
        x = y
    flat = [*chain.from_iterable(layout)]
    order = [flat.index(label) for label in range(len(factors))]
    y = in_type(x, "float64").reshape([lengths[label] for label in flat])
    return y.dimshuffle(flat.index(BATCH) if BATCH in flat else "x", *order)


def _rotation(
    matrix: TensorVariable, axis: int, labels: tuple[int, ...], factors: list[Apply]
) -> int | None:
    """Return the number of the factor by whose eigenvectors an axis is multiplied, None if there is none."""
    vectors, column = _below_dimshuffle(Along(matrix, axis))
    if len(labels) != 1 or labels == (BATCH,):
        return None
    [label] = labels
    return label if vectors is factors[label].outputs[1] and column == 1 else None


def _split(
    labels: list[int], shape: tuple[int | None, ...], lengths: dict[int, int]
) -> Layout | None:
    """Return labels in the order of their axes, split such that the axes have the lengths of a shape."""
    layout: Layout = []
    rest = [*labels]
    for length in shape:
        here: list[int] = []
        size = 1
        while rest and size != length:
            here.append(rest.pop(0))
            size *= lengths[here[-1]]
        if size != length:
            return None
        layout.append(tuple(here))
    return None if rest else layout
