"""Line of progress while an engine reads a table: the engine's own share of the query if known, and seconds."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_is_shown: ContextVar[bool] = ContextVar("is_shown", default=False)
_line: ContextVar["_ReadingLine | None"] = ContextVar("line", default=None)


@contextmanager
def progress_shown(is_shown: bool) -> Iterator[None]:
    """Show, or don't show, the progress of reading tables inside of a block."""
    token = _is_shown.set(is_shown)
    try:
        yield
    finally:
        _is_shown.reset(token)


@contextmanager
def reading(text: str, percent: Callable[[], float]) -> Iterator[None]:
    """Show a line while a block reads a table, if progress is shown.

    Parameters
    ----------
    text : str
        Text of the line.
    percent : callable
        Function that returns the progress of the query in percent, negative if unknown. It is called by another thread.
    """
    if not _is_shown.get():
        yield
        return
    with _ReadingLine(text, percent) as line:
        token = _line.set(line)
        try:
            yield
        finally:
            _line.reset(token)


def report(n_rows: int, n_cells: int) -> None:
    """Show how many rows were read in batches, and their cells."""
    line = _line.get()
    if line is not None:
        line.show(f"{n_rows} rows, {n_cells} cells")


class _ReadingLine(Progress):
    """Line that asks for the progress of the query each time it is drawn, and vanishes at the end."""

    def __init__(self, text: str, percent: Callable[[], float]):
        self._percent = percent
        console = Console()
        # In Jupyter rich needs ipywidgets to redraw.
        is_jupyter = console.is_jupyter and find_spec("ipywidgets") is not None
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn()
        super().__init__(
            *columns,
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not (console.is_terminal or is_jupyter),
        )
        self._text = text
        self._task = self.add_task(text, total=None)

    def show(self, text: str) -> None:
        """Show a text behind that of the line."""
        self.update(self._task, description=f"{self._text}: {text}")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the line with the current progress."""
        percent = self._percent()
        if percent >= 0:
            for task in self._tasks.values():
                task.total, task.completed = 100, percent
        return super().get_renderables()
