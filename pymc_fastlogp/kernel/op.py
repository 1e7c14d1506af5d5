"""``FusedKernel``: one node for a region of a graph, which a backend may compile to one function.

It is an ``OpFromGraph``: its inner graph says what it computes, and ``perform``, gradients, shapes,
inlining and every backend but Numba's come from there. Numba compiles it to vector code, see
:mod:`pymc_fastlogp.kernel.numba_dispatch`.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pytensor.compile.builders import FinalizedOpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.compile.rewriting import rewrite_ofg_inner_graph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
)
from pytensor.printing import op_debug_information

from pymc_fastlogp.kernel.defects import report_defect
from pymc_fastlogp.kernel.facts import IndexFacts
from pymc_fastlogp.kernel.loops import Program
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.kernel.numba_dispatch import funcify
from pymc_fastlogp.kernel.text import as_text


class FusedKernel(FinalizedOpFromGraph):
    """The outputs of an inner graph, computed together.

    No output is a view of an input, and no input is written to.

    Parameters
    ----------
    fgraph : FrozenFunctionGraph
        The inner graph, of tensors only. Nothing in it works in place.
    facts : tuple of IndexFacts or None
        For each input, what holds for all its elements; None where nothing is known. Whoever
        makes the node answers for it: the compiled code does not check.

    Raises
    ------
    ValueError
        If there are not as many facts as inputs.
    """

    __props__ = ("fgraph", "facts")

    def __init__(self, fgraph: FrozenFunctionGraph, facts: tuple[IndexFacts | None, ...]):
        if len(facts) != len(fgraph.inputs):
            raise ValueError(f"{len(facts)} facts for {len(fgraph.inputs)} inputs; give one each")
        super().__init__(list(fgraph.inputs), list(fgraph.outputs), fgraph=fgraph)
        self.facts = facts

    @cached_property
    def program(self) -> Program:
        """The loops that compute the inner graph."""
        return lower(self.fgraph, self.facts)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what the Op is made of; the rest is made again when it is asked for."""
        return {"fgraph": self.fgraph, "facts": self.facts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle."""
        self.__init__(**state)  # type: ignore[misc]

    def __str__(self) -> str:
        return f"FusedKernel{{{len(self.fgraph.apply_nodes)} nodes}}"


@register_funcify_and_cache_key(FusedKernel)
def _funcify(op: FusedKernel, node: Apply, **kwargs: Any) -> tuple[Callable, str | None]:
    """Compile to vector code; where that fails unexpectedly, as upstream would."""
    try:
        return funcify(op.program)
    except Exception as error:
        report_defect(error, str(op))
    kwargs.pop("storage_map", None)
    graph = _without_kernels(op, node)
    return numba_funcify_and_cache_key(
        graph, squeeze_output=True, fgraph_name="numba_ofg", **kwargs
    )


def _without_kernels(op: FusedKernel, node: Apply) -> FunctionGraph:
    """Return the inner graph as upstream compiles that of an ``OpFromGraph``."""
    mode = get_mode("NUMBA").excluding("fastlogp")
    graph = op.fgraph.unfreeze()
    rewrite_ofg_inner_graph(mode.linker, op, node, graph, mode=mode)
    return graph


@op_debug_information.register(FusedKernel)
def _loops_in_words(op: FusedKernel, node: Apply) -> dict[Apply, dict[Variable, str]]:
    """Show the loops beside the node."""
    text = as_text(op.program)
    return {node: {node.outputs[0]: text}}
