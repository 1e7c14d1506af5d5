"""Ops that rules introduce and kernels implement.

Each Op has an inner graph, which computes it where no kernel does.
"""

from collections.abc import Sequence
from functools import cache
from math import isqrt
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.scalar import ScalarVariable
from pytensor.scalar.math import gammaln, psi, tri_gamma
from pytensor.tensor.elemwise import Elemwise
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
    """A Composite scalar Op that defines its gradient, instead of the gradient of its inner graph.

    The C code has no version, so PyTensor's compile cache stores neither the code nor a pickle of the Op. Any process that compiles C
    unpickles all cached Ops, and would import the plugin.
    """

    def c_code_cache_version(self) -> tuple[int, ...]:
        """Return no version, which turns caching off."""
        return ()


class _OfThree(SpelledOut):
    """A function of ``a``, ``k`` and a term of ``a`` alone, whose gradient with respect to ``a`` includes that of the term."""

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Return whether each input has a gradient."""
        return [[True], [True], [False]]


class GammaDifference(_OfThree):
    """``gammaln(a + k) - gammaln(a)`` of ``a``, ``k`` and ``gammaln(a)``.

    The terms of ``a`` alone are inputs, because many rows share them. The derivative by ``a`` includes the contribution of ``gammaln(a)``, so this input is disconnected.
    """

    def __init__(self, dtype: str) -> None:
        a, k, log_gamma = _inputs(dtype, "a", "k", "log_gamma")
        super().__init__([a, k, log_gamma], [gammaln(a + k) - log_gamma])
        self._name = "gamma_difference"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k, _), [cotangent] = inputs, output_grads
        by_a = _scalar(PsiDifference, a.type.dtype)(a, k, psi(a))
        return [cotangent * by_a, cotangent * psi(a + k), disconnected_type()]


class PsiDifference(_OfThree):
    """``psi(a + k) - psi(a)`` of ``a``, ``k`` and ``psi(a)``."""

    def __init__(self, dtype: str) -> None:
        a, k, slope = _inputs(dtype, "a", "k", "slope")
        super().__init__([a, k, slope], [psi(a + k) - slope])
        self._name = "psi_difference"

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[ScalarVariable]:
        """Return the gradients with respect to a and k."""
        (a, k, _), [cotangent] = inputs, output_grads
        by_k = tri_gamma(a + k)
        return [cotangent * (by_k - tri_gamma(a)), cotangent * by_k, disconnected_type()]


def _inputs(dtype: str, *names: str) -> list[ScalarVariable]:
    return [ps.get_scalar_type(dtype)(name) for name in names]


@cache
def _scalar(op: type[ps.Composite], dtype: str) -> ps.Composite:
    return op(dtype)


@cache
def _elemwise(dtype: str) -> Elemwise:
    return Elemwise(GammaDifference(dtype))


def gamma_difference(
    a: TensorVariable, k: TensorVariable, log_gamma: TensorVariable
) -> TensorVariable:
    """Return ``gammaln(a + k) - gammaln(a)``, given ``gammaln(a)``. All inputs have one float dtype."""
    return _elemwise(a.type.dtype)(a, k, log_gamma)


class LowerInverse(SymbolicOp):
    r"""The lower triangle of ``(L @ L.T)**-1``, zero above the diagonal; batched; nan where a diagonal element of ``L`` is zero.

    Let :math:`X = (L L^\top)^{-1}`, :math:`G` the lower triangle of the cotangent and :math:`S = (G + G^\top)/2`. The gradient is
    the lower triangle of :math:`-2 X S X L`.
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
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
    r"""The gradient of ``g @ L @ z`` with respect to the lower triangle of ``K = L @ L.T``, zero above the diagonal.

    The inputs are ``L``, ``u = L.T @ g`` and ``z``. Let :math:`S` be the lower triangle of :math:`u z^\top` with its diagonal halved, and
    :math:`M = L^{-\top} S L^{-1}`. An element below the diagonal is :math:`M_{ij} + M_{ji}`, and a diagonal element :math:`M_{ii}`
    (Murray, 2016, "Differentiation of the Cholesky decomposition").
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
        factor, u, z = inputs
        n, one = factor.shape[0], pt.eye(factor.shape[0], dtype=factor.type.dtype)
        inverse = solve_triangular(factor, one, lower=True)
        product = inverse.T @ (pt.tril(u[:, None] * z) * (1 - 0.5 * one)) @ inverse
        symmetric = (product + product.T) * (1 - 0.5 * one)
        return [pt.switch(pt.tri(n, dtype="bool"), symmetric, pt.zeros_like(symmetric))]


class PackTriangle(SymbolicOp):
    """The lower triangle of a square matrix, row by row, as a vector: element ``i, j`` is at ``i (i + 1) / 2 + j``."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
        [matrix] = inputs
        return [matrix[np.tril_indices(_rows(matrix.type.shape))]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the cotangent as a lower triangle."""
        [given] = cotangents
        return [UnpackTriangle()(given)]


class UnpackTriangle(SymbolicOp):
    """The lower-triangular matrix whose triangle is a vector, row by row; the inverse of :class:`PackTriangle`."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
        [packed] = inputs
        n = rows_of_packed(packed.type.shape[0])
        zeros = pt.zeros((n, n), dtype=packed.type.dtype)
        return [zeros[np.tril_indices(n)].set(packed)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the lower triangle of the cotangent as a vector."""
        [triangle], [given] = outputs, cotangents
        return [PackTriangle()(pt.specify_shape(given, triangle.type.shape))]


def rows_of_packed(length: int) -> int:
    """Return the number of rows of the triangle that is packed into a vector of this length.

    Raises
    ------
    ValueError
        If no triangle has this number of elements.
    """
    n = (isqrt(8 * length + 1) - 1) // 2
    if n * (n + 1) // 2 != length:
        raise ValueError(f"no triangle has {length} elements")
    return n


def of_lower_triangle(gradient: TensorVariable) -> TensorVariable:
    """Return the gradient with respect to the lower triangle of a symmetric matrix: an element below the diagonal counts twice."""
    n = gradient.shape[0]
    dtype = gradient.type.dtype
    return (2 * pt.tri(n, dtype=dtype) - pt.eye(n, dtype=dtype)) * gradient


def _rows(shape: tuple[int | None, ...]) -> int:
    rows, columns = shape
    if rows is None or rows != columns:
        raise ValueError(f"a matrix of {rows} x {columns}, which is not known to be square")
    return rows


class EighUpToSigns(SymbolicOp):
    """Eigenvalues and eigenvectors of a symmetric matrix from its lower triangle, as in ``Eigh`` up to the signs of eigenvectors."""

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
        return eigh(*inputs)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return the gradient with respect to the lower triangle, by the formula of ``Eigh``; of eigenvalues alone by one product."""
        [_, vectors], [by_values, by_vectors] = outputs, cotangents
        if isinstance(by_vectors.type, DisconnectedType):
            return [of_lower_triangle((vectors * by_values) @ vectors.T)]
        return Eigh().pullback(inputs, outputs, cotangents)


class IveOfOrders(SymbolicOp):
    """The exponentially scaled Bessel functions ``ive`` of the orders 0, 1, ..., n at one number.

    The first input holds the orders. If they were constants of the inner graph, the rewrite that introduces this Op would match the
    inner graph again.
    """

    def build_inner_graph(self, *inputs: TensorVariable) -> list[TensorVariable]:
        """Return the graph for backends without a kernel."""
        return [pt.ive(*inputs)]


class SiteNode(OpFromGraph):
    """A graph that needs no further rewriting: PyTensor's passes treat it as one node, and kernels inline it."""

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        """Evaluate the graph into new arrays, because the next call of PyTensor's inner function may reuse its arrays."""
        super().perform(node, inputs, outputs)
        for output in outputs:
            output[0] = output[0].copy()

    @property
    def derivative_op_type(self) -> type[OpFromGraph]:
        """The class of Ops for derivatives."""
        return SiteNode
