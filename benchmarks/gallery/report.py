"""From the JSON of the gallery to its page in the docs: ``python -m benchmarks.gallery.report`` writes it again."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.gallery.registry import MODELS
from benchmarks.report import (
    Columns,
    evaluation,
    measured_on,
    microseconds,
    ratio,
    records_table,
    rich_table,
    write_table,
)
from benchmarks.runner import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "gallery.json"
PAGE = ROOT / "docs" / "gallery.md"

# A model that gains less is one to look into; below the second limit it is slower.
LITTLE, SLOWER = 3.0, 0.97

Record = dict[str, Any]

TIMES: Columns = (
    ("parameters", lambda record: str(evaluation(record).n_dim) if is_measured(record) else ""),
    ("numbers observed", lambda record: str(record.get("rows", ""))),
    ("off, µs", microseconds("off")),
    ("on, µs", microseconds("on")),
    ("JAX, µs", microseconds("jax")),
    ("off / on", ratio("off")),
    ("JAX / on", ratio("jax")),
)


def is_measured(record: Record) -> bool:
    """Return whether a model was timed with the plugin off and on."""
    return record.get("evaluation") is not None


def summary(results: dict[str, Any]) -> list[str]:
    """Return the geometric means, and which models gain little."""
    measured = {name: evaluation(r) for name, r in results["models"].items() if is_measured(r)}
    sentences = []
    for side, label in (("off", "off"), ("jax", "JAX")):
        ratios = {n: x.ratio(side).median for n, x in measured.items() if side in x.seconds}
        values = np.array(list(ratios.values()))
        if not len(values):
            continue
        mean = np.exp(np.log(values).mean())
        sentences.append(
            f"Geometric mean of {label} / on over {len(values)} models: {mean:.1f};"
            f" median {np.median(values):.1f}, {(values >= LITTLE).sum()} of at least {LITTLE:g},"
            f" {(values < SLOWER).sum()} below {SLOWER}."
        )
    return sentences


def rich_summary(results: dict[str, Any], names: list[str]) -> Table:
    """Return the table of some models for the terminal."""
    model: Columns = (("model", lambda record: record["name"]),)
    records = list(_records(results, names))
    return rich_table("\n".join(summary(results)), (*model, *TIMES), records)


def _records(results: dict[str, Any], names: list[str]) -> Iterator[Record]:
    for name in names:
        yield {"evaluation": None, **results["models"][name], "name": name}


def in_cell(text: str) -> str:
    """Return text that does not end a cell of a table in Markdown, as ``(1|item)`` does."""
    return text.replace("|", "\\|")


def page_table(results: dict[str, Any]) -> str:
    """Return what stands between the markers of the page."""
    model: Columns = (("model", lambda r: f"`{r['name']}`: {in_cell(MODELS[r['name']].source)}"),)
    parts = ["\n".join(summary(results))]
    for topic in dict.fromkeys(entry.topic for entry in MODELS.values()):
        names = [name for name, entry in MODELS.items() if entry.topic == topic]
        title = f"`{topic}.py`, one evaluation of logp and gradient"
        parts.append(records_table(title, (*model, *TIMES), list(_records(results, names))))
    return "\n\n".join([*parts, measured_on(results)])


def publish(results: dict[str, Any]) -> None:
    """Write the table into the page."""
    write_table(PAGE, page_table(results))


if __name__ == "__main__":
    publish(json.loads(RESULTS.read_text()))
