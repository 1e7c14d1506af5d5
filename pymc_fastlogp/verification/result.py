"""Result of :func:`pymc_fastlogp.verify`."""

from dataclasses import asdict, dataclass
from math import isnan
from typing import Any, ClassVar

import pandas as pd

from pymc_fastlogp.display import Shown
from pymc_fastlogp.models.validate import nowhere_finite

MORE_TIME = "verify(model, seconds=None)"


@dataclass(frozen=True)
class WorstEntry:
    """The entry of one variable with the largest difference between the two sides, in units of the tolerance.

    Attributes
    ----------
    variable : str
        ``"logp"``, or the name of the value variable that the gradient is with respect to.
    place : tuple of int
        Index of the entry within the variable.
    point : str
        Description of the point.
    off, on : float
        Values with the plugin off and on.
    error : float
        ``|on - off|`` relative to ``max(|off|, largest entry of the variable)``; inf if only one side
        is finite.
    ratio : float
        ``|on - off| / allowed``: above 1 the entry fails.
    allowed : float
        Largest allowed ``|on - off|``: ``rtol`` of the variable's size, plus the round-off of upstream at the point.
    """

    variable: str
    place: tuple[int, ...]
    point: str
    off: float
    on: float
    error: float
    ratio: float
    allowed: float

    @property
    def passed(self) -> bool:
        """Return whether the difference is allowed."""
        return self.ratio <= 1.0

    @property
    def difference(self) -> float:
        """Return ``|on - off|``, zero for the same infinity or NaN on both sides."""
        is_same = self.off == self.on or (isnan(self.off) and isnan(self.on))
        return 0.0 if is_same else abs(self.on - self.off)

    @property
    def where(self) -> str:
        """Return the entry and the point in words."""
        index = self.place[0] if len(self.place) == 1 else [*self.place]
        return f"entry {index}, at {self.point}" if self.place else self.point


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """Result of :func:`verify`: true if all entries pass at all points, and the log density is finite at some point.

    Attributes
    ----------
    rows : tuple of WorstEntry
        One entry for ``logp`` and one for each value variable.
    n_points : int
        Number of points compared.
    rtol : float
        Relative tolerance.
    n_beyond : int
        Number of points that were not compared: logp or gradient is not finite with the plugin off, and different with the plugin on, which keeps more
        digits, or is far out.
    n_finite : int
        Number of points with a finite log density on at least one side.
    n_left : int
        Number of points for which there was no time.
    n_undecided : int
        Number of points with differences whose round-off there was no time to measure.
    causes : tuple of str
        Reasons why the log density is not finite at the initial point, if it is finite nowhere.
    """

    WHOLE: ClassVar[tuple[str, ...]] = ("off", "on", "difference", "allowed", "")

    rows: tuple[WorstEntry, ...]
    n_points: int
    rtol: float
    n_beyond: int = 0
    n_finite: int = 1
    n_left: int = 0
    n_undecided: int = 0
    causes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Return whether all entries pass at all points."""
        return all(row.passed for row in self.rows)

    @property
    def passed(self) -> bool:
        """Return whether all entries pass at all points that were begun, and the log density is finite at some point."""
        return self.agrees and self.n_finite > 0 and not self.n_undecided

    def __bool__(self) -> bool:
        return self.passed

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {"passed": self.passed, **asdict(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each variable, with the attributes of :class:`WorstEntry` as columns."""
        return pd.DataFrame([asdict(row) | {"passed": row.passed} for row in self.rows])

    def sentences(self) -> list[str]:
        """Return the result in a sentence or two."""
        if self.agrees and not self.n_finite:
            return [nowhere_finite(self.causes)]
        return [
            *self._compared(),
            *(
                [
                    f"Points not compared, because logp or gradient is not finite with the plugin off by overflow or round-off: {self.n_beyond}."
                ]
                if self.n_beyond
                else []
            ),
            *(
                [
                    f"Points at which the sides differ, and there was no time to measure the round-off: {self.n_undecided}."
                    f" To measure it: {MORE_TIME}."
                ]
                if self.n_undecided
                else []
            ),
        ]

    def _compared(self) -> list[str]:
        """Return the verdict in a sentence; none if no point was compared."""
        if not self.rows:
            return []
        worst = max(self.rows, key=lambda row: row.ratio)
        names = ", ".join(row.variable for row in self.rows if not row.passed)
        verdict = "agree" if self.agrees else f"DIFFER in {names}"
        n_all = self.n_points + self.n_left + self.n_beyond + self.n_undecided
        of_all = f" of {n_all}, as many as there was time for" if self.n_left else ""
        return [
            f"Logp and gradient, plugin off and on, {verdict} at {self.n_points} points{of_all}:"
            f" the largest difference is {worst.ratio:.2g} times the allowed difference."
        ]

    def notes(self) -> list[str]:
        """Return the meaning of the column of allowed differences."""
        if not self.rows or not self.n_finite:
            return []
        return [
            f"Allowed: {self.rtol:g} of the largest entry, plus the round-off of PyTensor's own result at the point.",
            *([f"For all points: {MORE_TIME}."] if self.n_left else []),
        ]

    def table(self) -> pd.DataFrame:
        """Return the worst entry of each variable as text; empty if the log density is finite nowhere."""
        return pd.DataFrame(
            {
                "variable": row.variable,
                "off": f"{row.off:.10g}",
                "on": f"{row.on:.10g}",
                "difference": f"{row.difference:.1e}",
                "allowed": f"{row.allowed:.1e}",
                "at": row.where,
                "": "ok" if row.passed else "DIFFERS",
            }
            for row in (self.rows if self.n_finite else ())
        )
