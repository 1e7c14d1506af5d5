"""What :func:`~pymc_fastlogp.explain.explain` returns: plain data, and how it reads as a table."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd
import rich.box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pymc_fastlogp.rich_text import Shown

PREFIX = "fastlogp_"
TITLE = f"What pymc_fastlogp does to this model (rewrites without their prefix {PREFIX})"
WHY = "left alone, and why"


@dataclass(frozen=True)
class Outcome:
    """What one rewrite did, or why it did nothing, to the log density of one variable.

    Attributes
    ----------
    variable : str
        Name of the random variable or potential in the model.
    kind : str
        ``"prior"``, ``"likelihood"`` or ``"potential"``.
    rewrite : str
        Name of the rewrite, as in :mod:`pymc_fastlogp.registration`; empty where none applies.
    times : int
        At how many places of the graph.
    rows_before, rows_after : int, optional
        At how many rows something is evaluated before and after; None for rewrites that are not
        about rows, and where the number is not known.
    reason : str
        Why it did nothing; empty where it fired.
    advice : str
        What the user can do about that; may be empty.
    by : str
        By which data it was done, such as the index that rows were sorted by; empty where a rewrite has no choice.
    """

    variable: str
    kind: str
    rewrite: str
    times: int = 1
    rows_before: int | None = None
    rows_after: int | None = None
    reason: str = ""
    advice: str = ""
    by: str = ""

    @property
    def fired(self) -> bool:
        """Whether the graph was rewritten."""
        return not self.reason


@dataclass(frozen=True)
class Outside:
    """Nodes of the graph that stay with PyTensor.

    Attributes
    ----------
    op : str
        What they compute.
    n_nodes : int
        How many there are.
    reason : str
        Why they are not in a kernel.
    """

    op: str
    n_nodes: int
    reason: str


@dataclass(frozen=True)
class Kernels:
    """How much of a graph, in mode NUMBA, is compiled to vector code.

    Attributes
    ----------
    graph : str
        What it computes: logp and gradient, or logp alone where there is no gradient.
    n_nodes : tuple of int
        For each kernel, how many nodes of the graph it replaces.
    outside : tuple of Outside
        The nodes that are in no kernel.
    """

    graph: str
    n_nodes: tuple[int, ...]
    outside: tuple[Outside, ...]

    def lines(self) -> list[str]:
        """Return it in words."""
        n_outside = sum(x.n_nodes for x in self.outside)
        each = " + ".join(map(str, self.n_nodes))
        return [
            f"Nodes of {self.graph} in kernels: {each or 'none'}, outside: {n_outside}",
            *(f"Outside: {x.n_nodes} x {x.op}: {x.reason}" for x in self.outside),
        ]


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What the plugin does to a model, and why not more.

    Attributes
    ----------
    rows : tuple of Outcome
        At least one for each free and observed variable and each potential, in the model's order.
    kernels : Kernels
        Of all variables together.
    """

    rows: tuple[Outcome, ...]
    kernels: Kernels

    def __getitem__(self, variable: str) -> tuple[Outcome, ...]:
        """Return the rows of one variable or potential."""
        rows = tuple(row for row in self.rows if row.variable == variable)
        if not rows:
            names = ", ".join(dict.fromkeys(row.variable for row in self.rows))
            raise KeyError(f"no variable {variable!r} in the log density, only {names}")
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings, lists and dicts, ready for JSON."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "kernels": {
                "graph": self.kernels.graph,
                "n_nodes": list(self.kernels.n_nodes),
                "outside": [asdict(outside) for outside in self.kernels.outside],
            },
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row an outcome, with the attributes of :class:`Outcome` as columns."""
        frame = pd.DataFrame([asdict(row) for row in self.rows])
        return frame.astype({"rows_before": "Int64", "rows_after": "Int64"})

    def _as_shown(self, separator: str) -> pd.DataFrame:
        """Return the table, with rewrites that say the same in one row."""
        same: dict[tuple[str, ...], list[Outcome]] = {}
        for row in self.rows:
            same.setdefault((_variable(row), _rows(row), _why(row)), []).append(row)
        return pd.DataFrame(
            {
                "variable": variable,
                "rewrite": separator.join(_name(row) for row in rows if row.fired),
                "rows": n_rows,
                WHY: _refused(rows) + why,
            }
            for (variable, n_rows, why), rows in same.items()
        )

    def __rich__(self) -> Group:
        table = Table(title=TITLE, title_justify="left", box=rich.box.SIMPLE)
        shown = self._as_shown(",\n")
        for name in shown:
            table.add_column(str(name), overflow="fold", no_wrap=name in {"rewrite", "rows"})
        for row in shown.itertuples(index=False):
            table.add_row(*map(Text, row))
        return Group(table, *map(Text, self.kernels.lines()))

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            table = self._as_shown(", ").to_html(index=False)
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.kernels.lines())
        return f"<p>{TITLE}</p>{table}{lines}"


def _variable(row: Outcome) -> str:
    return f"{row.variable} ({row.kind})"


def _name(row: Outcome) -> str:
    name = row.rewrite.removeprefix(PREFIX) + (f" by {row.by}" if row.by else "")
    return f"{name} x {row.times}" if row.times > 1 else name


def _rows(row: Outcome) -> str:
    if row.rows_before is None:
        return ""
    return f"{row.rows_before} -> {row.rows_after}" if row.fired else str(row.rows_before)


def _refused(rows: list[Outcome]) -> str:
    names = [_name(row) for row in rows if not row.fired and row.rewrite]
    return f"{', '.join(names)}: " if names else ""


def _why(row: Outcome) -> str:
    return f"{row.reason} (to do: {row.advice})" if row.advice else row.reason
