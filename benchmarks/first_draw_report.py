"""From the JSON of :mod:`benchmarks.first_draw` to the tables of README and docs, and the picture of both."""

from math import inf
from typing import Any, NamedTuple

from benchmarks.report import (
    MISSING,
    ROOT,
    Record,
    digits,
    machine_and_versions,
    markdown_table,
    write_table,
)
from benchmarks.suite import case
from pymc_fastlogp.benchmarking import BenchmarkResult

RESULTS = ROOT / "benchmarks" / "results" / "first_draw.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "first_draw.md"
PICTURE = ROOT / "docs" / "_static" / "first_draw.png"
MARKER = "table of the wait"

# Ways of the README, in the order of all tables: one word a way, everywhere.
WAYS = ("off", "import", "sample")
SIDES = ("off", "import", "compile_kwargs", "sample", "nutpie-JAX", "NumPyro", "Stan")
# Sides that keep no machine code on disk: a later run takes as long as the first.
ONCE = ("nutpie-JAX", "NumPyro", "Stan")
STATES = ("cold", "warm")
TITLES = {"cold": "first run", "warm": "later run"}

PARTS = ("imports", "compile", "sampling")
COLORS = {"imports": "0.75", "compile": "C1", "sampling": "C0"}

# Seconds by part, or the seconds after which a run was stopped.
Run = dict[str, float]
STOPPED = "stopped"


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
    """Return the sides of a model: some have no Stan program."""
    return [side for side in SIDES if side != "Stan" or case(name).stan_code() is not None]


def states_of(side: str) -> tuple[str, ...]:
    """Return the states of the caches in which a side is measured."""
    return STATES[:1] if side in ONCE else STATES


def wait(record: Record, side: str, state: str) -> float | None:
    """Return the seconds of a whole run, imports included, None if there is none that ended."""
    run = record["runs"].get(f"{side}, {state}")
    return None if run is None or STOPPED in run else sum(run.values())


def _wait_cell(record: Record, side: str, state: str) -> str:
    run = record["runs"].get(f"{side}, {state}", {})
    if STOPPED in run:
        return f"> {digits(run[STOPPED])}"
    return digits(sum(run.values())) if run else MISSING


def _compile_cell(record: Record, side: str, state: str) -> str:
    run = record["runs"].get(f"{side}, {state}", {})
    return digits(run["compile"]) if "compile" in run else MISSING


def _evaluation(record: Record) -> float | None:
    """Return the speed-up of one evaluation of logp and gradient, off / sample."""
    logp = record["logp"]
    return None if logp is None else BenchmarkResult.from_dict(logp).ratio("off").median


def _speed_up(record: Record, way: str, state: str) -> float | None:
    off, other = (wait(record, side, state) for side in ("off", way))
    return None if off is None or other is None else off / other


def headline_table(results: dict[str, Any]) -> str:
    """Return the table of the README."""
    records = [record for record in results["models"] if record["name"] in HEADLINES]
    header = ["model and data", *(f"{way}, s" for way in WAYS), "off / sample"]
    header += ["later runs, off / sample", "one evaluation, off / sample"]
    rows = []
    for record in records:
        row = HEADLINES[record["name"]]
        seconds = [_wait_cell(record, way, "cold") for way in WAYS]
        ratios = [*(_speed_up(record, "sample", state) for state in STATES), _evaluation(record)]
        rows.append([f"{row.kind}: {row.data}", *seconds, *map(_times, ratios)])
    return f"{markdown_table(header, rows)}\n\n{_in_short(results, records)}"


def _times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{digits(ratio)} x"


def _in_short(results: dict[str, Any], records: list[Record]) -> str:
    """Say how far the import alone goes, which sides are ahead of ``sample``, and on which machine that was measured."""
    alone = [_speed_up(record, "import", "warm") or 0.0 for record in records]
    ahead = [
        f"{side} on {HEADLINES[record['name']].data.partition(',')[0]}"
        for side in SIDES
        for record in records
        if (wait(record, side, "cold") or inf) < (wait(record, "sample", "cold") or inf)
    ]
    return (
        f"In later runs the import alone is worth {min(alone):.1f} to {max(alone):.1f} x (off / import)."
        f" Ahead of `sample` in the first run: {', '.join(ahead) or 'none'}."
        f" {_rounds(results).capitalize()} on {results['machine']['cpu']}, PyMC {results['versions']['pymc']};"
        " [all versions, JAX and Stan](docs/first_draw.md#measured)."
    )


def tables(results: dict[str, Any]) -> str:
    """Return the tables of the docs: all models, with a column for each side that was measured."""
    contents = (
        ("Whole run, imports included", _wait_cell),
        ("From the call to the start of sampling", _compile_cell),
    )
    parts = []
    for title, cell in contents:
        for state in STATES:
            sides = [side for side in SIDES if _is_measured(results, side, state)]
            rows = [
                [record["title"], *(cell(record, side, state) for side in sides)]
                for record in results["models"]
            ]
            heading = f"{title}, {TITLES[state]} ({state}), s:"
            parts.append(f"{heading}\n\n{markdown_table(['model', *sides], rows)}")
    return "\n\n".join([*parts, _measured(results)])


def _is_measured(results: dict[str, Any], side: str, state: str) -> bool:
    return any(f"{side}, {state}" in record["runs"] for record in results["models"])


def _rounds(results: dict[str, Any]) -> str:
    return "one run" if results["rounds"] == 1 else f"median of {results['rounds']} runs"


def _measured(results: dict[str, Any]) -> str:
    missing = [side for side in SIDES if not _is_measured(results, side, "cold")]
    return (
        f"Measured on {results['date']}, {_rounds(results)}, two cores of {machine_and_versions(results)}."
        + (f" Not measured: {', '.join(missing)}." if missing else "")
    )


def draw(results: dict[str, Any]) -> Any:
    """Return a figure of the first run: a panel a model, a bar a side, stacked by the parts of the wait."""
    from matplotlib.figure import Figure

    records = [record for record in results["models"] if record["name"] in HEADLINES]
    n_rows = -(-len(records) // 3)
    figure = Figure(figsize=(11, 0.7 + 2.8 * n_rows), layout="constrained")
    for ax, record in zip(figure.subplots(n_rows, 3, squeeze=False).flat, records, strict=False):
        _draw_panel(ax, record)
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(PARTS),
        title="seconds until the posterior, first run: 4 chains of 1000 + 1000 draws on two cores; each panel has its own scale",
        frameon=False,
    )
    return figure


def _draw_panel(ax: Any, record: Record) -> None:
    runs = {x: record["runs"][f"{x}, cold"] for x in SIDES if f"{x}, cold" in record["runs"]}
    names = list(runs)
    left = [run.get(STOPPED, 0.0) for run in runs.values()]
    ax.barh(names, left, color="none", edgecolor="0.75", hatch="//")
    for part in PARTS:
        widths = [run.get(part, 0.0) for run in runs.values()]
        ax.barh(names, widths, left=left, label=part, color=COLORS[part])
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for name, end in zip(names, left, strict=True):
        seconds = _wait_cell(record, name, "cold")
        ax.annotate(f" {seconds} s", (end, name), va="center")
    row = HEADLINES[record["name"]]
    ax.set_title(f"{row.kind}\n{row.data}", fontsize="medium", loc="left")
    ax.set_xlim(0, 1.3 * max(left))
    ax.xaxis.set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.invert_yaxis()


def publish(results: dict[str, Any]) -> None:
    """Write the tables of README and docs, and draw the picture."""
    write_table(README, headline_table(results), MARKER)
    write_table(PAGE, tables(results), MARKER)
    draw(results).savefig(PICTURE, dpi=150)
