"""Result of a benchmark: raw times, table and plots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_fastlogp.benchmarking.wait import PARTS, Wait
from pymc_fastlogp.display import Shown


class Ratio(NamedTuple):
    """Median and quartiles of the ratios of all rounds."""

    median: float
    lower: float
    upper: float


@dataclass(frozen=True, repr=False)
class BenchmarkResult(Shown):
    """Seconds per evaluation of logp and gradient in each round, and the wait of a user.

    Parameters
    ----------
    n_dim : int
        Number of unconstrained parameters.
    seconds : mapping of str to tuple of float
        Seconds per evaluation in each round, for each side such as ``"off"`` and ``"on"``. Round ``i`` of all sides
        ran at about the same time.
    baseline : str
        The side that all others are compared with.
    wait : mapping of str to Wait
        Wait in fresh processes, for each way (``"off"``, ``"import"``, ``"sample"``); empty if the wait was not measured.
    """

    n_dim: int
    seconds: Mapping[str, tuple[float, ...]]
    baseline: str = "on"
    wait: Mapping[str, Wait] = field(default_factory=dict)

    def median(self, side: str) -> float:
        """Return the median over the rounds, in seconds per evaluation."""
        return float(np.median(self.seconds[side]))

    def ratio(self, side: str) -> Ratio:
        """Return the time of a side divided by the time of the baseline; above 1 the side is slower."""
        ratios = np.divide(self.seconds[side], self.seconds[self.baseline])
        lower, median, upper = np.quantile(ratios, [0.25, 0.5, 0.75])
        return Ratio(float(median), float(lower), float(upper))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain numbers, strings, lists and dicts, ready for JSON."""
        return {
            "n_dim": self.n_dim,
            "baseline": self.baseline,
            "sides": {
                side: {
                    "median_seconds": self.median(side),
                    "ratio": self.ratio(side)._asdict(),
                    "seconds": list(values),
                }
                for side, values in self.seconds.items()
            },
            "wait": {side: wait._asdict() for side, wait in self.wait.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "BenchmarkResult":
        """Restore a result from :meth:`to_dict`."""
        return cls(
            n_dim=plain["n_dim"],
            seconds={side: tuple(row["seconds"]) for side, row in plain["sides"].items()},
            baseline=plain["baseline"],
            wait={side: Wait(**row) for side, row in plain.get("wait", {}).items()},
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each side: median in microseconds, ratio to the baseline, quartiles of the ratio."""
        rows = {
            side: {"microseconds": self.median(side) * 1e6, **self.ratio(side)._asdict()}
            for side in self.seconds
        }
        columns = {"median": "ratio", "lower": "ratio 25%", "upper": "ratio 75%"}
        return pd.DataFrame.from_dict(rows, orient="index").rename(columns=columns)

    def plot(self, ax: Any = None) -> Any:
        """Draw the rounds of each side as points on a logarithmic axis, the median as a line.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes of the plot; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        ax = ax or _new_axes(len(self.seconds))
        for row, values in enumerate(self.seconds.values()):
            microseconds = np.multiply(values, 1e6)
            ax.plot(microseconds, [row] * len(values), "o", alpha=0.5, color=f"C{row}")
            ax.plot(np.median(microseconds), row, "|", markersize=24, color=f"C{row}")
        ax.legend(
            ax.lines[:2],
            ["one round", "median"],
            markerscale=0.5,
            loc="center left",
            bbox_to_anchor=(1, 0.5),
        )
        ax.set_yticks(range(len(self.seconds)), list(self.seconds))
        ax.set_ylim(len(self.seconds) - 0.5, -0.5)
        ax.set_xscale("log", subs=range(2, 10))
        _label_few_ticks(ax)
        ax.set_xlabel("microseconds per evaluation of logp and gradient (log scale)")
        others = [side for side in self.seconds if side != self.baseline]
        ratio = (
            f": {others[0]} / {self.baseline} is {self.ratio(others[0]).median:.2f}"
            if others
            else ""
        )
        ax.set_title(f"logp and gradient of {self.n_dim} parameters{ratio}")
        return ax

    def plot_wait(self, ax: Any = None) -> Any:
        """Draw the wait of each way as a bar: imports, compilation, draws.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes of the plot; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If the wait was not measured.
        """
        if not self.wait:
            raise ValueError("the wait was not measured: use benchmark(model, wait=True).")
        ax = ax or _new_axes(len(self.wait))
        left = np.zeros(len(self.wait))
        widths = np.transpose([wait.parts for wait in self.wait.values()])
        for part, width in zip(PARTS, widths, strict=True):
            ax.barh(range(len(left)), width, left=left, label=part)
            left = left + width
        names = [
            name + (", given up" if wait.given_up is not None else "")
            for name, wait in self.wait.items()
        ]
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("seconds in a fresh process, 4 x (1000 + 1000) draws")
        ax.set_title(self._title_of_wait())
        ax.legend()
        return ax

    def _title_of_wait(self) -> str:
        off, sample = self.wait.get("off"), self.wait.get("sample")
        if off is None or sample is None or sample.given_up is not None:
            return "wait"
        at_least = "" if off.given_up is None else "at least "
        ratio = off.total / sample.total
        return f"wait: off / sample is {at_least}{ratio:.2f}"

    def sentences(self) -> list[str]:
        """Return the time of the baseline and the ratios of the other sides in one sentence."""
        others = (
            f", {side} {self.ratio(side).median:.2f} times as long"
            for side in self.seconds
            if side != self.baseline
        )
        return [
            f"Logp and gradient of {self.n_dim} parameters:"
            f" {self.baseline} takes {self.median(self.baseline) * 1e6:.3g} µs{''.join(others)}."
        ]

    def table(self) -> pd.DataFrame:
        """Return the median of each side, and its ratio to the baseline, as text."""
        ratios = {side: self.ratio(side) for side in self.seconds}
        return pd.DataFrame(
            {
                "side": side,
                "microseconds": f"{self.median(side) * 1e6:.3g}",
                f"times {self.baseline}": f"{ratio.median:.2f}",
                "quartiles": f"{ratio.lower:.2f} to {ratio.upper:.2f}",
            }
            for side, ratio in ratios.items()
        )

    def notes(self) -> list[str]:
        """Return a line for the wait of each way."""
        if not self.wait:
            return []
        head = "Wait in fresh processes with empty caches:"
        return [head, *(f"{way}: {wait}" for way, wait in self.wait.items())]


def _label_few_ticks(ax: Any) -> None:
    """Label 1, 2 and 5 of each decade of a logarithmic axis: within one decade, all labels would overlap."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())


def _new_axes(n_bars: int) -> Any:
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(6, 0.8 + 0.5 * n_bars), layout="constrained")
    return ax
