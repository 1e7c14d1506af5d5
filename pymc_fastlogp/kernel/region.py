"""Which nodes of a graph become one :class:`~pymc_fastlogp.kernel.op.FusedKernel`.

A set of nodes may be replaced by one node only if it is convex: no path leaves it and comes back, else
the new node would need its own result. Levels give the largest such sets. Let the level of a node
without ancestors be 0, and

.. code-block:: text

    level(node) = max over producers p of  level(p) + 1   if node is supported and p is not
                                           level(p)       otherwise

Levels never fall along a path, and a path that leaves the supported nodes of a level returns to
supported nodes only one level up, at least. So the supported nodes of one level are convex, whether they are
connected or not, and the regions of all levels can be replaced together. There are no fewer regions
than the longest alternation of supported and other nodes asks for.
"""

import logging
from collections import defaultdict

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.kernel.boundary import is_embedded, passed, restored
from pymc_fastlogp.kernel.facts import index_facts
from pymc_fastlogp.kernel.lower import UnsupportedError, is_supported
from pymc_fastlogp.kernel.op import FusedKernel

logger = logging.getLogger("pymc_fastlogp")

# Fewer computing nodes than this gain nothing from being compiled together.
LEAST_NODES = 2


class FuseRegions(GraphRewriter):
    """Replace the regions of a graph that a kernel covers, see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace each region that is worth it."""
        for nodes in regions(fgraph):
            if is_worth_it(nodes):
                _replace(fgraph, nodes)


def regions(fgraph: FunctionGraph) -> list[list[Apply]]:
    """Return the supported nodes level by level, each level in topological order."""
    level: dict[Apply, int] = {}
    by_level = defaultdict(list)
    inside = set()
    for node in fgraph.toposort():
        is_inside = is_supported(node)
        producers = [x.owner for x in node.inputs if x.owner is not None]
        level[node] = max(
            (level[p] + (is_inside and p not in inside) for p in producers), default=0
        )
        if is_inside:
            inside.add(node)
            by_level[level[node]].append(node)
    return [by_level[i] for i in sorted(by_level)]


def is_worth_it(nodes: list[Apply]) -> bool:
    """Whether a kernel is better than upstream's own code.

    It is where there are two nodes to fuse. Views do not count: upstream makes them without a loop.
    """
    return sum(not node.op.view_map for node in nodes) >= LEAST_NODES


def inputs_of(nodes: list[Apply]) -> list[Variable]:
    """Return what the nodes read and do not compute, without the constants that code embeds."""
    made = {x for node in nodes for x in node.outputs}
    read = dict.fromkeys(x for node in nodes for x in node.inputs if x not in made)
    return [x for x in read if not is_embedded(x)]


def outputs_of(fgraph: FunctionGraph, nodes: list[Apply]) -> list[Variable]:
    """Return what other nodes, or the graph's user, need of the nodes' results.

    A view of an input is left out: it costs nothing to make it outside too.
    """
    inside = set(nodes)
    views_of_inputs: set[Variable] = set()
    needed = []
    for node in nodes:
        if node.op.view_map and not _is_computed(node.inputs[0], inside, views_of_inputs):
            views_of_inputs.update(node.outputs)
            continue
        needed += [x for x in node.outputs if any(c not in inside for c, _ in fgraph.clients[x])]
    return needed


def _is_computed(x: Variable, inside: set[Apply], views_of_inputs: set[Variable]) -> bool:
    return x.owner in inside and x not in views_of_inputs


def _replace(fgraph: FunctionGraph, nodes: list[Apply]) -> None:
    old = outputs_of(fgraph, nodes)
    try:
        new = fuse(inputs_of(nodes), old)
    except UnsupportedError as reason:
        logger.info("%d nodes stay with PyTensor: %s", len(nodes), reason)
        return
    pairs = list(zip(old, new, strict=True))
    for before, after in pairs:
        copy_stack_trace(before, after)
    fgraph.replace_all_validate(pairs, reason="fastlogp_fused_kernel")


def fuse(inputs: list[Variable], outputs: list[Variable]) -> list[Variable]:
    """Return the same outputs, computed by one node.

    Parameters
    ----------
    inputs : list of Variable
        Tensors or scalars; also the constants that are not to be part of the code.
    outputs : list of Variable
        What depends on nothing but the inputs and constants.

    Returns
    -------
    list of Variable
        One for each output, of the same type.

    Raises
    ------
    UnsupportedError
        If the loop IR cannot express the graph.
    """
    arguments = [passed(x) for x in inputs]
    facts = tuple(index_facts(x.data) if isinstance(x, Constant) else None for x in arguments)
    op = FusedKernel(_inner_graph(inputs, arguments, outputs), facts)
    op.program  # noqa: B018, raises UnsupportedError
    results = op(*arguments, return_list=True)
    return [restored(result, x.type) for result, x in zip(results, outputs, strict=True)]


def _inner_graph(
    inputs: list[Variable], arguments: list[TensorVariable], outputs: list[Variable]
) -> FrozenFunctionGraph:
    """Return the graph of tensors from the arguments of a kernel to the outputs."""
    frozen = FrozenFunctionGraph.from_io(inputs, outputs)
    fresh = [x.type() for x in arguments]
    bound = frozen.bind([restored(x, old.type) for x, old in zip(fresh, inputs, strict=True)])
    return FrozenFunctionGraph.from_io(fresh, [passed(x) for x in bound], dedup_nodes=True)
