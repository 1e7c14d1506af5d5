"""Products, factorisations and solves of small matrices."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot

from tests.kernel.covered.data import integers, positive, reals
from tests.kernel.lowering import case


def lower_triangle(n, *batch):
    """Return well conditioned factors."""
    return np.tril(0.3 * reals(*batch, n, n)) + np.eye(n) * (1 + positive(*batch, n, 1))


def covariance(n, *batch):
    """Return positive definite matrices."""
    factor = lower_triangle(n, *batch)
    return factor @ factor.swapaxes(-1, -2)


def diagonal(x, offset=0):
    return AllocDiag(offset=offset, axis1=0, axis2=1)(x)


def diagonals(x):
    """Return a batch of matrices, as PyTensor makes it of the graph of one."""
    one = x[0].type()
    return vectorize_graph(diagonal(one) * 2, {one: x})


def solved(**options):
    """Return a function that solves a triangular system."""
    return lambda a, b: solve_triangular(a, b, **options)


CASES = {
    Dot: {
        "vectors": case(pt.dot, reals(5), reals(5), runtime=False),
        "matrix and vector": case(pt.dot, reals(3, 5), reals(5), runtime=False),
        "vector and matrix": case(pt.dot, reals(5), reals(5, 3), runtime=False),
        "matrices": case(pt.dot, reals(3, 5), reals(5, 4), runtime=False),
        "of one row": case(pt.dot, reals(1, 5), reals(5, 1), runtime=False),
        "without rows": case(pt.dot, reals(0, 5), reals(5, 4), runtime=False),
        "over an empty axis": case(pt.dot, reals(3, 0), reals(0, 4), runtime=False),
        "with a transpose": case(lambda x: pt.dot(x.T, x), reals(6, 3), runtime=False),
        "float32": case(
            pt.dot, reals(3, 5, dtype="float32"), reals(5, dtype="float32"), runtime=False
        ),
        "integers": case(pt.dot, integers(3, 5), integers(5, 2), runtime=False),
        "one beside other work": case(
            lambda x, y: pt.exp(pt.dot(x, y)).sum() + y.sum(), reals(9, 4), reals(4), runtime=False
        ),
    },
    Blockwise: {
        "matrices": case(pt.matmul, reals(6, 3, 5), reals(6, 5, 4), runtime=False),
        "one of each": case(pt.matmul, reals(6, 1, 3, 5), reals(2, 5, 4), runtime=False),
        "matrix and vectors": case(pt.matvec, reals(3, 5), reals(6, 5), runtime=False),
        "of one matrix": case(pt.matmul, reals(1, 3, 1), reals(1, 1, 4), runtime=False),
        "of no matrix": case(pt.matmul, reals(0, 3, 5), reals(0, 5, 4), runtime=False),
        "Cholesky": case(cholesky, covariance(3, 4), runtime=False),
        "triangular": case(
            solved(lower=True, b_ndim=1), lower_triangle(3, 4), reals(4, 3), runtime=False
        ),
        "one triangular for all": case(
            solved(lower=True, b_ndim=1), lower_triangle(3), reals(4, 3), runtime=False
        ),
    },
    # The gradient has an OpFromGraph, which stays outside.
    AllocDiag: {
        "of a vector": case(lambda x: diagonal(x) * 2, reals(4), gradient=False),
        "of one element": case(lambda x: diagonal(x) * 2, reals(1), gradient=False),
        "of nothing": case(lambda x: diagonal(x) * 2, reals(0), gradient=False),
        "above": case(lambda x: diagonal(x, 1) * 2, reals(4), gradient=False),
        "below": case(lambda x: diagonal(x, -2) * 2, reals(4), gradient=False),
        "of each vector": case(diagonals, reals(3, 4), gradient=False),
    },
    BatchedDot: {
        "matrices": case(
            lambda x, y: BatchedDot()(x, y), reals(6, 3, 5), reals(6, 5, 4), runtime=False
        ),
        "of one matrix": case(
            lambda x, y: BatchedDot()(x, y), reals(1, 1, 5), reals(1, 5, 1), runtime=False
        ),
        "of no matrix": case(
            lambda x, y: BatchedDot()(x, y), reals(0, 3, 5), reals(0, 5, 4), runtime=False
        ),
        "float32": case(
            lambda x, y: BatchedDot()(x, y),
            reals(2, 3, 5, dtype="float32"),
            reals(2, 5, 4, dtype="float32"),
            runtime=False,
        ),
    },
    Cholesky: {
        "lower": case(cholesky, covariance(4), runtime=False),
        "upper": case(lambda x: cholesky(x, lower=False), covariance(4), runtime=False),
        "of one element": case(cholesky, [[4.0]], runtime=False),
        "of nothing": case(cholesky, np.zeros((0, 0)), runtime=False),
        "not positive definite": case(
            cholesky, [[1.0, 2.0], [2.0, 1.0]], runtime=False, gradient=False
        ),
        "reads one triangle": case(
            cholesky, covariance(3) + np.triu(np.ones((3, 3)), 1), runtime=False
        ),
    },
    SolveTriangular: {
        "lower": case(solved(lower=True), lower_triangle(5), reals(5, 3), runtime=False),
        "upper": case(solved(lower=False), lower_triangle(5).T.copy(), reals(5, 3), runtime=False),
        "a vector": case(solved(lower=True, b_ndim=1), lower_triangle(5), reals(5), runtime=False),
        "unit diagonal": case(
            solved(lower=True, unit_diagonal=True), lower_triangle(5), reals(5, 2), runtime=False
        ),
        "transposed": case(
            solved(lower=True, trans=1), lower_triangle(5), reals(5, 3), runtime=False
        ),
        "of one element": case(solved(lower=True), [[2.0]], [[3.0]], runtime=False),
        "no rows": case(solved(lower=True), np.zeros((0, 0)), reals(0, 2), runtime=False),
        "no columns": case(solved(lower=True), lower_triangle(3), reals(3, 0), runtime=False),
    },
}
