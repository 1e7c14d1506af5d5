"""Crossed effects: gradients and sites of effects, given the levels that they share with others.

Where all rows have effects of two factors, the level of one does to the effects of the other what the level of the other does to its own.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pymc_fastlogp.reparametrization.sites import Bundle, Site

Array = NDArray[np.float64]

# What the level of another factor does may differ by this part of what a factor's own level does.
MOST_APART = 0.1


def signs_of(responses: Mapping[Bundle, Mapping[Bundle, Array]]) -> dict[Bundle, float]:
    """Return the sign with which all rows have effects, 0 for those that only some of the rows have.

    Parameters
    ----------
    responses : mapping of tuple of str to mapping of tuple of str to ndarray, shape (J,)
        For each factor, what its level does to the gradient of each factor, itself included.
    """
    names = [*responses]
    signs, fits = np.zeros((2, len(names), len(names)))
    with np.errstate(all="ignore"):
        for i, one in enumerate(names):
            for j, other in enumerate(names):
                own, by_other = responses[one][one], responses[other][one]
                signs[i, j] = np.sign(own @ by_other)
                apart = np.abs(by_other - signs[i, j] * own).sum() / np.abs(own).sum()
                # Those of other rows do nothing to each other, which is no crossing.
                fits[i, j] = signs[i, j] != 0 and apart < MOST_APART
    kept = largest_set((fits > 0) & (fits.T > 0) & (signs == signs.T))
    if len(kept) < 2:
        return dict.fromkeys(names, 0.0)
    return {name: signs[kept[0], i] if i in kept else 0.0 for i, name in enumerate(names)}


def largest_set(fits: NDArray[np.bool_]) -> list[int]:
    """Return which rows of a symmetric table fit all others that are left, after those went that fit the fewest."""
    kept = list(range(len(fits)))
    while kept and not fits[np.ix_(kept, kept)].all():
        kept.pop(int(np.argmin(fits[np.ix_(kept, kept)].sum(1))))
    return kept


def with_levels(
    sites: Mapping[Bundle, Site], effects: Mapping[Bundle, Array], signs: Mapping[Bundle, float]
) -> dict[Bundle, Site]:
    """Return sites whose gradient is that where the level of the other factors is 0.

    Parameters
    ----------
    sites : mapping of tuple of str to Site
        With the gradient where other factors are what they are.
    effects : mapping of tuple of str to ndarray, shape (K, *shape)
        What effects are there.
    signs : mapping of tuple of str to float
        Of those that may be crossed.
    """
    levels = {x: sign * _level(sites[x], effects[x]) for x, sign in signs.items()}
    found = dict(sites)
    for names, sign in signs.items():
        others = sum(levels.values()) - levels[names]
        site = sites[names]
        gradient = site.gradient + sign * site.information[0] * others
        found[names] = replace(site, gradient=gradient, sign=sign).guarded()
    return found


def _level(site: Site, effects: Array) -> float:
    total = site.information.sum()
    return float((site.information[0, 0] * effects[0]).sum() / total) if total > 0 else 0.0
