"""Results of upstream at a point, and their round-off, within a time."""

from collections.abc import Iterator
from functools import cached_property
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from pymc_fastlogp.config import leaving_out
from pymc_fastlogp.rules import RULES
from pymc_fastlogp.verification import logp_functions
from pymc_fastlogp.verification.comparison import are_of_one_kind
from pymc_fastlogp.verification.logp_functions import LogpDlogp
from pymc_fastlogp.verification.roundoff import N_NOISY, Noise, neighbors, numpy_mode

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.mode import Mode

# Share of the time in which points are begun; the rest is for the round-off at the last of them.
SHARE_TO_BEGIN = 0.5

# Rules that keep digits where upstream's result is not finite.
KEEP_DIGITS = tuple(rule.name for rule in RULES if rule.is_exact)


class Clock:
    """Time that evaluations have left.

    Parameters
    ----------
    seconds : float, optional
        Seconds at the start; None for no limit.
    """

    def __init__(self, seconds: float | None):
        self.seconds = self.left = inf if seconds is None else seconds

    def timed(self, function: LogpDlogp) -> LogpDlogp:
        """Return a function whose calls take from the time, without the first call, which compiles."""
        is_first = True

        def evaluate(x: np.ndarray) -> np.ndarray:
            nonlocal is_first
            begin = perf_counter()
            try:
                return function(x)
            finally:
                self.left -= 0.0 if is_first else perf_counter() - begin
                is_first = False

        return evaluate

    @property
    def may_begin(self) -> bool:
        """True while there is time for one more point."""
        return self.left > (1 - SHARE_TO_BEGIN) * self.seconds or self.seconds == inf


class Upstream:
    """Upstream's logp and gradient: run in NumPy, in NumPy with noise, and compiled.

    Parameters
    ----------
    model : pymc.Model
        The model.
    start : dict of str to ndarray
        Values by the names of the value variables; discrete variables keep them.
    clock : Clock
        Time of all evaluations.
    rng : numpy.random.Generator
        Source of points and noise.
    """

    def __init__(
        self,
        model: "pm.Model",
        start: dict[str, np.ndarray],
        clock: Clock,
        rng: np.random.Generator,
    ):
        self.clock, self.rng, self.noise = clock, rng, Noise(rng)
        self._model, self._start = model, start
        self._is_in_numpy = True

    def _compile(self, mode: "Mode | str", *, on: bool) -> LogpDlogp:
        function = logp_functions.compile_logp_dlogp(self._model, self._start, mode, on=on)
        return self.clock.timed(function)

    @cached_property
    def _in_numpy(self) -> LogpDlogp:
        return self._compile(numpy_mode(self.noise), on=False)

    @cached_property
    def _compiled(self) -> LogpDlogp:
        return self._compile("NUMBA", on=False)

    @cached_property
    def _with_plugin(self) -> LogpDlogp:
        return self._compile("NUMBA", on=True)

    @cached_property
    def _with_plugin_but_digits(self) -> LogpDlogp:
        with leaving_out(KEEP_DIGITS):
            return self._compile("NUMBA", on=True)

    def is_inexact(self, x: np.ndarray, off: np.ndarray, on: np.ndarray) -> bool:
        """Return whether a result that is not finite differs by the rules that keep digits: the plugin has both results, with and without them."""
        if np.isfinite(off).all():
            return False
        sides = (off, self._with_plugin_but_digits(x)), (on, self._with_plugin(x))
        return all(are_of_one_kind(*side) for side in sides)

    def values(self, x: np.ndarray) -> Iterator[tuple[np.ndarray, Iterator[np.ndarray]]]:
        """Yield upstream's result and its round-off at a point, as :meth:`_around`: by NumPy, then compiled."""
        noisy: list[np.ndarray] = []
        if self._is_in_numpy:
            try:
                off = self._in_numpy
                yield off(x), self._around(x, off, noisy)
            except ValueError:  # an operation that upstream runs in Numba alone
                self._is_in_numpy = False
        off = self._compiled
        yield off(x), self._around(x, off, noisy)

    def _around(
        self, x: np.ndarray, off: LogpDlogp, noisy: list[np.ndarray]
    ) -> Iterator[np.ndarray]:
        """Yield upstream's results around a point, shape ``(k, n)``, with one more row each time, cheap rows first.

        More rows can only increase the tolerance, so the comparison stops as soon as all entries pass.

        Parameters
        ----------
        x : ndarray
            The point.
        off : callable
            Upstream's function for neighbors of the point.
        noisy : list of ndarray
            Results with noise at the point, to which more are added.
        """
        yield np.empty((0, 1 + x.size))
        near: list[np.ndarray] = []
        for x_near in neighbors(x, self.rng):
            near.append(off(x_near))
            yield np.array(near)
        for n in range(1, N_NOISY + 1 if self._is_in_numpy else 0):
            if len(noisy) < n:
                with self.noise.on():
                    noisy.append(self._in_numpy(x))
            yield np.array(near + noisy[:n])
