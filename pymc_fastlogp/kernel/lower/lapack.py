r"""Factorizations and solves of matrices that are large or of a size that is not static, by LAPACK and BLAS.

Both store columns. What they see of a matrix in C order is the transpose, so that

.. math::

    A = L L^T \quad \text{is} \quad A = U^T U \text{ with } U = L^T, \qquad
    A X = B \quad \text{is} \quad X^T A^T = B^T.

As upstream, all elements are nan of a factor where LAPACK failed, and of a solution where a diagonal element is 0.
"""

from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, const, domain_of, int64, plus, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import INFO, RESULT, Error
from pymc_fastlogp.kernel.lower.array import Array
from pymc_fastlogp.kernel.lower.blas_operands import leading_dimension, library_call, operand
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index
from pymc_fastlogp.kernel.lower.context import Context

NOT_SQUARE = Error(np.linalg.LinAlgError, "Last 2 dimensions of A must be square")
MISMATCH = Error(np.linalg.LinAlgError, "Dimensions of A and B do not conform")
NAN = const(nan, "float64")


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
    # A corner of the other triangle, which is zero and which the function does not look at, tells whether it failed.
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

    # Nothing but nan comes of nan.
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
    """Append what tells, and return for each matrix of a batch whether no element of its diagonal is 0."""

    def is_not_zero(index: tuple[Expr, ...]) -> Expr:
        element = a.at((*index, index[-1]))
        return truth(ps.neq, element, const(0.0, "float64"))

    diagonal = Array(a.shape[:-1], "bool", is_not_zero)
    return context.reduce(ps.and_, const(True, "bool"), diagonal, [a.ndim - 2])
