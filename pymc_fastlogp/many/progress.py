"""Progress of many fits: a bar with rate, failures and remaining time, or log lines if standard output cannot show a bar."""

import logging
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from pymc_fastlogp.many.fit import Fit
from pymc_fastlogp.sampling.progress import INTERVAL, shows_bars

log = logging.getLogger("pymc.sampling.mcmc")


def progress_of(total: int | None, *, is_shown: bool) -> "AbstractContextManager[Progress | None]":
    """Return a context manager of the progress, or of None if no progress is shown."""
    if not is_shown:
        return nullcontext()
    return ProgressBar(total) if shows_bars() else Progress(total)


class Progress:
    """Log line every ``INTERVAL`` seconds and at the end.

    Parameters
    ----------
    total : int, optional
        Number of data sets, if known.
    """

    def __init__(self, total: int | None):
        self._total = total
        self._done = self._stored = self._failed = self._diverging = 0

    def __enter__(self) -> Self:
        self._start = self._written = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.show(is_last=True)

    def add(self, fit: Fit) -> None:
        """Count a fit."""
        self._done += 1
        self._stored += fit.was_stored
        self._failed += fit.error is not None
        self._diverging += fit.n_divergences > 0
        self.show()

    def show(self, *, is_last: bool = False) -> None:
        """Show the progress."""
        now = time.monotonic()
        if is_last or now - self._written >= INTERVAL:
            self._written = now
            log.info("%s", self.text())

    def text(self) -> str:
        """Return number, rate, failures and remaining time."""
        seconds = time.monotonic() - self._start
        rate = (self._done - self._stored) / max(seconds, 1e-9)
        of_total = "" if self._total is None else f" of {self._total}"
        parts = [f"{self._done}{of_total} fits", f"{rate:.3g} fits/s", f"{self._failed} failed"]
        parts.append(f"{self._diverging} with divergences")
        if self._total is not None and rate > 0:
            parts.append(f"{(self._total - self._done) / rate:.0f} s left")
        return ", ".join(parts)


class ProgressBar(Progress):
    """Bar of rich, with the same text."""

    def __init__(self, total: int | None):
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        super().__init__(total)
        self._bars = Bars(BarColumn(), TextColumn("{task.description}"))
        self._bar = self._bars.add_task("", total=total)

    def __enter__(self) -> Self:
        super().__enter__()
        self._bars.start()
        return self

    def __exit__(self, *arguments: Any) -> None:
        super().__exit__(*arguments)
        self._bars.stop()

    def show(self, *, is_last: bool = False) -> None:
        """Redraw the bar."""
        self._bars.update(self._bar, completed=self._done, description=self.text())
