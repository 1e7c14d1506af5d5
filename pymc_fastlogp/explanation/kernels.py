"""Nodes of logp and gradient inside and outside kernels, with the reasons."""

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from textwrap import shorten

import pytensor.tensor as pt
from pytensor.compile.mode import Mode, get_mode
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.config import switched
from pymc_fastlogp.explanation.result import Kernels, Outside
from pymc_fastlogp.kernel.graph.region import attempts, regions
from pymc_fastlogp.kernel.lower import is_supported
from pymc_fastlogp.kernel.lower.table import lowering_of
from pymc_fastlogp.registration import is_excluded
from pymc_fastlogp.rules import GRAPH_RULES

LOGP_DLOGP, LOGP = "logp and gradient", "logp"

NO_RULE = "the kernel has no rule for this Op"
NOT_THIS_FORM = "the kernel's rule for this Op does not cover its dtype, shape or parameters"
EXCLUDED = "excluded by the flag optimizer_excluding"

[KERNEL_RULE] = (rule for rule in GRAPH_RULES if rule.name == "fastlogp_fused_kernel")


def kernels_of(terms: Sequence[TensorVariable], value_vars: Sequence[TensorVariable]) -> Kernels:
    """Return the kernels of a log density and its gradient, without compiling them.

    Parameters
    ----------
    terms : sequence of TensorVariable
        Terms whose sum is the log density, before the gradient is taken.
    value_vars : sequence of TensorVariable
        Variables that the gradient is with respect to.
    """
    logp = pt.add(*terms)
    dlogp = gradient(logp, value_vars)
    graph = LOGP_DLOGP if dlogp else LOGP
    fgraph = before_kernels([logp, *dlogp])
    if is_excluded(KERNEL_RULE):
        return Kernels(graph, (), _counted((node, EXCLUDED) for node in fgraph.apply_nodes))
    n_nodes, outside = [], []
    for region in regions(fgraph, is_supported):
        for nodes, reason, _ in attempts(fgraph, region):
            if reason:
                outside += [(node, reason) for node in nodes]
            else:
                n_nodes.append(len(nodes))
    outside += [(x, why_unsupported(x)) for x in fgraph.apply_nodes if not is_supported(x)]
    return Kernels(graph, tuple(n_nodes), _counted(outside))


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
