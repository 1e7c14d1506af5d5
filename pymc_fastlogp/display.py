"""Base class of results that read the same in a terminal and in a notebook: sentences, a table, and notes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from shutil import get_terminal_size
from typing import ClassVar

import pandas as pd
import rich.box
from rich.console import Console, Group
from rich.markup import escape as escape_markup
from rich.table import Table
from rich.text import Text

TABLE_STYLE = "margin: 0 0 1em 0; border-collapse: collapse; font-size: 0.85em"


@contextmanager
def progress_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line of progress in a terminal for a block, and yield a function that replaces its text.

    A notebook shows no line: it would keep an empty output.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(escape_markup(text)) as status:
        yield lambda text: status.update(escape_markup(text))


class Shown:
    """Base class of results that print as sentences, a table and notes.

    A dataclass that inherits this class needs ``repr=False``.

    Attributes
    ----------
    WIDTH : int
        Width in characters if the output is not a terminal.
    WHOLE : tuple of str
        Columns whose lines are never wrapped.
    """

    WIDTH: ClassVar[int] = 100
    WHOLE: ClassVar[tuple[str, ...]] = ()

    def sentences(self) -> Sequence[str]:
        """Return the sentences above the table."""
        raise NotImplementedError

    def table(self) -> pd.DataFrame:
        """Return the table as text; a table without rows is not shown."""
        raise NotImplementedError

    def notes(self) -> Sequence[str]:
        """Return the lines below the table."""
        return ()

    def __rich__(self) -> Group:
        frame = self.table()
        table = Table(box=rich.box.SIMPLE)
        for column in frame:
            table.add_column(str(column), overflow="fold", no_wrap=column in self.WHOLE)
        for row in frame.itertuples(index=False):
            table.add_row(*map(Text, row))
        tables = [] if frame.empty else [table]
        return Group(*map(Text, self.sentences()), *tables, *map(Text, self.notes()))

    def _repr_html_(self) -> str:
        above, below = (
            "".join(f"<p>{escape(line)}</p>" for line in lines)
            for lines in (self.sentences(), self.notes())
        )
        return f"{above}{self._html_table()}{below}"

    def _html_table(self) -> str:
        """Return the table with left-aligned text: notebooks align cells to the right, and some pages have cells without padding."""
        frame = self.table()
        if frame.empty:
            return ""
        columns = [str(column) for column in frame]
        rows = [("th", columns), *(("td", [*row]) for row in frame.itertuples(index=False))]
        lines = (
            "".join(
                f'<{tag} style="{self._style(column)}">{escape(text, quote=False)}</{tag}>'
                for column, text in zip(columns, row, strict=True)
            )
            for tag, row in rows
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        # A table that is wider than the page scrolls.
        return f'<div style="overflow-x: auto"><table style="{TABLE_STYLE}">{body}</table></div>'

    def _style(self, column: str) -> str:
        """Return the CSS of a column."""
        wrapping = "; white-space: pre" if column in self.WHOLE else ""
        return f"text-align: left; vertical-align: top; padding: 0.3em 1.2em 0.3em 0{wrapping}"

    def __str__(self) -> str:
        width = get_terminal_size((self.WIDTH, 24)).columns
        # In a notebook rich would display an empty output.
        console = Console(file=StringIO(), width=width, force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()

    def __repr__(self) -> str:
        return str(self)
