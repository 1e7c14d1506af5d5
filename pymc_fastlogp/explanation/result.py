"""Result of :func:`~pymc_fastlogp.explain`: plain data, sentences and a table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from pymc_fastlogp.display import Shown
from pymc_fastlogp.explanation.similar_lines import Line, group_similar, join_names, name_range

if TYPE_CHECKING:
    from pymc_fastlogp.explanation.drawing import Picture

PREFIX = "fastlogp_"
UNLESS = "nothing, unless "
SPLIT = "fastlogp_split_imputed"


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
        Number of places in the graph with this outcome.
    rows_before, rows_after : int, optional
        Number of rows that are evaluated before and after the rewrite. None for rewrites that are not
        about rows, and for an unknown number of rows.
    reason : str
        Reason for which the rewrite did not apply; empty if the rewrite fired.
    advice : str
        Remedy for the reason; may be empty.
    by : str
        Name of the index that rows were sorted by; empty for rewrites that do not sort.
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
    """Nodes of the graph that PyTensor compiles, with the reason.

    Attributes
    ----------
    op : str
        Op of the nodes.
    n_nodes : int
        Number of nodes.
    reason : str
        Reason for which the nodes are outside of kernels.
    """

    op: str
    n_nodes: int
    reason: str


@dataclass(frozen=True)
class Kernels:
    """Nodes of a graph, in mode NUMBA, that kernels compute, and nodes outside of kernels.

    Attributes
    ----------
    graph : str
        ``"logp and gradient"``, or ``"logp"`` for a model without a gradient.
    n_nodes : tuple of int
        Number of nodes that each kernel replaces.
    outside : tuple of Outside
        Nodes outside of kernels.
    n_like_others : int
        Number of terms of the log density that were left out, because each has the same operations as a counted term.
    rows_in_chunks : tuple of int
        Number of rows of each loop that runs in chunks of rows, which several threads can share.
    """

    graph: str
    n_nodes: tuple[int, ...]
    outside: tuple[Outside, ...]
    n_like_others: int = 0
    rows_in_chunks: tuple[int, ...] = ()

    def sentence(self) -> str:
        """Return the number of nodes in kernels as a sentence."""
        inside, outside = sum(self.n_nodes), sum(x.n_nodes for x in self.outside)
        graph = self.graph + (
            f", without {self.n_like_others} terms that are like others,"
            if self.n_like_others
            else ""
        )
        if not inside:
            return f"No node of {graph} is in a kernel ({outside} outside)."
        kernels = "one kernel" if len(self.n_nodes) == 1 else f"{len(self.n_nodes)} kernels"
        rest = f", {outside} outside" if outside else ""
        return f"{inside} of {inside + outside} nodes of {graph} are in {kernels}{rest}."

    def chunks(self) -> str:
        """Return the loops that run in chunks as a sentence; empty if there are none."""
        if not self.rows_in_chunks:
            return ""
        counts = Counter(self.rows_in_chunks)
        loops = [f"{'a loop' if k == 1 else f'{k} loops'} over {n} rows" for n, k in counts.items()]
        verb = "runs" if [*counts.values()] == [1] else "run"
        return (
            f"{' and '.join(loops)} {verb} in chunks, which several threads can share.".capitalize()
        )


# Deterministics are named if they take more than half of the draws, and more megabytes per 1000 draws than this.
LARGE_TRACE = 10
BYTES = 8

# First word of the entries of ``effects`` for which ``reparametrize`` compares parametrizations.
WRITTEN = "written "


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Effects of the plugin on a model, and the reasons for the rest.

    Attributes
    ----------
    rows : tuple of Outcome
        At least one for each free and observed variable and each potential: likelihoods first, then
        potentials and priors, the largest of a kind first.
    kernels : Kernels
        Kernels of the model's log density and gradient.
    picture : Picture, optional
        The picture of :meth:`graph`.
    effects : mapping of str to str
        Action of :func:`pymc_fastlogp.reparametrize` on each free variable, or the reason for none.
    stored : mapping of str to int
        Number of values of each free variable and Deterministic in a draw; empty if a shape is not known.
    deterministics : tuple of str
        Names of the Deterministics.
    verbose : bool
        Whether the printed form includes the table of rewrites.
    expected : str
        Sentence on the gain by ``reparametrize=True``, empty if only a pilot run can tell.
    tables : mapping of str to str
        Rows that were read, or are going to be read, for each likelihood over a table.
    """

    WHOLE: ClassVar[tuple[str, ...]] = ("rewrites", "rows")

    rows: tuple[Outcome, ...]
    kernels: Kernels
    picture: "Picture | None" = field(default=None, compare=False)
    effects: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    deterministics: tuple[str, ...] = ()
    verbose: bool = field(default=False, compare=False)
    expected: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)

    @property
    def dot(self) -> str:
        """The picture of :meth:`graph`, in the language of Graphviz."""
        return self.picture.dot if self.picture else ""

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
                "n_like_others": self.kernels.n_like_others,
                "rows_in_chunks": list(self.kernels.rows_in_chunks),
            },
            "effects": dict(self.effects),
            "stored": dict(self.stored),
            "deterministics": list(self.deterministics),
            "expected": self.expected,
            "tables": dict(self.tables),
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
        """Return a sentence for each likelihood over a table, for each likelihood and potential or several that are alike, one about kernels, and one about their loops in chunks."""
        said = {
            name: (rows[0].kind, [(_rows_of(rows),)])
            for name, rows in self._by_variable().items()
            if rows[0].kind != "prior"
        }
        return [
            *(f"{name}: {said_of}." for name, said_of in self.tables.items()),
            *(
                f"{name_range(names, kind) or join_names(names)}: {text}."
                for names, kind, [(text,)] in group_similar(said)
            ),
            self.kernels.sentence(),
            *filter(None, [self.kernels.chunks()]),
        ]

    def table(self) -> pd.DataFrame:
        """Return the outcomes as text, rewrites with the same outcome in one row; empty unless ``verbose``."""
        by_variable = self._by_variable() if self.verbose else {}
        said = {name: (rows[0].kind, _lines(rows)) for name, rows in by_variable.items()}
        return pd.DataFrame(
            [
                (name_range(names, kind) or f"{join_names(names)} ({kind})", *line)
                for names, kind, lines in group_similar(said)
                for line in lines
            ],
            columns=["variable", "rewrites", "rows", "rewrites that do not apply"],
        )

    def _by_variable(self) -> dict[str, list[Outcome]]:
        rows: dict[str, list[Outcome]] = {}
        for row in self.rows:
            rows.setdefault(row.variable, []).append(row)
        return rows

    def notes(self) -> list[str]:
        """Return effects that ``reparametrize`` may change, and large Deterministics; if ``verbose``, also variables without rewrites and nodes outside of kernels."""
        always = [*self._large(), *self._placed(), *([self.expected] if self.expected else [])]
        if not self.verbose:
            return ["explain(model, verbose=True) lists each rewrite.", *always]
        idle: dict[str, list[str]] = {}
        for row in self.rows:
            if not row.rewrite:
                idle.setdefault(row.reason, []).append(_variable(row))
        return [
            *(f"{join_names(names)}: {reason}." for reason, names in idle.items()),
            *(
                f"Outside of kernels: {x.n_nodes} x {x.op}: {x.reason}."
                for x in self.kernels.outside
            ),
            f"The names of rewrites are shown without the prefix {PREFIX}.",
            *always,
        ]

    def _placed(self) -> list[str]:
        """Return the effects for which ``reparametrize`` compares parametrizations."""
        names: dict[str, list[str]] = {}
        for name, what in self.effects.items():
            if what.startswith(WRITTEN):
                names.setdefault(what, []).append(name)
        return [f"{join_names(of_kind)}: {what}." for what, of_kind in names.items()]

    def _large(self) -> list[str]:
        """Return the Deterministics that dominate the memory of the draws."""
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


def _rows_of(rows: Sequence[Outcome]) -> str:
    """Return the number of rows and of summed terms of one variable, or the reason for as many terms as rows."""
    about_rows = [row for row in rows if row.rows_before is not None]
    if not about_rows:
        refused = [_why(row) for row in rows if not row.fired]
        return refused[-1] if refused else "rewritten, with as many rows as before"
    before = max(row.rows_before or 0 for row in about_rows)
    after = max(row.rows_after or 0 for row in about_rows)
    if any(row.rewrite == SPLIT for row in rows):
        before, after = map(sum, zip(*_halves(about_rows), strict=True))
    if after < before:
        return f"{before} rows are summed as {after} {'term' if after == 1 else 'terms'}, exactly"
    why = [_why(row) for row in about_rows if not row.fired and row.rows_after == after]
    return f"all {before} rows are evaluated{''.join(f': {x}' for x in why[-1:])}"


def _halves(rows: Sequence[Outcome]) -> list[tuple[int, int]]:
    """Return the rows and terms of observed and of missing values, which imputation evaluates apart."""
    terms: dict[int, int] = {}
    for row in rows:
        if row.rows_before is not None and row.rows_after is not None:
            terms[row.rows_before] = max(terms.get(row.rows_before, 0), row.rows_after)
    made = {row.rows_after for row in rows if row.fired}
    return sorted(((n, after) for n, after in terms.items() if n not in made), reverse=True)[:2]


def _lines(rows: Sequence[Outcome]) -> list[Line]:
    """Return the lines of one variable in the table of rewrites: rewrites with the same outcome in one line."""
    same: dict[tuple[str, str], list[Outcome]] = {}
    for row in rows:
        if row.rewrite:
            same.setdefault((_rows(row), _why(row)), []).append(row)
    return [
        (",\n".join(_name(row) for row in alike if row.fired), n_rows, _refused(alike) + why)
        for (n_rows, why), alike in same.items()
    ]


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
    """Return the reason, with its advice: a prior has to read its entries, so that none is given."""
    if row.kind == "prior" or not row.advice or row.advice.startswith("nothing:"):
        return row.reason
    if row.advice.startswith(UNLESS):
        return f"{row.reason} (gains if {row.advice.removeprefix(UNLESS)})"
    return f"{row.reason} (to do: {row.advice})"
