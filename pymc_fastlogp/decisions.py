"""What the rewrites decided: a line on the logger, and a record for who collects them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pytensor.tensor.variable import TensorVariable

logger = logging.getLogger("pymc_fastlogp")


@dataclass(frozen=True)
class Decision:
    """What one rule decided about one variable of a graph.

    Attributes
    ----------
    rule : str
        Name of the rule, as in :mod:`pymc_fastlogp.registration`.
    variable : TensorVariable
        What was, or could have been, rewritten.
    rows_before, rows_after : int, optional
        At how many rows it was evaluated before and is now; None where it was refused, and of rules
        that are not about rows.
    reason : str
        Why it was refused, and what can be done; empty where the rule fired.
    by : str
        By which data it was done, such as the index that rows were sorted by, where a rule has a choice.
    """

    rule: str
    variable: TensorVariable
    rows_before: int | None = None
    rows_after: int | None = None
    reason: str = ""
    by: str = ""

    @property
    def fired(self) -> bool:
        """Whether the graph was rewritten."""
        return not self.reason

    def __str__(self) -> str:
        rows = "" if self.rows_before is None else f"{self.rows_before} rows -> {self.rows_after}"
        outcome = self.reason or rows or "rewritten"
        if self.by:
            outcome += f" by {self.by}"
        return f"{self.rule}: {self.variable.name or self.variable}: {outcome}"


Listener = Callable[[Decision], None]

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


def fired(
    rule: str,
    variable: TensorVariable,
    rows_before: int | None = None,
    rows_after: int | None = None,
    by: str = "",
) -> None:
    """Say that ``rule`` rewrote ``variable``."""
    _record(Decision(rule, variable, rows_before, rows_after, by=by))


def refused(rule: str, variable: TensorVariable, reason: str) -> None:
    """Say that ``rule`` left ``variable`` alone, and why: a short clause, and what can be done.

    A rewriter is asked about the same variable whenever the graph around it has changed; what was
    said last is on the tag of the variable, and not said again.
    """
    if not was_refused(rule, variable, reason):
        setattr(variable.tag, rule, reason)
        _record(Decision(rule, variable, reason=reason))


def was_refused(rule: str, variable: TensorVariable, reason: str) -> bool:
    """Whether this is what ``rule`` has said of ``variable`` last."""
    return getattr(variable.tag, rule, None) == reason


def _record(decision: Decision) -> None:
    for listener in _listeners.get():
        listener(decision)
    logger.info("%s", decision)
