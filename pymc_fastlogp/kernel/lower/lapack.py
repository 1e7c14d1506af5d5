r"""Cholesky factors, triangular solves and eigenvectors by LAPACK and BLAS, for matrices that are large or not static.

Both libraries use column-major order: a matrix in C order is the transpose to them. Hence

.. math::

    A = L L^T \quad \text{is} \quad A = U^T U \text{ with } U = L^T, \qquad
    A X = B \quad \text{is} \quad X^T A^T = B^T.

As upstream, a factor is nan if LAPACK fails, and a solution is nan if a diagonal element is 0.
"""

from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply

from pymc_fastlogp.kernel.ir.arithmetic import (
    ZERO,
    const,
    domain_of,
    int64,
    plus,
    switch,
    times,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Expr, Load, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT, Call, Error, Store, result_offset
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.blas_operands import leading_dimension, library_call, operand
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.native import blas

NOT_SQUARE = Error(np.linalg.LinAlgError, "Last 2 dimensions of A must be square")
MISMATCH = Error(np.linalg.LinAlgError, "Dimensions of A and B do not conform")
NAN = const(nan, "float64")
# Most rows for which ``syev`` is the fastest LAPACK function for all eigenvectors.
MOST_ROWS = 25


def factor(context: Context, op: Any, a: Array) -> Array:
    """Append the Cholesky factorization of each matrix of a batch."""
    *_, rows, n = a.shape
    context.require_equal(n, rows, NOT_SQUARE)

    def triangle(index: tuple[Expr, ...]) -> Expr:
        i, j = index[-2:] if op.lower else index[:-3:-1]
        is_inside = truth(ps.ge, i, j)
        return switch(is_inside, a.at(index), const(0.0, "float64"))

    result = context.store(a.shape, "float64", triangle)
    domain, batch = domain_of(a.shape[:-2])
    last = plus(as_expr(n), int64(-1))
    corner = (ZERO, last) if op.lower else (last, ZERO)
    letter = "U" if op.lower else "L"
    arguments = (letter, n, RESULT, leading_dimension(n), INFO)
    call = library_call(result, batch, "dpotrf", arguments)
    # A corner of the other triangle records failure: it is zero, and LAPACK does not read it.
    context.add(domain, replace(call, failed=(*batch, *corner)))

    def unless_failed(index: tuple[Expr, ...]) -> Expr:
        has_failed = truth(ps.isnan, result.at((*index[:-2], *corner)))
        return switch(has_failed, NAN, result.at(index))

    return context.store(a.shape, "float64", unless_failed)


def solve(
    context: Context,
    op: Any,
    a: Array,
    b: Array,
    batch: tuple[Size, ...],
    *,
    nan_if_singular: bool = True,
) -> Array:
    """Append the solution of each triangular system of a batch."""
    n, columns = a.shape[-1], b.shape[b.ndim - op.b_ndim + 1 :]
    context.require_equal(a.shape[-2], b.shape[b.ndim - op.b_ndim], MISMATCH)
    context.require_equal(a.shape[-2], n, NOT_SQUARE)
    is_checked = nan_if_singular and not op.unit_diagonal
    can_be_solved = is_regular(context, a) if is_checked else None

    def right_hand_side(index: tuple[Expr, ...]) -> Expr:
        leading = index[: len(batch)]
        own = broadcast_index(b.shape[: b.ndim - op.b_ndim], leading)
        value = b.at((*own, *index[len(batch) :]))
        if can_be_solved is None:
            return value
        return switch(can_be_solved.at(broadcast_index(a.shape[:-2], leading)), value, NAN)

    # With a right-hand side of nan, the whole solution becomes nan.
    result = context.store((*batch, n, *columns), "float64", right_hand_side)
    domain, leading = domain_of(batch)
    matrix = operand(context, a, leading)
    triangle = "L" if op.lower == matrix.is_transposed else "U"
    diagonal = "U" if op.unit_diagonal else "N"
    factors = (matrix.first, matrix.stride, RESULT)
    if columns in ((), (1,)):
        transposed = "N" if matrix.is_transposed else "T"
        given = (triangle, transposed, diagonal, n, *factors, 1)
        context.add(domain, library_call(result, leading, "dtrsv", given))
        return result
    transposed = "T" if matrix.is_transposed else "N"
    sizes = (*columns, n, const(1.0, "float64"))
    last = leading_dimension(columns[0])
    arguments = ("R", triangle, transposed, diagonal, *sizes, *factors, last)
    context.add(domain, library_call(result, leading, "dtrsm", arguments))
    return result


def is_regular(context: Context, a: Array) -> Array:
    """Append checks, for each matrix of a batch, that no diagonal element is 0; return the results."""

    def is_not_zero(index: tuple[Expr, ...]) -> Expr:
        element = a.at((*index, index[-1]))
        return truth(ps.neq, element, const(0.0, "float64"))

    diagonal = Array(a.shape[:-1], "bool", is_not_zero)
    return context.reduce(ps.and_, const(True, "bool"), diagonal, [a.ndim - 2])


def supports_eigh(node: Apply) -> bool:
    """Return whether the matrix is float64 with few rows, and static."""
    [a] = node.inputs
    rows, columns = a.type.shape
    is_small = rows is not None and rows == columns and 0 < rows <= MOST_ROWS
    return is_small and a.type.dtype == "float64" and blas.is_available()


def lower_eigh(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append ``EighUpToSigns``: a copy of the matrix and a call of ``dsyev``.

    LAPACK overwrites the matrix by the eigenvectors, as rows in C order, and needs workspace. One buffer holds everything:

    .. code-block:: text

        n * n    the matrix, then the eigenvectors
        n        the eigenvalues
        3 * n    workspace
        1        nan if the function failed; then all results are nan, as upstream
    """
    [a] = inputs
    n = node.inputs[0].type.shape[0]
    values, work, failed = n * n, n * n + n, n * n + 4 * n
    buffer = context.buffer("float64", (failed + 1,))

    def place(i: Expr, j: Expr) -> tuple[Expr]:
        return (plus(times(j, int64(n)), i),)

    domain, (i, j) = domain_of((n, n))
    context.add(domain, Store(buffer, place(i, j), a.at((i, j))))
    context.add((), Store(buffer, (int64(failed),), const(0.0, "float64")))
    memory = (result_offset(values), result_offset(work), int64(3 * n), INFO)
    arguments = ("V", "L", int64(n), RESULT, int64(n), *memory)
    context.add((), Call(buffer, (ZERO,), "dsyev", arguments, (int64(failed),)))
    has_failed = truth(ps.isnan, Load(buffer, (int64(failed),)))

    def unless_failed(index: tuple[Expr]) -> Expr:
        return switch(has_failed, NAN, Load(buffer, index))

    eigenvalues = Array((n,), "float64", lambda i: unless_failed((plus(i[0], int64(values)),)))
    vectors = Array((n, n), "float64", lambda index: unless_failed(place(*index)))
    return [eigenvalues, vectors]
