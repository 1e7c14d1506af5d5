"""Products, factorizations and solves of matrices, as loops and by BLAS and LAPACK."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.basic import AllocDiag
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot

from pymc_fastlogp.ops import (
    EighUpToSigns,
    IveOfOrders,
    LowerInverse,
    PackTriangle,
    RankOnePullback,
    UnpackTriangle,
)
from tests.kernel.covered.data import integers, positive, reals
from tests.kernel.lowering import case


def lower_triangle(n, *batch):
    """Return well conditioned factors."""
    scale = 0.6 / max(n, 1) ** 0.5
    return np.tril(scale * reals(*batch, n, n)) + np.eye(n) * (1 + positive(*batch, n, 1))


def covariance(n, *batch):
    """Return positive definite matrices."""
    factor = lower_triangle(n, *batch)
    return factor @ factor.swapaxes(-1, -2)


def by_factor(**props):
    return CholeskySolve(**({"lower": True} | props))


def diagonal(x, offset=0):
    return AllocDiag(offset=offset, axis1=0, axis2=1)(x)


def diagonals(x):
    """Return a batch of matrices, as PyTensor makes it of the graph of one."""
    one = x[0].type()
    return vectorize_graph(diagonal(one) * 2, {one: x})


def filled(packed, n):
    """Return a lower triangle filled from a vector, as ``pm.expand_packed_triangular`` does."""
    return pt.zeros((n, n))[np.tril_indices(n)].set(packed)


def solved(**options):
    """Return a function that solves a triangular system."""
    return lambda a, b: solve_triangular(a, b, **options)


def _spectral(x, function):
    """Return a function of a symmetric matrix by its eigenvalues, which does not depend on the signs of eigenvectors."""
    w, vectors = EighUpToSigns()(x)
    return (vectors * function(w)) @ vectors.T


def _bessel(n):
    """Return a function of the Bessel functions of some orders."""
    return lambda x: IveOfOrders()(pt.constant(np.arange(float(n))), x) * x


CASES = {
    Dot: {
        "vectors": case(pt.dot, reals(5), reals(5)),
        "matrix and vector": case(pt.dot, reals(3, 5), reals(5)),
        "vector and matrix": case(pt.dot, reals(5), reals(5, 3)),
        "matrices": case(pt.dot, reals(3, 5), reals(5, 4)),
        "of one row": case(pt.dot, reals(1, 5), reals(5, 1)),
        "without rows": case(pt.dot, reals(0, 5), reals(5, 4)),
        "over an empty axis": case(pt.dot, reals(3, 0), reals(0, 4)),
        "with a transpose": case(lambda x: pt.dot(x.T, x), reals(6, 3)),
        "float32": case(
            pt.dot, reals(3, 5, dtype="float32"), reals(5, dtype="float32"), runtime=False
        ),
        "integers": case(pt.dot, integers(3, 5), integers(5, 2), runtime=False),
        "large": case(pt.dot, reals(20, 30), reals(30, 40)),
        "large, with a transpose": case(lambda x: pt.dot(x.T, x), reals(40, 30)),
        "large, of slices": case(
            lambda x, y: pt.dot(x[3:, 2:40], y[:38, 1:]), reals(50, 43), reals(50, 40)
        ),
        "large, of every other row": case(
            lambda x, y: pt.dot(x[::2], y[:, 1]), reals(80, 43), reals(43, 40)
        ),
        "large, backwards": case(lambda x, y: pt.dot(x[:, ::-1], y), reals(20, 43), reals(43, 40)),
        "large, without rows": case(pt.dot, reals(0, 41), reals(41, 42)),
        # Of one sign: the gradient by y sums all of x, and what cancels there is the rounding of either side.
        "large, of equal rows": case(
            lambda x, y: pt.dot(x, pt.alloc(y, 41, 42)), np.abs(reals(40, 41)), reals(42)
        ),
        "large, of equal columns": case(
            lambda x, y: pt.dot(x, pt.alloc(y[:, None], 41, 42)), reals(40, 41), reals(41)
        ),
        # Positive, so that the gradient by y is no small sum of large numbers.
        "large matrix and equal numbers": case(
            lambda x, y: pt.dot(x, pt.alloc(y, 400)), positive(400, 400), np.array(0.7)
        ),
        # Few rows: the gradient by y adds that many equal numbers, whose roundings have one sign, n / 4 epsilon of n numbers.
        "large matrix of equal rows, and vector": case(
            lambda x, y: pt.dot(pt.alloc(x, 100, 1400), y), reals(1400), reals(1400)
        ),
        "large matrix and vector": case(pt.dot, reals(400, 400), reals(400)),
        "large vector and matrix": case(pt.dot, reals(400), reals(400, 400)),
        "one beside other work": case(
            lambda x, y: pt.exp(pt.dot(x, y)).sum() + y.sum(), reals(9, 4), reals(4)
        ),
        "by few columns": case(pt.dot, reals(70, 4), reals(4, 3)),
        "by few rows": case(pt.dot, reals(3, 4), reals(4, 70)),
        "of float32 by few columns": case(
            pt.dot, reals(9, 2, dtype="float32"), reals(2, 3, dtype="float32"), runtime=False
        ),
        "by a triangle": case(lambda x, v: x @ filled(v, 3), reals(20, 3), reals(6)),
        "by a transposed triangle": case(lambda x, v: x @ filled(v, 4).T, reals(70, 4), reals(10)),
        "of a triangle": case(lambda x, v: filled(v, 9) @ x, reals(9, 21), reals(45)),
        "of a transposed triangle": case(lambda x, v: filled(v, 9).T @ x, reals(9, 9), reals(45)),
        "of a large triangle": case(lambda x, v: filled(v, 13) @ x, reals(13, 15), reals(91)),
        "of a scaled triangle": case(
            lambda x, s, v: (s[:, None] * filled(v, 5)) @ x, reals(5, 8), reals(5), reals(15)
        ),
        "by a large triangle": case(lambda x, v: x @ filled(v, 12).T, reals(250, 12), reals(78)),
        "by a constant triangle": case(
            lambda x: x @ np.tril(1.5 + np.arange(144.0).reshape(12, 12)), reals(250, 12)
        ),
        "of a masked triangle": case(
            lambda x, a: (a * np.tril(np.ones((6, 6)))) @ x, reals(6, 11), reals(6, 6)
        ),
    },
    Blockwise: {
        "matrices": case(pt.matmul, reals(6, 3, 5), reals(6, 5, 4)),
        "one of each": case(pt.matmul, reals(6, 1, 3, 5), reals(2, 5, 4)),
        "matrix and vectors": case(pt.matvec, reals(3, 5), reals(6, 5)),
        "of one matrix": case(pt.matmul, reals(1, 3, 1), reals(1, 1, 4)),
        "of no matrix": case(pt.matmul, reals(0, 3, 5), reals(0, 5, 4)),
        "large matrices": case(pt.matmul, reals(3, 20, 30), reals(3, 30, 20)),
        "one large of each": case(pt.matmul, reals(4, 1, 20, 30), reals(2, 30, 20)),
        "Cholesky": case(cholesky, covariance(3, 4)),
        "large Cholesky": case(cholesky, covariance(40, 3)),
        "a large Cholesky fails": case(
            cholesky, covariance(20, 3) * np.array([1, -1, 1])[:, None, None], gradient=False
        ),
        "large triangular": case(solved(lower=True, b_ndim=2), lower_triangle(40, 3), reals(40, 3)),
        "one large triangular for all": case(
            solved(lower=True, b_ndim=1), lower_triangle(40), reals(3, 40)
        ),
        "one large of several is singular": case(
            solved(lower=True, b_ndim=1),
            lower_triangle(40, 3) * np.array([1, 0, 1])[:, None, None],
            reals(3, 40),
            gradient=False,
        ),
        "triangular": case(solved(lower=True, b_ndim=1), lower_triangle(3, 4), reals(4, 3)),
        "one triangular for all": case(
            solved(lower=True, b_ndim=1), lower_triangle(3), reals(4, 3)
        ),
    },
    AllocDiag: {
        "of a vector": case(lambda x: diagonal(x) * 2, reals(4)),
        "of one element": case(lambda x: diagonal(x) * 2, reals(1)),
        "of nothing": case(lambda x: diagonal(x) * 2, reals(0)),
        "above": case(lambda x: diagonal(x, 1) * 2, reals(4)),
        "below": case(lambda x: diagonal(x, -2) * 2, reals(4)),
        # The gradient is a Blockwise of an OpFromGraph, which stays outside.
        "of each vector": case(diagonals, reals(3, 4), gradient=False),
    },
    BatchedDot: {
        "matrices": case(lambda x, y: BatchedDot()(x, y), reals(6, 3, 5), reals(6, 5, 4)),
        "of one matrix": case(lambda x, y: BatchedDot()(x, y), reals(1, 1, 5), reals(1, 5, 1)),
        "of no matrix": case(lambda x, y: BatchedDot()(x, y), reals(0, 3, 5), reals(0, 5, 4)),
        "float32": case(
            lambda x, y: BatchedDot()(x, y),
            reals(2, 3, 5, dtype="float32"),
            reals(2, 5, 4, dtype="float32"),
            runtime=False,
        ),
    },
    EighUpToSigns: {
        "spectral function": case(
            lambda x: _spectral(x, lambda w: pt.log1p(w)),
            covariance(7),
            runtime=False,
            gradient=False,
        ),
        "of one element": case(
            lambda x: _spectral(x, pt.exp), np.array([[1.5]]), runtime=False, gradient=False
        ),
        "reads one triangle": case(
            lambda x: _spectral(x, pt.exp),
            covariance(9) + np.triu(reals(9, 9), 1),
            runtime=False,
            gradient=False,
        ),
        "eigenvalues": case(
            lambda x: EighUpToSigns()(x)[0], covariance(25), runtime=False, gradient=False
        ),
    },
    IveOfOrders: {
        f"{n} orders of {x}": case(_bessel(n), np.array(x), runtime=False, gradient=False)
        for n, x in ((1, 2.0), (1, -30.0), (4, -0.75), (21, 3.0), (21, 300.0), (51, 1e9))
    },
    RankOnePullback: {
        name: case(
            RankOnePullback(),
            factor,
            reals(len(factor)),
            reals(len(factor)),
            runtime=False,
            gradient=False,
        )
        for name, factor in (
            ("of few rows", lower_triangle(3)),
            ("of a tile", lower_triangle(8)),
            ("of rows of a tile and one", lower_triangle(17)),
            ("of many rows", lower_triangle(61)),
            ("of one element", np.array([[4.0]])),
            ("of nothing", np.zeros((0, 0))),
            ("reads one triangle", lower_triangle(10) + np.triu(np.ones((10, 10)), 1)),
            ("without an inverse", np.diag([1.0, 0.0, 2.0])),
        )
    },
    PackTriangle: {
        **{
            f"of {n} rows": case(PackTriangle(), reals(n, n), runtime=False)
            for n in (0, 1, 2, 7, 8, 17, 40)
        },
        "of what is computed": case(
            lambda x, y: pt.exp(PackTriangle()(x * y[:, None] + y)),
            reals(9, 9),
            reals(9),
            runtime=False,
        ),
        "of integers": case(PackTriangle(), integers(9, 9), runtime=False),
        "of a transpose": case(lambda x: PackTriangle()(x.T), reals(5, 5), runtime=False),
    },
    UnpackTriangle: {
        **{
            f"of {n} rows": case(UnpackTriangle(), reals(n * (n + 1) // 2), runtime=False)
            for n in (0, 1, 2, 7, 8, 17, 40)
        },
        "and its factor": case(
            lambda x: cholesky(UnpackTriangle()(x)),
            covariance(20)[np.tril_indices(20)],
            runtime=False,
            gradient=False,
        ),
        "of nothing finite": case(
            lambda x: UnpackTriangle()(pt.log(x)), np.zeros(28), runtime=False, gradient=False
        ),
    },
    LowerInverse: {
        name: case(op, factor)
        for name, op, factor in (
            ("of a factor", LowerInverse(), lower_triangle(4)),
            ("large", LowerInverse(), lower_triangle(40)),
            ("larger than those of ours", LowerInverse(), lower_triangle(401)),
            ("of one element", LowerInverse(), [[4.0]]),
            ("of nothing", LowerInverse(), np.zeros((0, 0))),
            ("reads one triangle", LowerInverse(), lower_triangle(7) + np.triu(np.ones((7, 7)), 1)),
            ("of a transpose", lambda x: LowerInverse()(x.T), lower_triangle(7).T.copy()),
        )
    },
    CholeskySolve: {
        "vector": case(by_factor(b_ndim=1), lower_triangle(4), reals(4)),
        "columns": case(by_factor(b_ndim=2), lower_triangle(40), reals(40, 3)),
        "large vector": case(by_factor(b_ndim=1), lower_triangle(40), reals(40)),
        "upper": case(by_factor(lower=False, b_ndim=2), lower_triangle(6).T.copy(), reals(6, 2)),
        "of one element": case(by_factor(b_ndim=1), [[4.0]], [3.0]),
        "of nothing": case(by_factor(b_ndim=1), np.zeros((0, 0)), np.zeros(0)),
        "no columns": case(by_factor(b_ndim=2), lower_triangle(4), np.zeros((4, 0))),
        "batch": case(
            Blockwise(CholeskySolve(b_ndim=1, lower=True)), lower_triangle(5, 3), reals(3, 5)
        ),
        "a zero on the diagonal": case(
            by_factor(b_ndim=1), np.diag([1.0, 0.0, 2.0]), np.ones(3), gradient=False
        ),
    },
    Cholesky: {
        "lower": case(cholesky, covariance(4)),
        "upper": case(lambda x: cholesky(x, lower=False), covariance(4)),
        "of one element": case(cholesky, [[4.0]]),
        "of nothing": case(cholesky, np.zeros((0, 0))),
        "large": case(cholesky, covariance(40)),
        "large upper": case(lambda x: cholesky(x, lower=False), covariance(40)),
        "large, of a transpose": case(lambda x: cholesky(x.T), covariance(40)),
        "large reads one triangle": case(cholesky, covariance(40) + np.triu(np.ones((40, 40)), 1)),
        "large, not positive definite": case(
            cholesky, covariance(40) - np.diag(np.arange(40) == 39) * 9, gradient=False
        ),
        "large upper, not positive definite": case(
            lambda x: cholesky(x, lower=False), -covariance(40), gradient=False
        ),
        "not positive definite": case(cholesky, [[1.0, 2.0], [2.0, 1.0]], gradient=False),
        "reads one triangle": case(cholesky, covariance(3) + np.triu(np.ones((3, 3)), 1)),
    },
    SolveTriangular: {
        "lower": case(solved(lower=True), lower_triangle(5), reals(5, 3)),
        "upper": case(solved(lower=False), lower_triangle(5).T.copy(), reals(5, 3)),
        "a vector": case(solved(lower=True, b_ndim=1), lower_triangle(5), reals(5)),
        "unit diagonal": case(
            solved(lower=True, unit_diagonal=True), lower_triangle(5), reals(5, 2)
        ),
        "transposed": case(solved(lower=True, trans=1), lower_triangle(5), reals(5, 3)),
        "large lower": case(solved(lower=True), lower_triangle(40), reals(40, 3)),
        "large upper": case(solved(lower=False), lower_triangle(40).T.copy(), reals(40, 3)),
        "large, a vector": case(solved(lower=True, b_ndim=1), lower_triangle(40), reals(40)),
        "large upper, a vector": case(
            solved(lower=False, b_ndim=1), lower_triangle(40).T.copy(), reals(40)
        ),
        "large, one column": case(solved(lower=True), lower_triangle(40), reals(40, 1)),
        "large, unit diagonal": case(
            solved(lower=True, unit_diagonal=True), lower_triangle(40), reals(40, 2)
        ),
        "large, transposed": case(solved(lower=True, trans=1), lower_triangle(40), reals(40, 3)),
        "large, transposed, a vector": case(
            solved(lower=True, trans=1, b_ndim=1), lower_triangle(40), reals(40)
        ),
        "large, of slices": case(
            lambda a, b: solved(lower=True)(a[2:, 2:], b[:, 2:].T), lower_triangle(40), reals(3, 40)
        ),
        "large, singular": case(
            solved(lower=True), np.tril(np.ones((40, 40)), -1), reals(40, 2), gradient=False
        ),
        "large, no columns": case(solved(lower=True), lower_triangle(40), reals(40, 0)),
        "of one element": case(solved(lower=True), [[2.0]], [[3.0]]),
        "no rows": case(solved(lower=True), np.zeros((0, 0)), reals(0, 2)),
        "no columns": case(solved(lower=True), lower_triangle(3), reals(3, 0)),
    },
}
