"""Result of :func:`pymc_fastlogp.verify`."""

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from pymc_fastlogp.display import Shown
from pymc_fastlogp.models.validate import NOWHERE_FINITE


@dataclass(frozen=True)
class WorstEntry:
    """The entry of one variable where the two sides differ most, in units of what is allowed.

    Attributes
    ----------
    variable : str
        ``"logp"``, or the name of the value variable that the gradient is with respect to.
    place : tuple of int
        Index of the entry within the variable.
    point : str
        Which of the points it was.
    off, on : float
        The two values.
    error : float
        ``|on - off|`` relative to ``max(|off|, largest entry of the variable)``; inf where one side
        is finite and the other is not.
    ratio : float
        ``|on - off|`` divided by what is allowed there: above 1 the entry fails.
    """

    variable: str
    place: tuple[int, ...]
    point: str
    off: float
    on: float
    error: float
    ratio: float

    @property
    def passed(self) -> bool:
        """Return whether the difference is within what is allowed."""
        return self.ratio <= 1.0


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """The outcome of :func:`verify`: true if every entry at every point passed, and the log density is finite at some point.

    Attributes
    ----------
    rows : tuple of WorstEntry
        One for ``logp`` and one for each value variable.
    n_points : int
        How many points were compared.
    rtol : float
        The relative tolerance.
    n_beyond : int
        How many points far out were not compared, since logp or the gradient is not finite with the plugin off, and something else with it on.
    n_finite : int
        Number of points tried where the log density is finite on at least one side.
    """

    rows: tuple[WorstEntry, ...]
    n_points: int
    rtol: float
    n_beyond: int = 0
    n_finite: int = 1

    @property
    def agrees(self) -> bool:
        """Return whether every entry at every point passed."""
        return all(row.passed for row in self.rows)

    @property
    def passed(self) -> bool:
        """Return whether every entry passed, and there was something to compare."""
        return self.agrees and self.n_finite > 0

    def __bool__(self) -> bool:
        return self.passed

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {"passed": self.passed, **asdict(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a variable, with the attributes of :class:`WorstEntry` as columns."""
        return pd.DataFrame([asdict(row) | {"passed": row.passed} for row in self.rows])

    def sentences(self) -> list[str]:
        """Return the result in a sentence or two."""
        if self.agrees and not self.n_finite:
            return [NOWHERE_FINITE]
        worst = max(self.rows, key=lambda row: row.ratio)
        names = ", ".join(row.variable for row in self.rows if not row.passed)
        verdict = "agree" if self.agrees else f"DIFFER in {names}"
        found = (
            f"Logp and gradient, plugin off and on, {verdict} at {self.n_points} points:"
            f" the largest difference is {worst.ratio:.2g} times the allowed one."
        )
        if not self.n_beyond:
            return [found]
        return [
            found,
            f"At {self.n_beyond} more, far out, not all is finite with the plugin off, and something else with it on.",
        ]

    def table(self) -> pd.DataFrame:
        """Return the worst entry of each variable as text."""
        return pd.DataFrame(
            {
                "variable": row.variable,
                "relative difference": f"{row.error:.1e}",
                "times allowed": f"{row.ratio:.2g}",
                "at": f"{list(row.place)} of {row.point}" if row.place else row.point,
                "off": f"{row.off:.16g}",
                "on": f"{row.on:.16g}",
                "": "ok" if row.passed else "DIFFERS",
            }
            for row in self.rows
        )
