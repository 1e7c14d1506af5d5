"""What the data-aware rewrites decided: a line on the logger, and a record for who collects them."""

import logging
from collections.abc import Iterator
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
        At how many rows it was evaluated before and is now; None where it was refused.
    reason : str
        Why it was refused, and what can be done; empty where the rule fired.
    """

    rule: str
    variable: TensorVariable
    rows_before: int | None = None
    rows_after: int | None = None
    reason: str = ""

    @property
    def fired(self) -> bool:
        """Whether the graph was rewritten."""
        return not self.reason

    def __str__(self) -> str:
        outcome = self.reason or f"{self.rows_before} rows -> {self.rows_after}"
        return f"{self.rule}: {self.variable.name or self.variable}: {outcome}"


_collectors: ContextVar[tuple[list[Decision], ...]] = ContextVar("collectors", default=())


@contextmanager
def collected() -> Iterator[list[Decision]]:
    """Collect the decisions that are taken in this block, in this thread or task, into a list."""
    decisions: list[Decision] = []
    token = _collectors.set((*_collectors.get(), decisions))
    try:
        yield decisions
    finally:
        _collectors.reset(token)


def fired(rule: str, variable: TensorVariable, rows_before: int, rows_after: int) -> None:
    """Say that ``rule`` rewrote ``variable``."""
    _record(Decision(rule, variable, rows_before, rows_after))


def refused(rule: str, variable: TensorVariable, reason: str) -> None:
    """Say that ``rule`` left ``variable`` alone, and why: a short clause, and what can be done.

    A rewriter is asked about the same variable whenever the graph around it has changed; what was
    said last is on the tag of the variable, and not said again.
    """
    if getattr(variable.tag, rule, None) != reason:
        setattr(variable.tag, rule, reason)
        _record(Decision(rule, variable, reason=reason))


def _record(decision: Decision) -> None:
    for decisions in _collectors.get():
        decisions.append(decision)
    logger.info("%s", decision)
