"""The table of lines of a random program."""

from collections.abc import Callable

from tests.fuzz.drafts import FLOATS, Draft, Line, Shape

# An expression and its shape, or None where nothing fits.
Drawn = tuple[str, Shape] | None
NODES: dict[str, Callable[[Draft], Drawn]] = {}


def node(draw: Callable[[Draft], Drawn]) -> Callable[[Draft], Drawn]:
    """Enter a function that draws a line under its name."""
    NODES[draw.__name__] = draw
    return draw


def is_integer(line: Line) -> bool:
    return line.dtype not in FLOATS and line.dtype != "bool"


def is_bool(line: Line) -> bool:
    return line.dtype == "bool"


def is_number(line: Line) -> bool:
    return line.dtype != "bool"


def without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
