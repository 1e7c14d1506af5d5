"""Decisions of the rewrites: a log line each, and a record for listeners."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from pytensor.tensor.variable import TensorVariable

logger = logging.getLogger("pymc_fastlogp")


@dataclass(frozen=True)
class Refusal:
    """Reason why a rule does not rewrite a variable.

    Attributes
    ----------
    text : str
        The reason, a short clause.
    advice : str
        Advice to the user.
    """

    text: str
    advice: str

    def about(self, **facts: object) -> "Refusal":
        """Return the refusal with ``{fields}`` of its text replaced by facts."""
        return replace(self, text=self.text.format(**facts))

    def __str__(self) -> str:
        return f"{self.text} (to do: {self.advice})"


@dataclass(frozen=True)
class Decision:
    """Decision of one rule about one variable of a graph.

    Attributes
    ----------
    rule : str
        Name of the rule, as in :mod:`pymc_fastlogp.rules`.
    variable : TensorVariable
        The variable that was, or could have been, rewritten.
    rows_before, rows_after : int, optional
        Number of evaluated rows before and after; None for a refusal and for rules that do not change rows.
    refusal : Refusal, optional
        The reason of a refusal; None if the rule fired.
    by : str
        The data that the rule chose, such as the index that rows were sorted by.
    loop : int, optional
        Length of the remaining loop, if different from ``rows_after``.
    """

    rule: str
    variable: TensorVariable
    rows_before: int | None = None
    rows_after: int | None = None
    refusal: Refusal | None = None
    by: str = ""
    loop: int | None = None

    @property
    def fired(self) -> bool:
        """Return whether the graph was rewritten."""
        return self.refusal is None

    def __str__(self) -> str:
        rows = "" if self.rows_before is None else f"{self.rows_before} rows -> {self.rows_after}"
        outcome = str(self.refusal or rows or "rewritten")
        if self.by:
            outcome += f" by {self.by}"
        return f"{self.rule}: {self.variable.name or self.variable}: {outcome}"


Listener = Callable[[Decision], None]

_in_thread = threading.local()
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with each decision in this block, in this thread or task.

    ``listener`` is called before the graph changes, so the graph around the variable can be inspected.
    """
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def collected() -> Iterator[list[Decision]]:
    """Collect the decisions in this block, in this thread or task, into a list."""
    decisions: list[Decision] = []
    with heard_by(decisions.append):
        yield decisions


def are_heard() -> bool:
    """Return whether there is a listener or a log, for which the reason of a refusal has to be determined."""
    return bool(_listeners.get()) or logger.isEnabledFor(logging.INFO)


def fired(
    rule: str,
    variable: TensorVariable,
    rows_before: int | None = None,
    rows_after: int | None = None,
    by: str = "",
    loop: int | None = None,
) -> None:
    """Record that ``rule`` rewrites ``variable``."""
    _in_thread.times_fired = times_fired() + 1
    _record(Decision(rule, variable, rows_before, rows_after, by=by, loop=loop))


def times_fired() -> int:
    """Return the number of calls of :func:`fired` in this thread."""
    return getattr(_in_thread, "times_fired", 0)


def refused(rule: str, variable: TensorVariable, refusal: Refusal) -> None:
    """Record that ``rule`` does not rewrite ``variable``, and the reason.

    A rewriter visits a variable again whenever the surrounding graph has changed, so recorded refusals
    are stored on the tag of the variable and are not repeated.
    """
    # Plain strings: processes without the plugin can unpickle the variable.
    said: frozenset[tuple[str, str]] = getattr(variable.tag, rule, frozenset())
    words = refusal.text, refusal.advice
    if words not in said:
        setattr(variable.tag, rule, said | {words})
        _record(Decision(rule, variable, refusal=refusal))


def _record(decision: Decision) -> None:
    for listener in _listeners.get():
        listener(decision)
    logger.info("%s", decision)
