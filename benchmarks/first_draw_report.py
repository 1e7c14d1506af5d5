"""From the JSON of :mod:`benchmarks.first_draw` to the tables of README and docs, and the picture of both."""

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.report import MISSING, ROOT, Record, digits, insert_table, machine_and_versions
from benchmarks.suite import case
from pymc_fastlogp.benchmarking import BenchmarkResult

RESULTS = ROOT / "benchmarks" / "results" / "first_draw.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "first_draw.md"
PICTURE = ROOT / "docs" / "_static" / "first_draw.png"
MARKER = "table of the wait"

SIDES = ("off", "import only", "sample", "JAX", "Stan")
STATES = ("cold", "warm")
PARTS = ("imports", "compile", "sampling")

# The sides of the README, and what it calls them.
SHOWN = {"off": "off", "sample": "on", "JAX": "JAX", "Stan": "Stan"}
COLORS = {"imports": "0.75", "compile": "C1", "sampling": "C0"}


class Row(NamedTuple):
    """Row of a model in README and picture."""

    kind: str
    data: str


# Models of real data, of the kinds that people fit.
HEADLINES = {
    "radon": Row("varying intercepts and slopes", "radon, 919 houses"),
    "sleepstudy": Row("correlated slopes (LKJ)", "sleep study, 180 reactions"),
    "contraception": Row("multilevel logit", "contraception, 1 934 women"),
    "verbal_aggression": Row("item response (2PL)", "verbal aggression, 7 584 answers"),
    "epilepsy": Row("Poisson, an effect a row", "epilepsy, 236 counts"),
    "lynx": Row("AR(2) by scan", "lynx, 114 years"),
}


def sides_of(name: str) -> list[str]:
    """Return the sides of a model: not of each is there a Stan program."""
    return [side for side in SIDES if side != "Stan" or case(name).stan_code() is not None]


def wait(record: Record, side: str, state: str) -> float | None:
    """Return the seconds of a whole run, imports and all, None if there is none."""
    run = record["runs"].get(f"{side}, {state}")
    return None if run is None else sum(run.values())


def compilation(record: Record, side: str, state: str) -> float | None:
    """Return the seconds from the call to the start of sampling, None if there is no run."""
    run = record["runs"].get(f"{side}, {state}")
    return None if run is None else run["compile"]


def _cell(seconds: float | None) -> str:
    return MISSING if seconds is None else digits(seconds)


def ratio(record: Record) -> float:
    """Return how many times as long logp and gradient take with the plugin off."""
    return BenchmarkResult.from_dict(record["logp"]).ratio("off").median


def _table(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def headline_table(results: dict[str, Any]) -> str:
    """Return the table of the README."""
    header = ["model and data"]
    header += [f"{when}: {name}, s" for when in ("first run", "again") for name in SHOWN.values()]
    rows = []
    for record in results["models"]:
        if record["name"] not in HEADLINES:
            continue
        row = HEADLINES[record["name"]]
        cells = [f"{row.kind}: {row.data}"]
        cells += [_cell(wait(record, side, state)) for state in STATES for side in SHOWN]
        rows.append([*cells, digits(ratio(record))])
    table = _table([*header, "logp and gradient, off : on"], rows)
    return f"{table}\n\n{_measured(results)}"


def tables(results: dict[str, Any]) -> str:
    """Return the tables of the docs: all models, all sides."""
    contents: tuple[tuple[str, Callable[[Record, str, str], float | None]], ...] = (
        ("Whole run, imports and all, s", wait),
        ("From the call to the start of sampling, s", compilation),
    )
    header = ["model", *(f"{side}, {state}" for state in STATES for side in SIDES)]
    parts = []
    for title, seconds in contents:
        rows = [
            [
                record["title"],
                *(_cell(seconds(record, side, state)) for state in STATES for side in SIDES),
            ]
            for record in results["models"]
        ]
        parts.append(f"{title}:\n\n{_table(header, rows)}")
    return "\n\n".join([*parts, _measured(results)])


def _measured(results: dict[str, Any]) -> str:
    rounds = "one run" if results["rounds"] == 1 else f"median of {results['rounds']} runs"
    return f"Measured on {results['date']}, {rounds}, two cores of {machine_and_versions(results)}."


def draw(results: dict[str, Any]) -> Any:
    """Return a figure of the first run: a panel a model, a bar a side, in it the parts of the wait."""
    from matplotlib.figure import Figure

    records = [record for record in results["models"] if record["name"] in HEADLINES]
    n_rows = -(-len(records) // 3)
    figure = Figure(figsize=(10, 0.7 + 2.1 * n_rows), layout="constrained")
    for ax, record in zip(figure.subplots(n_rows, 3, squeeze=False).flat, records, strict=False):
        _draw_panel(ax, record)
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(PARTS),
        title="seconds until the posterior, first run: 4 chains of 1000 + 1000 draws on two cores (a scale each)",
        frameon=False,
    )
    return figure


def _draw_panel(ax: Any, record: Record) -> None:
    runs = {SHOWN[x]: record["runs"][f"{x}, cold"] for x in SHOWN if f"{x}, cold" in record["runs"]}
    names = list(runs)
    left = [0.0] * len(names)
    for part in PARTS:
        widths = [run[part] for run in runs.values()]
        ax.barh(names, widths, left=left, label=part, color=COLORS[part])
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for name, end in zip(names, left, strict=True):
        ax.annotate(f" {digits(end)} s", (end, name), va="center", fontsize="large")
    row = HEADLINES[record["name"]]
    ax.set_title(f"{row.kind}\n{row.data}", fontsize="medium", loc="left")
    ax.set_xlim(0, 1.35 * max(left))
    ax.xaxis.set_visible(False)
    ax.tick_params(axis="y", length=0, labelsize="large")
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.invert_yaxis()


def publish(results: dict[str, Any]) -> None:
    """Write the tables of README and docs, and draw the picture."""
    README.write_text(insert_table(README.read_text(), headline_table(results), MARKER))
    PAGE.write_text(insert_table(PAGE.read_text(), tables(results), MARKER))
    draw(results).savefig(PICTURE, dpi=150)
