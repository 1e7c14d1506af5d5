"""From the JSON of a run to its tables, for the terminal and the docs, and its plot.

``python -m benchmarks.report [JSON]`` does it all again without measuring.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rich
from rich.console import Group
from rich.table import Table

from pymc_fastlogp.benchmarking import BenchmarkResult

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
PAGE = ROOT / "docs" / "benchmarking.md"
PLOT = ROOT / "docs" / "_static" / "benchmark.png"

MARKER = "benchmark table"

MISSING = "–"  # noqa: RUF001
FAILED = "failed"

Record = dict[str, Any]


def evaluation(record: Record) -> BenchmarkResult | None:
    """Return the times of a record, None if it failed."""
    plain = record["evaluation"]
    return None if plain is None else BenchmarkResult.from_dict(plain)


def microseconds(side: str) -> Callable[[Record], str]:
    """Return a function that formats the median time of a side."""

    def cell(record: Record) -> str:
        result = evaluation(record)
        if result is None:
            return FAILED
        return digits(result.median(side) * 1e6) if side in result.seconds else MISSING

    return cell


def ratio(side: str) -> Callable[[Record], str]:
    """Return a function that formats the ratio of a side's time to the time with the plugin on."""

    def cell(record: Record) -> str:
        if side in record["failures"]:
            return FAILED
        result = evaluation(record)
        if result is None or side not in result.seconds:
            return MISSING
        ratio = result.ratio(side).median
        return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"

    return cell


def _off_on(get: Callable[[Record, str], float | None]) -> Callable[[Record], str]:
    def cell(record: Record) -> str:
        values = (get(record, side) for side in ("off", "on"))
        return " / ".join(MISSING if value is None else digits(value) for value in values)

    return cell


def digits(value: float) -> str:
    """Three significant digits, never in exponent notation."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _megabytes(record: Record, side: str) -> float | None:
    peak = record[side].get("peak_memory_bytes")
    return None if peak is None else peak / 1e6


class Marker(NamedTuple):
    """Name of a side in tables and plots, and its marker."""

    label: str
    color: str
    shape: str


MARKERS = {
    "off": Marker("off", "C0", "o"),
    "jax": Marker("JAX", "C1", "s"),
    "jax_on": Marker("JAX with plugin", "C4", "v"),
    "stan": Marker("Stan", "C2", "^"),
    "ceiling": Marker("hand-written kernel", "C3", "D"),
}


Columns = tuple[tuple[str, Callable[[Record], str]], ...]

MODEL: Columns = (("model", lambda record: record["title"]),)

# Each table: title, then header and content of its columns.
TABLES: tuple[tuple[str, Columns], ...] = (
    (
        "One evaluation of logp and gradient; ratios are to the plugin switched on,"
        " above 1 it is the faster",
        (
            *MODEL,
            ("off, µs", microseconds("off")),
            ("on, µs", microseconds("on")),
            ("on, by `sample`, µs", microseconds("direct")),
            *((f"{marker.label} / on", ratio(side)) for side, marker in MARKERS.items()),
        ),
    ),
    (
        "Compilation, memory and a short run of the sampler; plugin off / on",
        (
            *MODEL,
            ("first compile, s", _off_on(lambda r, side: r["first_compile_seconds"][side])),
            ("cached compile, s", _off_on(lambda r, side: r[side].get("compile_seconds"))),
            ("first draw, s", _off_on(lambda r, side: r[side].get("first_draw_seconds"))),
            ("peak memory, MB", _off_on(_megabytes)),
            ("ESS per s", _off_on(lambda r, side: r[side].get("ess_per_second"))),
        ),
    ),
)


def rich_tables(results: dict[str, Any]) -> Group:
    """Return the tables for the terminal."""
    return Group(*(rich_table(title, columns, results["cases"]) for title, columns in TABLES))


def rich_table(title: str, columns: Columns, records: list[Record]) -> Table:
    """Return one table for the terminal, a row for each record."""
    table = Table(title=title, title_justify="left")
    for header, _ in columns:
        table.add_column(header, justify="left" if header == "model" else "right")
    for record in records:
        table.add_row(*(cell(record) for _, cell in columns))
    return table


def markdown_tables(results: dict[str, Any]) -> str:
    """Return the tables for the docs, with date, machine and versions below them."""
    tables = (records_table(title, columns, results["cases"]) for title, columns in TABLES)
    return "\n\n".join([*tables, _caption(results)])


def records_table(title: str, columns: Columns, records: list[Record]) -> str:
    """Return one table for Markdown, a row for each record."""
    header = [name for name, _ in columns]
    rows = [[cell(record) for _, cell in columns] for record in records]
    return f"{title}:\n\n{markdown_table(header, rows)}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """Return a table for Markdown, whose columns but the first ``n_left`` are aligned right."""
    rule = ["---"] * n_left + ["---:"] * (len(header) - n_left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def _caption(results: dict[str, Any]) -> str:
    dash = (
        "A dash stands for what was not measured: no Stan program or kernel, a run of the sampler"
        " that was stopped because it took too long; the JSON has the reasons."
    )
    return "\n".join([f"{measured_on(results)} {dash}", *_variants(results["cases"])])


def measured_on(results: dict[str, Any]) -> str:
    """Return date, machine and versions in a sentence."""
    return f"Measured on {results['date']}: one core of {machine_and_versions(results)}."


def machine_and_versions(results: dict[str, Any]) -> str:
    """Return CPU and versions of a measurement as text."""
    machine, versions = results["machine"], results["versions"]
    packages = ", ".join(
        f"{name} {number}" for name, number in versions.items() if number is not None
    )
    return f"{machine['cpu']} ({machine['vector_bits']}-bit vectors), {machine['os']}; {packages}"


def _variants(records: list[Record]) -> Iterator[str]:
    """List the models for which each variant of a side was fastest and is in the table."""
    found = sorted({(side, note) for record in records for side, note in record["notes"].items()})
    for side, note in found:
        names = [record["name"] for record in records if record["notes"].get(side) == note]
        yield f"{MARKERS[side].label}, {note}: {', '.join(names)}."


def insert_table(text: str, table: str, marker: str = MARKER) -> str:
    """Return a Markdown text with the table between its markers.

    Raises
    ------
    ValueError
        If the two markers are not there, once each and in order.
    """
    begin, end = (f"<!-- {marker}: {edge} -->" for edge in ("begin", "end"))
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise ValueError(f"The text needs the lines '{begin}' and '{end}' once each, in order.")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def write_table(page: Path, table: str, marker: str = MARKER) -> None:
    """Write a table between its markers in a page; raise as :func:`insert_table`."""
    page.write_text(insert_table(page.read_text(), table, marker))


def draw(results: dict[str, Any]) -> Any:
    """Return a figure of the speed-up over each side with the plugin on, one row a model."""
    from matplotlib.figure import Figure

    measured = [
        (record["title"], result)
        for record in results["cases"]
        if (result := evaluation(record)) is not None
    ]
    figure = Figure(figsize=(8, 1.8 + 0.3 * len(measured)), layout="constrained")
    ax = figure.subplots()
    ax.axvspan(1e-9, 1, color="0.94", zorder=0)
    ax.axvline(1, color="black", linewidth=1)
    for side, (label, color, shape) in MARKERS.items():
        rows = [row for row, (_, result) in enumerate(measured) if side in result.seconds]
        ratios = [measured[row][1].ratio(side) for row in rows]
        ax.hlines(rows, [r.lower for r in ratios], [r.upper for r in ratios], color=color)
        ax.plot([r.median for r in ratios], rows, shape, color=color, label=label)
    every = [result.ratio(side).median for _, result in measured for side in result.seconds]
    ax.set_xscale("log")
    ax.set_xlim(min(0.08, *every) / 1.2, max(every) * 1.5)
    ax.set_yticks(range(len(measured)), [title for title, _ in measured])
    ax.set_ylim(len(measured) - 0.5, -0.5)
    ax.set_xlabel("how many times (logp and gradient; lines: quartiles)")
    ax.xaxis.set_major_formatter(lambda ratio, _: times(ratio))
    above = {"transform": ax.get_xaxis_transform(), "y": 1.005, "color": "0.3"}
    ax.text(x=1, s="← slower  ", ha="right", **above)
    ax.text(x=1, s="  faster with the plugin on →", ha="left", **above)
    figure.legend(
        loc="outside upper center", ncols=len(MARKERS), title="compared with", frameon=False
    )
    ax.grid(axis="x", color="0.85", linewidth=0.5)
    return figure


def plot(results: dict[str, Any], path: Path) -> None:
    """Save the picture of :func:`draw`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(results).savefig(path, dpi=150)


def times(ratio: float) -> str:
    """Return a ratio, or its inverse below 1, as the factor of a speed-up or slow-down.

    Examples
    --------
    >>> [times(ratio) for ratio in (1000.0, 1.0, 0.1)]
    ['1 000', '1', '10']
    """
    return f"{max(ratio, 1 / ratio):,.0f}".replace(",", " ")


def publish(results: dict[str, Any]) -> None:
    """Write the tables into the page of the docs and draw the plot."""
    write_table(PAGE, markdown_tables(results))
    plot(results, PLOT)


def main() -> None:
    """Regenerate table and plot from the JSON of an earlier run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=main.__doc__)
    parser.add_argument("json", nargs="?", type=Path, default=RESULTS)
    results = json.loads(parser.parse_args().json.read_text())
    rich.print(rich_tables(results))
    publish(results)


if __name__ == "__main__":
    main()
