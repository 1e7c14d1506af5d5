"""Partition of a graph into regions, each of which becomes one :class:`~pymc_fastlogp.kernel.graph.op.FusedKernel`.

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
    Argument,
    along_vectors,
    passed_once,
    sharing_transposes,
)
from pymc_fastlogp.kernel.graph.boundary import is_embedded, passed, restored
from pymc_fastlogp.kernel.graph.linking import can_be_linked
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.graph.scan_inner_graphs import specialise_scans
from pymc_fastlogp.kernel.lower import UnsupportedError, faults_of, is_supported
from pymc_fastlogp.ops import SiteNode

logger = logging.getLogger("pymc_fastlogp")

# Fewer computing nodes than this gain nothing from being compiled together.
LEAST_NODES = 2
TOO_SMALL = "a kernel for less than two nodes that compute gains nothing"


class Attempt(NamedTuple):
    """Nodes that are to become a kernel, in topological order.

    Attributes
    ----------
    reason : str
        Why they do not; empty if they do.
    results : list of (Variable, Variable)
        Their outputs, and the same computed by the kernel.
    """

    nodes: list[Apply]
    reason: str
    results: list[tuple[Variable, Variable]]


class FuseRegions(GraphRewriter):
    """Replace the regions of a graph that a kernel covers, see the module's docstring."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace each region that is worth it."""
        if not can_be_linked(fgraph):
            return
        specialise_scans(fgraph)
        for nodes in regions(fgraph, is_supported):
            for attempt in attempts(fgraph, nodes):
                outcome = f"stay with PyTensor: {attempt.reason}" if attempt.reason else "-> 1"
                logger.info("fastlogp_fused_kernel: %d nodes %s", len(attempt.nodes), outcome)
                for before, after in attempt.results:
                    copy_stack_trace(before, after)
                # PyTensor cannot replace nothing where it tells what it replaces.
                if attempt.results:
                    fgraph.replace_all_validate(attempt.results, reason="fastlogp_fused_kernel")


class RenewKernels(GraphRewriter):
    """Replace the Op of each new kernel by an equal one that no rewriter has seen, so that no cache of PyTensor keeps its inner graph."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Replace the Ops."""
        for node in fgraph.toposort():
            if isinstance(node.op, FusedKernel) and node.op.is_provisional:
                renewed = node.op.renewed()(*node.inputs, return_list=True)
                copy_stack_trace(node.outputs, renewed)
                pairs = list(zip(node.outputs, renewed, strict=True))
                fgraph.replace_all_validate(pairs, reason="fastlogp_renewed_kernels")


def regions(fgraph: FunctionGraph, is_inside: Callable[[Apply], bool]) -> list[list[Apply]]:
    """Return the nodes that may be inside a kernel level by level, each level in topological order."""
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
    """Make a kernel of a region, or of what is left of it without the nodes that cannot be lowered."""
    try:
        yield from _attempts(fgraph, nodes)
    except Exception as error:
        yield Attempt(nodes, report_defect(error, f"a region of {len(nodes)} nodes"), [])


def _attempts(fgraph: FunctionGraph, nodes: list[Apply]) -> Iterator[Attempt]:
    if not is_worth_it(nodes):
        yield Attempt(nodes, TOO_SMALL, [])
        return
    outputs = outputs_of(fgraph, nodes)
    try:
        yield Attempt(nodes, "", list(zip(outputs, fuse(inputs_of(nodes), outputs), strict=True)))
    except UnsupportedError as error:
        reasons = _left_out(fgraph, nodes) or dict.fromkeys(nodes, str(error))
        yield from (Attempt([node], reason, []) for node, reason in reasons.items())
        others = set(nodes) - reasons.keys()
        for part in regions(fgraph, others.__contains__):
            yield from attempts(fgraph, part)


def _left_out(fgraph: FunctionGraph, nodes: list[Apply]) -> dict[Apply, str]:
    """Return the nodes without which the others can be lowered, and why not with them.

    A node may be one of them only because of what else is in its region, say a length that is computed there. So what is
    behind such nodes, which will be in later regions, is lowered by itself: each node once, but for the first attempt.
    """
    reasons: dict[Apply, str] = {}
    while nodes:
        found, nodes = _faults(inputs_of(nodes), outputs_of(fgraph, nodes))
        reasons |= found
    return reasons


def _faults(
    inputs: list[Variable], outputs: list[Variable]
) -> tuple[dict[Apply, str], list[Apply]]:
    """Return the first nodes of a graph that cannot be lowered, and why, and those behind them.

    The inner graph of a kernel does not tell: its nodes are copies, and equal ones are one.
    """
    copies = FrozenFunctionGraph.from_io(inputs, outputs)
    faults, behind = faults_of(copies, facts_of(inputs))
    originals = dict(zip(copies.toposort(), io_toposort(inputs, outputs), strict=True))
    reasons = {originals[copy]: reason for copy, reason in faults.items()}
    return reasons, [originals[copy] for copy in behind]


def is_worth_it(nodes: list[Apply]) -> bool:
    """Return whether a kernel is better than upstream's own code.

    It is where there are two nodes to fuse, or the steps of a Scan. Views do not count: upstream makes them without a loop.
    """
    return sum(map(_count, nodes)) >= LEAST_NODES


def _count(node: Apply) -> int:
    """Return how many nodes that compute a node stands for."""
    if isinstance(node.op, Scan | SiteNode):
        return LEAST_NODES
    return not node.op.view_map


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
        if _is_view(node) and not _is_computed(node.inputs[0], inside, views_of_inputs):
            views_of_inputs.update(node.outputs)
            continue
        needed += [x for x in node.outputs if any(c not in inside for c, _ in fgraph.clients[x])]
    return needed


def _is_view(node: Apply) -> bool:
    """Return whether a node gives a view of its first input; a Scan may do so if there is no step."""
    return bool(node.op.view_map) and not isinstance(node.op, Scan)


def _is_computed(x: Variable, inside: set[Apply], views_of_inputs: set[Variable]) -> bool:
    return x.owner in inside and x not in views_of_inputs


def fuse(inputs: list[Variable], outputs: list[Variable]) -> list[Variable]:
    """Return the same outputs, of the same types, computed by one node.

    The inputs are tensors or scalars, also the constants that are not to be part of the code.

    Raises
    ------
    UnsupportedError
        If the loop IR cannot express the graph.
    """
    arguments = sharing_transposes([Argument(passed(x)) for x in inputs])
    op = _kernel(inputs, arguments, outputs)
    turned = along_vectors(arguments, op.program)
    if turned != arguments:
        arguments = turned
        op = _kernel(inputs, arguments, outputs)
    results = op(*passed_once(arguments), return_list=True)
    return [restored(result, x.type) for result, x in zip(results, outputs, strict=True)]


def facts_of(inputs: Sequence[Variable]) -> tuple[IndexFacts | None, ...]:
    """Return what is known of the elements of those inputs that are constants."""
    return tuple(index_facts(x.data) if isinstance(x, Constant) else None for x in inputs)


def _kernel(
    inputs: list[Variable], arguments: list[Argument], outputs: list[Variable]
) -> FusedKernel:
    """Return the Op that computes outputs from its arguments, with its program."""
    facts = facts_of(passed_once(arguments))
    op = FusedKernel(_inner_graph(inputs, arguments, outputs), facts, is_provisional=True)
    op.program  # noqa: B018, raises UnsupportedError
    return op


def _inner_graph(
    inputs: list[Variable], arguments: list[Argument], outputs: list[Variable]
) -> FrozenFunctionGraph:
    """Return the graph of tensors from the arguments of a kernel to the outputs."""
    frozen = FrozenFunctionGraph.from_io(inputs, outputs)
    fresh = {x: x.type() for x in passed_once(arguments)}
    tensors = [argument.with_axes_back(fresh[argument.variable]) for argument in arguments]
    bound = frozen.bind([restored(x, old.type) for x, old in zip(tensors, inputs, strict=True)])
    return FrozenFunctionGraph.from_io(
        list(fresh.values()), [passed(x) for x in bound], dedup_nodes=True
    )
