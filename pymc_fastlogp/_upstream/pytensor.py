"""Private PyTensor APIs: the entries of a rewrite database, and the Numba linker without an import of Numba."""

from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabase
from pytensor.link.numba.linker import NumbaLinker


def forget_empty_entry(database: RewriteDatabase, name: str) -> None:
    """Delete the empty entry of a name, which a query that excludes the name leaves and which prevents registration."""
    if not database.__db__[name]:
        del database.__db__[name]


def is_for_numba(mode: Mode) -> bool:
    """Return whether a mode compiles by Numba."""
    return isinstance(mode.linker, NumbaLinker)
