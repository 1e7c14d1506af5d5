"""Result of :func:`~pymc_fastlogp.explain`: plain data, and its table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import pandas as pd

from pymc_fastlogp.display import Shown

PREFIX = "fastlogp_"
UNLESS = "nothing, unless "
# Below it, a gain is smaller than the error of the estimate.
NOTICEABLE = 1.2


@dataclass(frozen=True)
class Outcome:
    """Effect of one rewrite on the log density of one variable, or the reason for none.

    Attributes
    ----------
    variable : str
        Name of the random variable or potential in the model.
    kind : str
        ``"prior"``, ``"likelihood"`` or ``"potential"``.
    rewrite : str
        Name of the rewrite, as in :mod:`pymc_fastlogp.rules`; empty where none applies.
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
        """Return whether the graph was rewritten."""
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
    """Share of a graph, in mode NUMBA, that is compiled to vector code.

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

    def sentence(self) -> str:
        """Say how many nodes are in kernels."""
        inside, outside = sum(self.n_nodes), sum(x.n_nodes for x in self.outside)
        if not inside:
            return f"No node of {self.graph} is in a kernel, {outside} are outside."
        kernels = "one kernel" if len(self.n_nodes) == 1 else f"{len(self.n_nodes)} kernels"
        rest = f", {outside} outside" if outside else ""
        return f"{inside} of {inside + outside} nodes of {self.graph} are in {kernels}{rest}."


# Deterministics are named if they take more than half of the draws, and more megabytes of 1000 draws than this.
LARGE_TRACE = 10
BYTES = 8

# How the entries of ``effects`` begin that ``reparametrize`` would do something to.
PLACED = "reparametrize can place it"


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Effects of the plugin on a model, and the reasons for the rest.

    Attributes
    ----------
    rows : tuple of Outcome
        At least one for each free and observed variable and each potential: likelihoods first, then
        potentials and priors, the largest of a kind first.
    kernels : Kernels
        Of all variables together.
    expected_ratio : float, optional
        How many times as fast logp and gradient can be expected to be, by the prices of
        :mod:`pymc_fastlogp.explanation.expected`; None where the size of some data is not known.
    expected : mapping of str to float
        The same of single likelihoods and potentials, for the largest ones.
    dot : str
        What :meth:`graph` draws, in the language of Graphviz.
    effects : mapping of str to str
        What :func:`pymc_fastlogp.reparametrize` would do to each free variable, or why nothing.
    stored : mapping of str to int
        Number of values of each free variable and Deterministic in a draw; empty if a shape is not known.
    deterministics : tuple of str
        Names of the Deterministics.
    """

    WHOLE: ClassVar[tuple[str, ...]] = ("rewrite", "rows")

    rows: tuple[Outcome, ...]
    kernels: Kernels
    expected_ratio: float | None = None
    expected: Mapping[str, float] = field(default_factory=dict)
    dot: str = field(default="", compare=False)
    effects: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    deterministics: tuple[str, ...] = ()

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
            "expected_ratio": self.expected_ratio,
            "expected": dict(self.expected),
            "effects": dict(self.effects),
            "stored": dict(self.stored),
            "deterministics": list(self.deterministics),
        }

    def graph(self) -> Any:
        """Draw the log density before and after: its graph with the plugin off, and on.

        Returns
        -------
        graphviz.Source
            Shown in a notebook; ``.render("file", format="svg")`` writes a picture, ``.source`` is the text.

        Raises
        ------
        ImportError
            If the Python package graphviz is not installed. Drawing also needs the program of that name.
        """
        try:
            from graphviz import Source
        except ImportError as error:
            raise ImportError(
                "graph() needs graphviz: conda install -c conda-forge python-graphviz, or pip install graphviz"
                " and the program from your system's package manager"
            ) from error
        return Source(self.dot)

    def to_frame(self) -> pd.DataFrame:
        """Return one row an outcome, with the attributes of :class:`Outcome` as columns."""
        frame = pd.DataFrame([asdict(row) for row in self.rows])
        return frame.astype({"rows_before": "Int64", "rows_after": "Int64"})

    def sentences(self) -> list[str]:
        """Say what gain to expect, how many rows of each likelihood and potential are evaluated, and what kernels do."""
        names = dict.fromkeys(row.variable for row in self.rows if row.kind != "prior")
        return [
            *self._gain(),
            *(f"{name}: {self._gain_of(name)}{_rows_of(self[name])}." for name in names),
            self.kernels.sentence(),
        ]

    def _gain(self) -> list[str]:
        if self.expected_ratio is None:
            return []
        gain = in_words(self.expected_ratio)
        return [f"Logp and gradient: {gain} expected (an estimate; benchmark(model) measures)."]

    def _gain_of(self, name: str) -> str:
        return f"{in_words(self.expected[name])} expected; " if name in self.expected else ""

    def table(self) -> pd.DataFrame:
        """Return what happened as text, with rewrites that say the same in one row."""
        same: dict[tuple[str, ...], list[Outcome]] = {}
        for row in self.rows:
            if row.rewrite:
                same.setdefault((_variable(row), _rows(row), _why(row)), []).append(row)
        return pd.DataFrame(
            [
                (
                    variable,
                    ",\n".join(_name(row) for row in rows if row.fired),
                    n_rows,
                    _refused(rows) + why,
                )
                for (variable, n_rows, why), rows in same.items()
            ],
            columns=["variable", "rewrite", "rows", "left alone, and why"],
        )

    def notes(self) -> list[str]:
        """Return the variables that nothing is to be said about, the effects that have a better parametrization, and the nodes outside of kernels."""
        idle: dict[str, list[str]] = {}
        for row in self.rows:
            if not row.rewrite:
                idle.setdefault(row.reason, []).append(_variable(row))
        return [
            *(f"{', '.join(names)}: {reason}." for reason, names in idle.items()),
            *self._placed(),
            *self._large(),
            *(
                f"Outside of kernels: {x.n_nodes} x {x.op}: {x.reason}."
                for x in self.kernels.outside
            ),
            f"Rewrites are named without {PREFIX}.",
        ]

    def _placed(self) -> list[str]:
        """Say which variables ``reparametrize`` knows what to do with."""
        names: dict[str, list[str]] = {}
        for name, what in self.effects.items():
            if what.startswith(PLACED):
                names.setdefault(what, []).append(name)
        return [f"{', '.join(of_kind)}: {what}." for what, of_kind in names.items()]

    def _large(self) -> list[str]:
        """Say which Deterministics dominate the memory of the draws."""
        size = self.stored.get
        total = sum(self.stored.values())
        large: list[str] = []
        for name in sorted(self.deterministics, key=lambda x: (-size(x, 0), x)):
            if 2 * sum(size(x, 0) for x in large) > total:
                break
            large.append(name)
        taken = sum(size(x, 0) for x in large)
        # Megabytes of 1000 draws.
        of_large, of_all = (1000 * BYTES * n / 1e6 for n in (taken, total))
        if 2 * taken <= total or of_large <= LARGE_TRACE:
            return []
        is_one = len(large) == 1
        return [
            f"{', '.join(large)} ({'Deterministic' if is_one else 'Deterministics'}) {'takes' if is_one else 'take'}"
            f" {of_large:.1f} of {of_all:.1f} MB per 1000 draws; leave {'it' if is_one else 'them'} out with var_names."
        ]


def in_words(ratio: float) -> str:
    """Say how many times as fast, no more precisely than the estimate is."""
    if ratio < NOTICEABLE:
        return "about as fast" if ratio > 1 / NOTICEABLE else "slower"
    digits = f"{ratio:.2g}" if ratio < 10 else f"{float(f'{ratio:.1g}'):.0f}"
    return f"about {digits} times as fast"


def _rows_of(rows: tuple[Outcome, ...]) -> str:
    """Say at how many rows something of one variable is evaluated, before and after, or why at all."""
    about_rows = [row for row in rows if row.rows_before is not None]
    if not about_rows:
        refused = [_why(row) for row in rows if not row.fired]
        return refused[-1] if refused else "as many rows as before are evaluated"
    before = max(row.rows_before or 0 for row in about_rows)
    after = max(row.rows_after or 0 for row in about_rows)
    if after < before:
        return f"{after} rows are evaluated instead of {before}"
    why = [_why(row) for row in about_rows if not row.fired and row.rows_after == after]
    return f"all {before} rows are evaluated{''.join(f'; {x}' for x in why[-1:])}"


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
    names = ", ".join(_name(row) for row in rows if not row.fired)
    return f"{names}: " if names else ""


def _why(row: Outcome) -> str:
    """Return the reason, and what to do where there is something: a prior has to read its entries."""
    if row.kind == "prior" or not row.advice or row.advice.startswith("nothing:"):
        return row.reason
    if row.advice.startswith(UNLESS):
        return f"{row.reason} (gains if {row.advice.removeprefix(UNLESS)})"
    return f"{row.reason} (to do: {row.advice})"
