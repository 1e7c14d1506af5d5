"""Warn of functions of parameters that read the first rows of a table in place of all.

A placeholder of :func:`~pymc_fastlogp.table` holds the first rows. ``pm.sample``, ``pm.compute_log_likelihood`` and nutpie would take them for the data.
The graph is not changed.

When it applies
---------------
To a compiled function with parameters as inputs that reads a placeholder, once per table.

When it refuses
---------------
- Functions that draw random numbers, such as predictive draws, and functions without parameters.
- Functions that are compiled while ``table.use(rows)`` holds rows that the user chose.
"""

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.random.type import RandomType

from pymc_fastlogp.tables.columns import warn_of_first_rows


class WarnOfFirstRows(GraphRewriter):
    """Warn of first rows, see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Warn of the placeholders that a function of parameters reads."""
        shared = [x for x in fgraph.inputs if isinstance(x, SharedVariable)]
        has_parameters = len(shared) < len(fgraph.inputs)
        if not has_parameters or any(isinstance(x.type, RandomType) for x in fgraph.inputs):
            return
        for x in shared:
            if fgraph.clients[x]:
                warn_of_first_rows(x)
