"""Atomic writes: files and folders that appear when they are complete."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` for a block: it is renamed at the end, and removed if the block raises.

    Raises
    ------
    OSError
        If the path can't be renamed.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    _remove(unfinished)
    try:
        yield unfinished
        with writing(path):
            unfinished.replace(path)
    finally:
        _remove(unfinished)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the path in errors of writing."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path} could not be written: {error}; free some space, or give another path."
        ) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
