r"""The first row of a triangle where the first covariate is an intercept, the same in all rows.

The other covariates are taken relative to their shares of it, :math:`z_k = c_k - s_k c_0` with
:math:`z_k \perp c_0`, which is :math:`z_k = c_k - \bar{c}_k` for an intercept of one. With :math:`e = h - m`, the
first row of :math:`R e + d` is then

.. math:: R_{00} (e_0 + \sum_k s_k e_k) + d_0.

Where a covariate hardly varies beside its mean, say 1e6, :math:`e_0` and :math:`s_k e_k` are large and cancel: two
terms near 1e5 that are rounded leave an error of 1e-11 in a residual of order 1. A row of the data would lose as
much, but each another amount, and their sum hardly any of it. Here compilers contract the sum to fused
multiply-adds, which do not round the product, and two things keep the digits of what they add.

- The *low* part of :math:`s_k` is what its precision leaves out of it. It has the sign of :math:`s_k`, so that an infinite
  parameter is not multiplied with both signs.
- :math:`m_0` has so few digits that :math:`h_0 - m_0` is exact for :math:`h_0` as large as
  a likely :math:`s_k e_k`, see :func:`with_few_digits`. What it leaves of the target is in :math:`d_0`.
"""

from typing import NamedTuple

import numpy as np

from pymc_fastlogp.rewrites.gaussian.precision import Precision

# A share so many times larger than what varies of a covariate has a low part.
LARGE = 1e3

# What varies of a covariate is known where it is not a smaller part of it: the rest is rounding.
LEAST_VARYING = 1e-8


class FirstRow(NamedTuple):
    """``pivot * ((shares + low) @ e)``, for ``n`` cells.

    Attributes
    ----------
    shares : numpy.ndarray
        The shares of the intercept, of which its own is one; shape ``(n, k)``.
    low : numpy.ndarray
        What is to be added to them, columns of zeros where it counts in no cell; shape ``(n, k)``.
    pivot : numpy.ndarray
        The entry on the diagonal, shape ``(n,)``.
    """

    shares: np.ndarray
    low: np.ndarray
    pivot: np.ndarray


def first_row(
    joint: np.ndarray, shift: np.ndarray, norms: np.ndarray, precision: Precision
) -> FirstRow:
    """Return the first row of triangles of covariates from which shares have been taken.

    Parameters
    ----------
    joint : numpy.ndarray
        Triangles of covariates, shifted, and target, shape ``(n, k + 1, k + 1)``.
    shift : numpy.ndarray
        The shares that were taken, shape ``(n, k)``.
    norms : numpy.ndarray
        Of the covariates as they were, shape ``(n, k)``.
    precision : Precision
        Of the sum.
    """
    left = shares_of_first(joint)
    shares = precision.rounded(shift + left)
    # Rounded towards zero, so that what is left has the same sign.
    is_beyond = _low(shift, shares, left) * shares < 0
    shares = np.where(is_beyond, precision.towards_zero(shares), shares)
    is_large = np.abs(shares * joint[:, :1, 0]) > LARGE * _varying(joint)
    low = np.where(is_large, _low(shift, shares, left), 0)
    # Not zero in some cells only, which times an infinite parameter would be nan.
    happens = (low == 0) & (low != 0).any(axis=0)
    low[happens] = np.copysign(precision.tiny * norms, shares)[happens]
    shares[:, 0] = 1
    return FirstRow(shares, low, joint[:, 0, 0])


def _low(shift: np.ndarray, shares: np.ndarray, left: np.ndarray) -> np.ndarray:
    return (shift - shares) + left


def shares_of_first(joint: np.ndarray) -> np.ndarray:
    """Return by how much of the first covariate each other one is explained, zero for the first."""
    first, row = joint[:, 0, :1], joint[:, 0, :-1]
    shares = np.divide(row, first, out=np.zeros_like(row), where=first != 0)
    shares[:, 0] = 0
    return shares


def with_few_digits(
    center: np.ndarray, joint: np.ndarray, norms: np.ndarray, precision: Precision
) -> np.ndarray:
    r"""Round the center of the intercept.

    A number as large as a likely :math:`s_k e_k` has a last bit, and a multiple of some more of it is
    subtracted from it without an error, as well as from a smaller number that is near.

    Parameters
    ----------
    center : numpy.ndarray
        Of the intercept, shape ``(n,)``.
    joint : numpy.ndarray
        Triangles of covariates and target, shape ``(n, k + 1, k + 1)``.
    norms : numpy.ndarray
        Of the covariates, shape ``(n, k)``.
    precision : Precision
        Of the sum.
    """
    target, varying = np.linalg.norm(joint[:, 1:, -1], axis=1), _varying(joint)
    slope = np.zeros_like(norms)
    np.divide(target[:, None], varying, out=slope, where=varying > LEAST_VARYING * norms)
    likely = np.abs(shares_of_first(joint) * slope).max(axis=1)
    unit = np.ldexp(1.0, np.frexp(likely)[1] - precision.bits)
    return np.where(likely > 0, np.round(center / unit) * unit, center)


def _varying(joint: np.ndarray) -> np.ndarray:
    """Return the norms of what the first covariate does not explain, zero for itself; ``(n, k)``."""
    return np.linalg.norm(joint[:, 1:, :-1], axis=1)
