"""Result of one data set: ``Outcome``, as a worker returns the result, and ``Fit`` of the user."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """Outcome of a task; attributes as those of :class:`Fit`."""

    value: Any = None
    error: BaseException | None = None
    problems: tuple[str, ...] = ()
    n_divergences: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Fit:
    """Result of one data set of :func:`~pymc_fastlogp.sample_many`.

    Attributes
    ----------
    key : object
        Key of the data set in a mapping, else its position.
    error : Exception, optional
        The error of a fit that failed; its notes have the traceback of the worker.
    problems : tuple of str
        Warnings of the convergence checks of :func:`~pymc_fastlogp.sample`, such as divergences.
    n_divergences : int
        Number of divergences after tuning.
    random_seed : int, optional
        Seed of the fit, which is an argument of :func:`~pymc_fastlogp.sample`.
    seconds : float
        Time in the worker, compilation included.
    was_stored : bool
        Whether the fit was in the store before the call.
    """

    key: Any
    error: BaseException | None = None
    problems: tuple[str, ...] = ()
    n_divergences: int = 0
    random_seed: int | None = None
    seconds: float = 0.0
    was_stored: bool = False
    _read: Callable[[], Any] = field(default=lambda: None, repr=False)

    @cached_property
    def value(self) -> Any:
        """The draws, or the result of ``keep``; None if the fit failed. Fits in a store are opened at first use."""
        return None if self.error else self._read()

    def result(self) -> Any:
        """Return the value; raise the error of a fit that failed."""
        if self.error is not None:
            raise self.error
        return self.value
