"""Decisions of the rewrites: a log line each, and a record for collectors."""

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
    """Reason of a rule to leave a variable alone.

    Attributes
    ----------
    text : str
        A short clause.
    advice : str
        What the user can do about it.
    """

    text: str
    advice: str

    def about(self, **facts: object) -> "Refusal":
        """Return it with names and numbers in the place of ``{fields}`` of its text."""
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
        What was, or could have been, rewritten.
    rows_before, rows_after : int, optional
        At how many rows it was evaluated before and is now; None where it was refused, and of rules
        that are not about rows.
    refusal : Refusal, optional
        Why it was refused; None where the rule fired.
    by : str
        By which data it was done, such as the index that rows were sorted by, where a rule has a choice.
    loop : int, optional
        How long the loop over what is left is, where it is not one evaluation for each row.
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
    """Call ``listener`` with each decision that is taken in this block, in this thread or task.

    It is called before the graph changes, so that it can look at where the variable stands.
    """
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def collected() -> Iterator[list[Decision]]:
    """Collect the decisions that are taken in this block, in this thread or task, into a list."""
    decisions: list[Decision] = []
    with heard_by(decisions.append):
        yield decisions


def are_heard() -> bool:
    """Return whether anyone listens here, so that it is worth finding out why a rule refuses."""
    return bool(_listeners.get()) or logger.isEnabledFor(logging.INFO)


def fired(
    rule: str,
    variable: TensorVariable,
    rows_before: int | None = None,
    rows_after: int | None = None,
    by: str = "",
    loop: int | None = None,
) -> None:
    """Say that ``rule`` rewrote ``variable``."""
    _in_thread.times_fired = times_fired() + 1
    _record(Decision(rule, variable, rows_before, rows_after, by=by, loop=loop))


def times_fired() -> int:
    """Return how often :func:`fired` was called in this thread."""
    return getattr(_in_thread, "times_fired", 0)


def refused(rule: str, variable: TensorVariable, refusal: Refusal) -> None:
    """Say that ``rule`` left ``variable`` alone, and why.

    A rewriter is asked about the same variable whenever the graph around it has changed; what was
    said is on the tag of the variable, and not said again.
    """
    # No objects of ours: a pickle of the variable is for processes without the plugin, too.
    said: frozenset[tuple[str, str]] = getattr(variable.tag, rule, frozenset())
    words = refusal.text, refusal.advice
    if words not in said:
        setattr(variable.tag, rule, said | {words})
        _record(Decision(rule, variable, refusal=refusal))


def _record(decision: Decision) -> None:
    for listener in _listeners.get():
        listener(decision)
    logger.info("%s", decision)
