"""Points for the comparison of logp and gradient: random points, extreme points, and points out of support."""

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

import numpy as np

Sizes = dict[str, tuple[int, ...]]

EXTREMES = (1e-300, 1e-8, 30.0, 800.0, 1e10)
OUTSIDE = (-1.0, 0.0, 2.0)
# One entry far out for an exponential, a logit or a probit, with all others near: a sum over groups then shows the error of one group.
# In single precision exponentials overflow sooner.
ALONE = {"float64": 10.0, "float32": 4.0}
MOST_ALONE = 3


Points = Iterable[tuple[str, np.ndarray]]


def points_around(
    start: dict[str, np.ndarray],
    sizes: Sizes,
    n_random: int,
    rng: np.random.Generator,
) -> list[tuple[str, np.ndarray]]:
    """Return descriptions and raveled points in the precision of the variables: the initial point, then of each kind in turn."""
    origin = np.concatenate([np.ravel(start[name]) for name in sizes])
    # One kind after the other draws its random numbers.
    kinds = [
        list(points)
        for points in (
            _random_points(origin, n_random, rng),
            _extreme_points(origin, rng),
            _points_outside(origin, sizes),
            _points_with_one_entry_apart(origin, sizes, rng),
        )
    ]
    in_turn = chain.from_iterable(zip_longest(*kinds))
    return [("the initial point", origin), *(point for point in in_turn if point is not None)]


def _random_points(origin: np.ndarray, n: int, rng: np.random.Generator) -> Points:
    for i in range(n):
        yield f"random point {i}", (origin + rng.normal(size=origin.size)).astype(origin.dtype)


def _extreme_points(origin: np.ndarray, rng: np.random.Generator) -> Points:
    for extreme in EXTREMES:
        signs = rng.choice([-1.0, 1.0], size=origin.size).astype(origin.dtype)
        value = max(origin.dtype.type(extreme), np.finfo(origin.dtype).tiny)
        yield f"all coordinates {value:g}", np.full_like(origin, value)
        yield f"all coordinates -{value:g}", np.full_like(origin, -value)
        yield f"all coordinates {value:g} or -{value:g}", signs * value


def _points_outside(origin: np.ndarray, sizes: Sizes) -> Points:
    for name, segment in segments(sizes):
        for value in OUTSIDE:
            x = origin.copy()
            x[segment] = value
            yield f"the point {name} = {value:g}", x


def _points_with_one_entry_apart(
    origin: np.ndarray, sizes: Sizes, rng: np.random.Generator
) -> Points:
    # Not around the initial point: terms of a gradient may cancel to the last digit there, and upstream folds them as constants.
    near = (origin + rng.normal(size=origin.size)).astype(origin.dtype)
    for name, segment in segments(sizes):
        yield from _one_entry_apart(near, name, segment, sizes[name], rng)


def _one_entry_apart(
    near: np.ndarray,
    name: str,
    segment: slice,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield points that differ from ``near`` in one entry of a variable, for up to :data:`MOST_ALONE` entries."""
    entries = np.arange(segment.start, segment.stop)
    for entry in rng.choice(entries, min(MOST_ALONE, entries.size), replace=False):
        index = ", ".join(map(str, np.unravel_index(entry - segment.start, shape)))
        for value in (-ALONE[near.dtype.name], ALONE[near.dtype.name]):
            x = near.copy()
            x[entry] = value
            yield f"the point {name}{f'[{index}]' if index else ''} = {value:g}", x


def segments(sizes: Sizes) -> Iterator[tuple[str, slice]]:
    """Yield the name and the slice of each variable in the raveled point."""
    begin = 0
    for name, shape in sizes.items():
        end = begin + int(np.prod(shape))
        yield name, slice(begin, end)
        begin = end
