"""The table of scalar Ops in the documentation: ``python -m tests.kernel.scalar_docs`` writes it."""

from pathlib import Path

from pymc_fastlogp.kernel.scalars import ROWS
from pymc_fastlogp.kernel.vecmath.vector import Floats, Integers, Mask

PAGE = Path(__file__).parents[2] / "docs" / "vecmath.md"
BEGIN, END = "<!-- scalar ops -->\n", "<!-- end of scalar ops -->"
FORMS = {Floats: "floats", Integers: "integers", Mask: "bools"}


def as_markdown() -> str:
    """Return the table."""
    lines = ["| Op | computed by | in |", "|---|---|---|"]
    for row in ROWS.values():
        forms = ", ".join(name for form, name in FORMS.items() if form in row.emitters)
        lines.append(f"| {row.op.__name__} | {row.computed_by} | {forms} |")
    return "\n".join(lines) + "\n"


def table_of(page: str) -> str:
    """Return the table of a page."""
    return page.split(BEGIN)[1].split(END)[0]


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + BEGIN + as_markdown() + END + after)


if __name__ == "__main__":
    main()
