"""Deferred registration of our Ops with Numba.

Registration imports Numba, which takes as long as all other imports together. It happens before the first graph with one of our Ops is linked. A mode whose
functions are linked later has the attribute ``is_linked_later``; its linker calls :func:`register_with_numba`.
"""

from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode

from pymc_fastlogp.lazy_import import try_import_attribute

# Functions whose modules register our Ops when they are imported.
DISPATCH = (
    "pymc_fastlogp.kernel.numba.dispatch.funcify",
    "pymc_fastlogp.kernel.numba.held_constants.funcify",
)


def can_be_linked(fgraph: FunctionGraph) -> bool:
    """Return whether our Ops are registered with the linker of a graph, or will be before it is linked."""
    return getattr(get_active_mode(fgraph), "is_linked_later", False) or register_with_numba()


def register_with_numba() -> bool:
    """Register our Ops with Numba by importing the modules that do so; return whether all imports succeed."""
    return all(try_import_attribute(name) is not None for name in DISPATCH)
