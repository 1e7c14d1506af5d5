"""Partition of a graph into regions, each of which becomes one :class:`~pymc_fastlogp.kernel.graph.op.FusedKernel`.

A set of nodes can be replaced by one node only if the set is convex: no path leaves the set and returns to it. Otherwise the new node would depend on its
own output. Regions are therefore chosen by level. The level of a node without ancestors is 0, and

.. code-block:: text

    level(node) = max over producers p of  level(p) + 1   if node is supported and p is not
                                           level(p)       otherwise

Levels never decrease along a path. A path that leaves the supported nodes of a level reaches supported nodes again only at a higher level. So the
supported nodes of one level form a convex set, connected or not, and the regions of all levels can be replaced together. The number of regions is the
smallest possible: the longest alternation of supported and unsupported nodes along a path needs as many.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter, copy_stack_trace
from pytensor.graph.traversal import io_toposort
from pytensor.scan.op import Scan

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.kernel.defects import report_defect
from pymc_fastlogp.kernel.graph.arguments import (
    KernelInput,
    distinct_tensors,
    share_transposed_constants,
    transpose_for_vectors,
)
from pymc_fastlogp.kernel.graph.boundary import from_kernel_tensor, is_embedded, to_kernel_tensor
from pymc_fastlogp.kernel.graph.linking import can_be_linked
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.graph.scan_inner_graphs import rewrite_scan_inner_graphs
from pymc_fastlogp.kernel.lower import UnsupportedError, is_supported, unsupported_nodes
from pymc_fastlogp.ops import SiteNode

logger = logging.getLogger("pymc_fastlogp")

# Least number of computing nodes for which a kernel is faster than upstream's code.
LEAST_NODES = 2
TOO_SMALL = "a kernel of fewer than two computing nodes gains nothing"


class Attempt(NamedTuple):
    """The outcome of compiling some nodes to a kernel.

    Attributes
    ----------
    nodes : list of Apply
        The nodes in topological order.
    reason : str
        The reason why the nodes cannot become a kernel; empty if they can.
    results : list of (Variable, Variable)
        Pairs of an output of the nodes and the output of the kernel that replaces it.
    """

    nodes: list[Apply]
    reason: str
    results: list[tuple[Variable, Variable]]


class FuseRegions(GraphRewriter):
    """Replace each supported region of a graph by a kernel; see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace each region for which a kernel is faster."""
        if not can_be_linked(fgraph):
            return
        rewrite_scan_inner_graphs(fgraph)
        for nodes in regions(fgraph, is_supported):
            for attempt in attempts(fgraph, nodes):
                outcome = f"stay with PyTensor: {attempt.reason}" if attempt.reason else "-> 1"
                logger.info("fastlogp_fused_kernel: %d nodes %s", len(attempt.nodes), outcome)
                for before, after in attempt.results:
                    copy_stack_trace(before, after)
                # With optimizer_verbose, PyTensor fails on an empty list of replacements.
                if attempt.results:
                    fgraph.replace_all_validate(attempt.results, reason="fastlogp_fused_kernel")


class RenewKernels(GraphRewriter):
    """Replace the Op of each new kernel by an equal Op that no rewriter has visited.

    PyTensor caches visited Ops, and so would keep their inner graphs in memory.
    """

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace the provisional Ops of a graph."""
        for node in fgraph.toposort():
            if isinstance(node.op, FusedKernel) and node.op.is_provisional:
                renewed = node.op.renewed()(*node.inputs, return_list=True)
                copy_stack_trace(node.outputs, renewed)
                pairs = list(zip(node.outputs, renewed, strict=True))
                fgraph.replace_all_validate(pairs, reason="fastlogp_renewed_kernels")


def regions(fgraph: FunctionGraph, is_inside: Callable[[Apply], bool]) -> list[list[Apply]]:
    """Return the supported nodes by level, each level in topological order."""
    level: dict[Apply, int] = {}
    by_level = defaultdict(list)
    inside = set()
    for node in fgraph.toposort():
        is_in = is_inside(node)
        producers = [x.owner for x in node.inputs if x.owner is not None]
        level[node] = max((level[p] + (is_in and p not in inside) for p in producers), default=0)
        if is_in:
            inside.add(node)
            by_level[level[node]].append(node)
    return [by_level[i] for i in sorted(by_level)]


def attempts(fgraph: FunctionGraph, nodes: list[Apply]) -> Iterator[Attempt]:
    """Yield kernels for a region; nodes that cannot be lowered are left out, and the others are grouped again."""
    try:
        yield from _attempts(fgraph, nodes)
    except Exception as error:
        yield Attempt(nodes, report_defect(error, f"a region of {len(nodes)} nodes"), [])


def _attempts(fgraph: FunctionGraph, nodes: list[Apply]) -> Iterator[Attempt]:
    if not is_worthwhile(nodes):
        yield Attempt(nodes, TOO_SMALL, [])
        return
    outputs = outputs_of(fgraph, nodes)
    try:
        yield Attempt(nodes, "", list(zip(outputs, fuse(inputs_of(nodes), outputs), strict=True)))
    except UnsupportedError as error:
        reasons = _unsupported_with_reasons(fgraph, nodes) or dict.fromkeys(nodes, str(error))
        yield from (Attempt([node], reason, []) for node, reason in reasons.items())
        others = set(nodes) - reasons.keys()
        for part in regions(fgraph, others.__contains__):
            yield from attempts(fgraph, part)


def _unsupported_with_reasons(fgraph: FunctionGraph, nodes: list[Apply]) -> dict[Apply, str]:
    """Return the nodes of a region that cannot be lowered, each with the reason.

    Some nodes are unsupported only because of other nodes of the region, for example if a length is computed there.
    So descendants of unsupported nodes, which will be in later regions, are lowered in a separate graph.
    """
    reasons: dict[Apply, str] = {}
    while nodes:
        found, nodes = _unsupported(inputs_of(nodes), outputs_of(fgraph, nodes))
        reasons |= found
    return reasons


def _unsupported(
    inputs: list[Variable], outputs: list[Variable]
) -> tuple[dict[Apply, str], list[Apply]]:
    """Return the first nodes of a graph that cannot be lowered, with reasons, and the descendants of these nodes.

    The inner graph of a kernel cannot be used: its nodes are copies, and equal nodes are merged.
    """
    copies = FrozenFunctionGraph.from_io(inputs, outputs)
    reasons, descendants = unsupported_nodes(copies, facts_of(inputs))
    originals = dict(zip(copies.toposort(), io_toposort(inputs, outputs), strict=True))
    return (
        {originals[copy]: reason for copy, reason in reasons.items()},
        [originals[copy] for copy in descendants],
    )


def is_worthwhile(nodes: list[Apply]) -> bool:
    """Return whether a kernel is faster than upstream's own code.

    A kernel needs two nodes to fuse, or a node with an inner graph. Views do not count: upstream makes views without a loop.
    """
    return sum(map(_computing_nodes, nodes)) >= LEAST_NODES


def _computing_nodes(node: Apply) -> int:
    """Return the number of computing nodes that a node counts as."""
    if isinstance(node.op, Scan | SiteNode):
        return LEAST_NODES
    return not node.op.view_map


def inputs_of(nodes: list[Apply]) -> list[Variable]:
    """Return the variables that the nodes read and do not compute, without embedded constants."""
    made = {x for node in nodes for x in node.outputs}
    read = dict.fromkeys(x for node in nodes for x in node.inputs if x not in made)
    return [x for x in read if not is_embedded(x)]


def outputs_of(fgraph: FunctionGraph, nodes: list[Apply]) -> list[Variable]:
    """Return the results that other nodes read or that are outputs of the graph.

    Views of inputs are left out: making them outside of the kernel is free.
    """
    inside = set(nodes)
    views_of_inputs: set[Variable] = set()
    needed = []
    for node in nodes:
        if _is_view(node) and not _is_computed(node.inputs[0], inside, views_of_inputs):
            views_of_inputs.update(node.outputs)
            continue
        needed += [x for x in node.outputs if any(c not in inside for c, _ in fgraph.clients[x])]
    return needed


def _is_view(node: Apply) -> bool:
    """Return whether a node returns a view of its first input. A Scan has a view map only for the case of no steps."""
    return bool(node.op.view_map) and not isinstance(node.op, Scan)


def _is_computed(x: Variable, inside: set[Apply], views_of_inputs: set[Variable]) -> bool:
    return x.owner in inside and x not in views_of_inputs


def fuse(inputs: list[Variable], outputs: list[Variable]) -> list[Variable]:
    """Return outputs of the same types that one kernel computes.

    The inputs are tensors or scalars, including constants that are too large to embed.

    Raises
    ------
    UnsupportedError
        If the loop IR cannot express the graph.
    """
    views = share_transposed_constants(inputs, outputs)
    op = _kernel(inputs, views, outputs)
    transposed = transpose_for_vectors(views, op.build_program())
    if transposed != views:
        views = transposed
        op = _kernel(inputs, views, outputs)
    results = op(*distinct_tensors(views), return_list=True)
    return [from_kernel_tensor(result, x.type) for result, x in zip(results, outputs, strict=True)]


def facts_of(inputs: Sequence[Variable]) -> tuple[IndexFacts | None, ...]:
    """Return facts about the elements of integer constants, and None for other inputs."""
    return tuple(index_facts(x.data) if isinstance(x, Constant) else None for x in inputs)


def _kernel(
    inputs: list[Variable], views: list[KernelInput], outputs: list[Variable]
) -> FusedKernel:
    """Return the Op that computes outputs from the tensors of its inputs, after its program was built."""
    facts = facts_of(distinct_tensors(views))
    op = FusedKernel(_inner_graph(inputs, views, outputs), facts, is_provisional=True)
    op.build_program()  # raises UnsupportedError
    return op


def _inner_graph(
    inputs: list[Variable], views: list[KernelInput], outputs: list[Variable]
) -> FrozenFunctionGraph:
    """Return the graph from the distinct tensors of the kernel inputs to the outputs as tensors."""
    frozen = FrozenFunctionGraph.from_io(inputs, outputs)
    fresh = {x: x.type() for x in distinct_tensors(views)}
    tensors = [view.restore_axes(fresh[view.tensor]) for view in views]
    bound = frozen.bind(
        [from_kernel_tensor(x, old.type) for x, old in zip(tensors, inputs, strict=True)]
    )
    return FrozenFunctionGraph.from_io(
        list(fresh.values()), [to_kernel_tensor(x) for x in bound], dedup_nodes=True
    )
