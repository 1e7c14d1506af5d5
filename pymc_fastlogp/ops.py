"""Ops that rules and kernels know by name."""

from collections.abc import Sequence
from math import isqrt
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.tensor.linalg.decomposition.eigen import Eigh, eigh
from pytensor.tensor.linalg.solvers.triangular import solve_triangular
from pytensor.tensor.variable import TensorVariable

# Largest numbers of rows of matrices for which kernels replace a call of LAPACK, or call a faster function of LAPACK. Rules for
# these matrices use the same limits. ``python -m benchmarks.limits`` measures the limits.
# Straight-line code of Cholesky factors and inverses, and of triangular solves. For more rows it takes seconds to compile and gains less:
# for 12 rows LAPACK takes twice as long.
MAX_ROWS_UNROLLED_CHOLESKY, MAX_ROWS_UNROLLED_SOLVE = 12, 32
# Tiled factors, inverses and pullbacks: larger matrices do not fit into the caches.
MAX_ROWS_TILED = 400
# `syev` as the fastest function of LAPACK for all eigenvectors.
MAX_ROWS_SYEV = 25


class SpelledOut(ps.Composite):
    """A scalar Op that consists of others, with a gradient of its own.

    Its C code has no version, so PyTensor keeps neither that nor a pickle of the Op: any process that compiles C unpickles all that
    were kept, and would import the plugin.
    """

    def c_code_cache_version(self) -> tuple[int, ...]:
        """Return nothing."""
        return ()


class LowerInverse(SymbolicOp):
    r"""The lower triangle of ``(L @ L.T)**-1``, zero above, also of each of a batch; nan where a diagonal element of ``L`` is zero.

    With :math:`X = (L L^\top)^{-1}` and what is given for the triangle of it, made symmetric as :math:`S`, the gradient is the lower triangle of
    :math:`-2 X S X L`.
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it where no kernel does."""
        [factor] = inputs
        n = factor.shape[-1]
        inverse = solve_triangular(factor, pt.eye(n, dtype=factor.type.dtype), lower=True)
        product = inverse.mT @ inverse
        return [pt.switch(pt.tri(n, dtype="bool"), product, pt.zeros_like(product))]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradient with respect to the factor."""
        [factor], [lower], [given] = inputs, outputs, cotangents
        whole = lower + pt.tril(lower, -1).mT
        triangle = pt.tril(given)
        symmetric = 0.5 * (triangle + triangle.mT)
        return [-2 * pt.tril(whole @ symmetric @ whole @ factor)]


class RankOnePullback(SymbolicOp):
    r"""The gradient with respect to the lower triangle of ``K = L @ L.T`` of ``g @ L @ z``, from ``L``, ``u = L.T @ g`` and ``z``; zero above.

    With :math:`S` the lower triangle of :math:`u z^\top`, its diagonal halved, and :math:`M = L^{-\top} S L^{-1}`, an element below the diagonal is
    :math:`M_{ij} + M_{ji}`, and one on it :math:`M_{ii}` (Murray, 2016, "Differentiation of the Cholesky decomposition").
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it where no kernel does."""
        factor, u, z = inputs
        n, one = factor.shape[0], pt.eye(factor.shape[0], dtype=factor.type.dtype)
        inverse = solve_triangular(factor, one, lower=True)
        product = inverse.T @ (pt.tril(u[:, None] * z) * (1 - 0.5 * one)) @ inverse
        symmetric = (product + product.T) * (1 - 0.5 * one)
        return [pt.switch(pt.tri(n, dtype="bool"), symmetric, pt.zeros_like(symmetric))]


class PackTriangle(SymbolicOp):
    """The lower triangle of a square matrix, row by row, as a vector: element ``i, j`` is at ``i (i + 1) / 2 + j``."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it where no kernel does."""
        [matrix] = inputs
        return [matrix[np.tril_indices(_rows(matrix.type.shape))]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return what is given, as a triangle."""
        [given] = cotangents
        return [UnpackTriangle()(given)]


class UnpackTriangle(SymbolicOp):
    """The lower triangle that a vector has row by row, as a matrix with zeros above."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes it where no kernel does."""
        [packed] = inputs
        n = rows_of_packed(packed.type.shape[0])
        zeros = pt.zeros((n, n), dtype=packed.type.dtype)
        return [zeros[np.tril_indices(n)].set(packed)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the triangle of what is given, as a vector."""
        [triangle], [given] = outputs, cotangents
        return [PackTriangle()(pt.specify_shape(given, triangle.type.shape))]


def rows_of_packed(length: int) -> int:
    """Return the rows of the triangle that a vector of some length has row by row.

    Raises
    ------
    ValueError
        If there is none.
    """
    n = (isqrt(8 * length + 1) - 1) // 2
    if n * (n + 1) // 2 != length:
        raise ValueError(f"no triangle has {length} elements")
    return n


def _rows(shape: tuple[int | None, ...]) -> int:
    rows, columns = shape
    if rows is None or rows != columns:
        raise ValueError(f"a matrix of {rows} x {columns}, which is not known to be square")
    return rows


class EighUpToSigns(SymbolicOp):
    """Eigenvalues and eigenvectors of a symmetric matrix by its lower triangle, as ``Eigh`` has them but for the signs of eigenvectors."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes them where no kernel does."""
        return eigh(*inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradient with respect to the lower triangle, by the same formula as that of ``Eigh``."""
        return Eigh().pullback(inputs, outputs, cotangents)


class IveOfOrders(SymbolicOp):
    """The exponentially scaled Bessel functions ``ive`` of the orders 0, 1, ..., n, which are the first input, at one number.

    The orders are an input, so that the graph where no kernel computes it is not taken for one to be rewritten.
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph that computes them where no kernel does."""
        return [pt.ive(*inputs)]


class SiteNode(OpFromGraph):
    """A graph whose nodes are as they should be: no pass of PyTensor looks at each of them, and kernels take it as it is."""

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        """Evaluate it, where no kernel does, into arrays of its own: those of PyTensor's inner function may be those of its next call."""
        super().perform(node, inputs, outputs)
        for output in outputs:
            output[0] = output[0].copy()

    @property
    def derivative_op_type(self) -> type[OpFromGraph]:
        """Of its derivatives: the same."""
        return SiteNode
