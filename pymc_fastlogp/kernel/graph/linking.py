"""Deferred registration of our nodes with Numba, before a graph that contains one is linked.

To tell it is to import Numba, which takes as long as to import all else. A mode whose functions are linked later, if ever, says so by an attribute ``is_linked_later``; who
links them then calls :func:`tell_numba`, and so does a kernel that is unpickled.
"""

from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode

from pymc_fastlogp.lazy_import import imported_late

# Their modules tell Numba.
DISPATCH = (
    "pymc_fastlogp.kernel.numba.dispatch.funcify",
    "pymc_fastlogp.kernel.numba.held_constants.funcify",
)


def can_be_linked(fgraph: FunctionGraph) -> bool:
    """Return whether what links a graph knows, or is yet to be told of, the nodes of this package."""
    return getattr(get_active_mode(fgraph), "is_linked_later", False) or tell_numba()


def tell_numba() -> bool:
    """Tell Numba of the nodes of this package, and return whether that was possible."""
    return all(imported_late(name) is not None for name in DISPATCH)
