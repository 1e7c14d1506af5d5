"""Results that say the same in a terminal and in a notebook: sentences, a table, and notes below it."""

from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import ClassVar

import pandas as pd
import rich.box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text


class Shown:
    """Base class of results that print as sentences and a table.

    A dataclass that inherits this needs ``repr=False``.

    Attributes
    ----------
    WIDTH : int
        Of what ``str`` returns, in characters.
    WHOLE : tuple of str
        Columns whose words are not broken in a terminal.
    """

    WIDTH: ClassVar[int] = 140
    WHOLE: ClassVar[tuple[str, ...]] = ()

    def sentences(self) -> Sequence[str]:
        """Return the result in words, which stand first."""
        raise NotImplementedError

    def table(self) -> pd.DataFrame:
        """Return the table as text."""
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
        return Group(*map(Text, self.sentences()), table, *map(Text, self.notes()))

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            table = self.table().replace("\n", " ", regex=True).to_html(index=False)
        above, below = (
            "".join(f"<p>{escape(line)}</p>" for line in lines)
            for lines in (self.sentences(), self.notes())
        )
        return f"{above}{table}{below}"

    def __str__(self) -> str:
        console = Console(file=StringIO(), width=self.WIDTH)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()

    def __repr__(self) -> str:
        return str(self)
