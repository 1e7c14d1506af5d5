r"""Permutation test over whole chains: two sets of chains sample the same distribution.

For each scalar, the draws of all chains together are replaced by normal scores,
:math:`\Phi^{-1}((r - 3/8) / (S + 1/4))` of their ranks :math:`r` among all :math:`S`, and so are their distances
from the median. The mean score over a chain measures location, the mean score of distances measures scale (A. Vehtari and
others 2021, "Rank-normalization, folding, and localization", Bayesian Analysis 16, who build R-hat
from the same scores). Both are in units of about one posterior standard deviation, and robust to heavy tails.

Each chain gives one number for each scalar, so the standard error of a difference of the two sides
is known from the spread over chains, whatever the autocorrelation within them:

.. math:: t = \frac{\bar a - \bar b}{\sqrt{s_a^2 / m + s_b^2 / m}}.

If the sides sample the same distribution, it is chance which :math:`m` of the :math:`2m` independent chains are on which
side. So the largest :math:`|t|` of all scalars is compared with what it is when the chains change sides at random, all
scalars together (P. Westfall and S. Young 1993, "Resampling-based multiple testing"). The p-value is that of
all scalars at once, and exact however they are correlated.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

PERMUTATIONS = 9_999


class Difference(NamedTuple):
    """Distance of two sets of chains.

    Attributes
    ----------
    p_value : float
        Probability of a largest :math:`|t|` as large as this one, or larger, if there is no difference.
    largest : float
        The largest difference of all scalars, about in posterior standard deviations.
    detectable : float
        The difference at which a scalar of median standard error reaches the ``level``, same unit.
    """

    p_value: float
    largest: float
    detectable: float


def location(draws: np.ndarray) -> np.ndarray:
    """Return the mean normal score of each chain.

    Parameters
    ----------
    draws
        Shape (chains, draws, scalars).

    Returns
    -------
    numpy.ndarray
        Shape (chains, scalars).
    """
    chains, n, scalars = draws.shape
    ranks = rankdata(draws.reshape(chains * n, scalars), axis=0)
    scores = ndtri((ranks - 3 / 8) / (chains * n + 1 / 4))
    return scores.reshape(draws.shape).mean(axis=1)


def scale(draws: np.ndarray) -> np.ndarray:
    """Return the mean normal score of the distances from the median; shapes as in :func:`location`."""
    return location(np.abs(draws - np.median(draws, axis=(0, 1))))


def difference(off: np.ndarray, on: np.ndarray, *, level: float, seed: int = 0) -> Difference:
    """Compare a statistic of each chain between two sets of chains.

    Parameters
    ----------
    off, on
        Shape (chains, scalars), the same for both.
    level
        The significance that ``detectable`` is for.
    seed
        Of the permutations.

    Returns
    -------
    Difference
        Of all scalars at once.
    """
    chains = np.concatenate([off, on])
    m = len(off)
    sides = np.repeat([[False, True]], m, axis=1)
    observed = np.abs(_t(chains, sides)).max()
    shuffled = np.repeat(sides, PERMUTATIONS, axis=0)
    by_chance = np.abs(_t(chains, np.random.default_rng(seed).permuted(shuffled, axis=1)))
    largest_by_chance = by_chance.max(axis=1)
    error = np.sqrt((off.var(axis=0, ddof=1) + on.var(axis=0, ddof=1)) / m)
    return Difference(
        p_value=float((1 + (largest_by_chance >= observed).sum()) / (1 + PERMUTATIONS)),
        largest=float(np.abs(on.mean(axis=0) - off.mean(axis=0)).max()),
        detectable=float(np.quantile(largest_by_chance, 1 - level) * np.median(error)),
    )


def _t(chains: np.ndarray, is_on: np.ndarray) -> np.ndarray:
    """Return t for each row of sides, shape (rows, 2 m), and each scalar."""
    m = len(chains) // 2
    on, off = is_on.astype(float), (~is_on).astype(float)
    mean_on, mean_off = on @ chains / m, off @ chains / m
    squares = chains**2
    # The scores are of order one, so nothing cancels that matters.
    spread = (on + off) @ squares / m - mean_on**2 - mean_off**2
    return (mean_on - mean_off) / np.sqrt(spread / (m - 1))
