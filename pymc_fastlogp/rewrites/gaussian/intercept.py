r"""Compute the first row of a triangle if the first covariate is an intercept.

Subtract from each other covariate its share of the intercept, :math:`z_k = c_k - s_k c_0` with :math:`z_k \perp c_0`.
For an intercept of one this is :math:`z_k = c_k - \bar{c}_k`. With :math:`e = h - m`, the first row of :math:`R e + d`
is then

.. math:: R_{00} (e_0 + \sum_k s_k e_k) + d_0.

If a covariate varies little compared with its mean, say 1e6, then :math:`e_0` and :math:`s_k e_k` are large and cancel. Two
rounded terms near 1e5 leave an error of 1e-11 in a residual of order 1. Rows of the data would have independent errors
of the same size, which average out in their sum. Compilers contract the sum to fused multiply-adds, which do not round
the product. Two measures keep the digits of the summands:

- The *low* part of :math:`s_k` is its rounding error. It has the sign of :math:`s_k`, so an infinite parameter is not
  multiplied by both signs.
- :math:`m_0` has so few digits that :math:`h_0 - m_0` is exact for :math:`h_0` as large as a likely :math:`s_k e_k`,
  see :func:`round_center`. The remaining target is part of :math:`d_0`.
"""

from typing import NamedTuple

import numpy as np

from pymc_fastlogp.rewrites.gaussian.float_limits import FloatLimits

# A share has a low part if it is this many times larger than the varying part of its covariate.
LARGE = 1e3

# A varying part below this share of the norm of its covariate is rounding.
LEAST_VARYING = 1e-8


class FirstRow(NamedTuple):
    """``pivot * ((shares + low) @ e)``, for ``n`` cells.

    Attributes
    ----------
    shares : numpy.ndarray
        Shares of the intercept, one for the intercept itself; shape ``(n, k)``.
    low : numpy.ndarray
        Rounding errors of the shares, zero in columns where they are negligible; shape ``(n, k)``.
    pivot : numpy.ndarray
        Diagonal entry, shape ``(n,)``.
    """

    shares: np.ndarray
    low: np.ndarray
    pivot: np.ndarray


def first_row(
    joint: np.ndarray, shift: np.ndarray, norms: np.ndarray, limits: FloatLimits
) -> FirstRow:
    """Return the first row of the triangles of shifted covariates.

    Parameters
    ----------
    joint : numpy.ndarray
        Triangles of shifted covariates and target, shape ``(n, k + 1, k + 1)``.
    shift : numpy.ndarray
        Shares that were subtracted, shape ``(n, k)``.
    norms : numpy.ndarray
        Norms of the covariates before the shift, shape ``(n, k)``.
    limits : FloatLimits
        Limits of the dtype of the sum.
    """
    left = shares_of_first(joint)
    shares = limits.rounded(shift + left)
    # Rounded towards zero, so that the low part has the same sign.
    is_beyond = _low(shift, shares, left) * shares < 0
    shares = np.where(is_beyond, limits.towards_zero(shares), shares)
    is_large = np.abs(shares * joint[:, :1, 0]) > LARGE * _varying(joint)
    low = np.where(is_large, _low(shift, shares, left), 0)
    # A zero in some cells only would be NaN for an infinite parameter.
    is_accidental = (low == 0) & (low != 0).any(axis=0)
    low[is_accidental] = np.copysign(limits.tiny * norms, shares)[is_accidental]
    shares[:, 0] = 1
    return FirstRow(shares, low, joint[:, 0, 0])


def _low(shift: np.ndarray, shares: np.ndarray, left: np.ndarray) -> np.ndarray:
    return (shift - shares) + left


def shares_of_first(joint: np.ndarray) -> np.ndarray:
    """Return the regression coefficient of each covariate on the first, zero for the first."""
    first, row = joint[:, 0, :1], joint[:, 0, :-1]
    shares = np.divide(row, first, out=np.zeros_like(row), where=first != 0)
    shares[:, 0] = 0
    return shares


def round_center(
    center: np.ndarray, joint: np.ndarray, norms: np.ndarray, limits: FloatLimits
) -> np.ndarray:
    """Round the center of the intercept.

    A multiple of the last bit of a likely :math:`s_k e_k` is subtracted exactly from a number of that size, and from smaller nearby
    numbers.

    Parameters
    ----------
    center : numpy.ndarray
        Center of the intercept, shape ``(n,)``.
    joint : numpy.ndarray
        Triangles of covariates and target, shape ``(n, k + 1, k + 1)``.
    norms : numpy.ndarray
        Norms of the covariates, shape ``(n, k)``.
    limits : FloatLimits
        Limits of the dtype of the sum.
    """
    target, varying = np.linalg.norm(joint[:, 1:, -1], axis=1), _varying(joint)
    slope = np.zeros_like(norms)
    np.divide(target[:, None], varying, out=slope, where=varying > LEAST_VARYING * norms)
    likely = np.abs(shares_of_first(joint) * slope).max(axis=1)
    unit = np.ldexp(1.0, np.frexp(likely)[1] - limits.bits)
    return np.where(likely > 0, np.round(center / unit) * unit, center)


def _varying(joint: np.ndarray) -> np.ndarray:
    """Return the norms of the covariates' residuals from the first covariate, zero for the first; shape ``(n, k)``."""
    return np.linalg.norm(joint[:, 1:, :-1], axis=1)
