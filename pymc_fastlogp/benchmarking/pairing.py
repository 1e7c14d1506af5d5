"""Paired measurement: sides in turn within each round, on one pinned core."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymc_fastlogp.benchmarking.native import Timer


@contextmanager
def pinned() -> Iterator[None]:
    """Pin this thread to one core for a block, if the operating system supports CPU affinity.

    Threads that are started inside the block inherit the core.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    # Interrupts are mostly handled by the first core.
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def time_in_turn(
    timers: Mapping[str, "Timer"], *, rounds: int, seconds_per_round: float
) -> dict[str, tuple[float, ...]]:
    """Measure all sides in each round, so that a slow phase of the machine affects all sides.

    Parameters
    ----------
    timers : mapping
        For each side, a function from the number of evaluations to their total seconds.
    rounds : int
        Number of rounds. The order of the sides is reversed after each round.
    seconds_per_round : float
        Approximate seconds of each side in each round.

    Returns
    -------
    dict
        Seconds per evaluation of each side, one value for each round.
    """
    repeats = {side: _repeats(timer, seconds_per_round) for side, timer in timers.items()}
    measured: dict[str, list[float]] = {side: [] for side in timers}
    order = list(timers)
    for _ in range(rounds):
        for side in order:
            measured[side].append(timers[side](repeats[side]) / repeats[side])
        order.reverse()
    return {side: tuple(values) for side, values in measured.items()}


def _repeats(timer: "Timer", seconds: float) -> int:
    """Return the number of evaluations that takes about ``seconds``; also warms up caches."""
    n = 1
    while (elapsed := timer(n)) < seconds / 4:
        n *= 2
    return max(1, round(n * seconds / elapsed))
