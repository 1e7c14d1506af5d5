"""Nodes of logp and gradient inside and outside kernels, with the reasons."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from textwrap import shorten

import pytensor.tensor as pt
from pytensor.compile.mode import Mode, get_mode
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, apply_ancestors, io_toposort
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.config import switched
from pymc_fastlogp.explanation.result import Kernels, Outside
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.graph.region import attempts, regions
from pymc_fastlogp.kernel.ir.loops import ParallelLoop
from pymc_fastlogp.kernel.ir.traversal import sequential_loops
from pymc_fastlogp.kernel.lower import is_supported
from pymc_fastlogp.kernel.lower.table import lowering_of
from pymc_fastlogp.registration import is_excluded
from pymc_fastlogp.rules import GRAPH_RULES

LOGP_DLOGP, LOGP = "logp and gradient", "logp"

NO_RULE = "the kernel has no rule for this Op"
NOT_THIS_FORM = "the kernel's rule for this Op does not cover its dtype, shape or parameters"
EXCLUDED = "excluded by the flag optimizer_excluding"

# Largest number of terms with the same operations of which each is rewritten.
MOST_ALIKE = 20

[KERNEL_RULE] = (rule for rule in GRAPH_RULES if rule.name == "fastlogp_fused_kernel")


def kernels_of(terms: Sequence[TensorVariable], value_vars: Sequence[TensorVariable]) -> Kernels:
    """Return the kernels of a log density and its gradient, without compiling them.

    If more than :data:`MOST_ALIKE` terms have the same operations, one of these terms represents all.

    Parameters
    ----------
    terms : sequence of TensorVariable
        Terms whose sum is the log density, before the gradient is taken.
    value_vars : sequence of TensorVariable
        Variables that the gradient is with respect to.
    """
    kept = _representatives(terms)
    reached = {*ancestors(kept)}
    logp = pt.add(*kept)
    dlogp = gradient(logp, [x for x in value_vars if x in reached])
    n_like_others = len(terms) - len(kept)
    graph = LOGP_DLOGP if dlogp else LOGP
    fgraph = before_kernels([logp, *dlogp])
    if is_excluded(KERNEL_RULE):
        excluded = _counted((node, EXCLUDED) for node in fgraph.apply_nodes)
        return Kernels(graph, (), excluded, n_like_others)
    n_nodes, outside, in_chunks = [], [], []
    for region in regions(fgraph, is_supported):
        for nodes, reason, results in attempts(fgraph, region):
            if reason:
                outside += [(node, reason) for node in nodes]
            else:
                n_nodes.append(len(nodes))
                in_chunks += _rows_in_chunks(results)
    outside += [(x, why_unsupported(x)) for x in fgraph.apply_nodes if not is_supported(x)]
    return Kernels(graph, tuple(n_nodes), _counted(outside), n_like_others, tuple(in_chunks))


def _rows_in_chunks(results: Sequence[tuple[Variable, Variable]]) -> list[int]:
    """Return the number of rows of each loop of a kernel that runs in chunks; ``results`` are variables and their replacements."""
    nodes = apply_ancestors([new for _, new in results])
    [op] = {node.op for node in nodes if isinstance(node.op, FusedKernel)}
    steps = op.build_program().steps
    return [loop.n_rows for loop in sequential_loops(steps) if isinstance(loop, ParallelLoop)]


def _representatives(terms: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return the terms, but only the first one of more than :data:`MOST_ALIKE` with the same operations."""
    operations = _operations(terms)
    alike: defaultdict[int, list[TensorVariable]] = defaultdict(list)
    for term in terms:
        alike[operations[term]].append(term)
    return [
        term for same in alike.values() for term in (same if len(same) <= MOST_ALIKE else same[:1])
    ]


def _operations(terms: Sequence[TensorVariable]) -> dict[Variable, int]:
    """Return a number for each variable of a graph, equal for equal operations on equal types.

    Lengths, the values of constants, and the names of inputs make no difference.
    """
    numbers: dict[Hashable, int] = {}
    of: dict[Variable, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    for x in ancestors(terms):
        if x.owner is None:
            is_broadcast = getattr(x.type, "broadcastable", None)
            of[x] = number((type(x), type(x.type), getattr(x.type, "dtype", None), is_broadcast))
    for node in io_toposort([], list(terms)):
        inputs = tuple(of[x] for x in node.inputs)
        for position, x in enumerate(node.outputs):
            of[x] = number((node.op, inputs, position))
    return of


def gradient(
    logp: TensorVariable, value_vars: Sequence[TensorVariable]
) -> Sequence[TensorVariable]:
    """Return the gradient; empty if an Op has no gradient, as in a model that NUTS cannot sample."""
    try:
        return pt.grad(logp, list(value_vars), disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError):
        return []


def before_kernels(outputs: list[TensorVariable]) -> FunctionGraph:
    """Return a copy of a graph with all rewrites of mode NUMBA that run before the kernel rule."""
    fgraph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    upstream = get_mode("NUMBA")
    query = copy(upstream.provided_optimizer)
    query.position_cutoff = KERNEL_RULE.position
    with switched(True):
        Mode(upstream.linker, query).optimizer.rewrite(fgraph)
    return fgraph


def why_unsupported(node: Apply) -> str:
    """Return the reason for which kernels do not support a node."""
    return NO_RULE if lowering_of(node.op) is None else NOT_THIS_FORM


def _counted(outside: Iterable[tuple[Apply, str]]) -> tuple[Outside, ...]:
    counts = Counter((shorten(str(node.op), 60), reason) for node, reason in outside)
    return tuple(Outside(op, n, reason) for (op, reason), n in counts.items())
