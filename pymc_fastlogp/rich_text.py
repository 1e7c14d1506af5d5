"""Results that Python prints as the table that rich draws."""

from io import StringIO
from typing import ClassVar

from rich.console import Console


class Shown:
    """What has ``__rich__``, for a terminal or a notebook without HTML.

    A dataclass that inherits this needs ``repr=False``.
    """

    WIDTH: ClassVar[int] = 140

    def __str__(self) -> str:
        console = Console(file=StringIO(), width=self.WIDTH)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()

    def __repr__(self) -> str:
        return str(self)
