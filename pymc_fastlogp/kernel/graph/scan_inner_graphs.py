"""Rewrite the inner graphs of Scan nodes before the nodes become part of a kernel.

PyTensor rewrites inner graphs last and lets them work in place. A kernel needs them earlier, after all algebraic rewrites, but without in-place nodes and
without fusion. A Scan that a kernel cannot contain is left unchanged.
"""

import numpy as np
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, get_active_mode
from pytensor.scan.op import Scan
from pytensor.tensor.basic import alloc
from pytensor.tensor.variable import TensorConstant

from pymc_fastlogp._upstream.pytensor import is_for_numba
from pymc_fastlogp.kernel.defects import report_defect
from pymc_fastlogp.kernel.graph.boundary import is_embedded
from pymc_fastlogp.kernel.lower import is_supported

# Rewrites that make kernels, work in place, fuse nodes, or prepare nodes for upstream's Numba code.
EXCLUDED = (
    "fastlogp_fused_kernel",
    "fastlogp_held_constants",
    "inplace",
    "fusion",
    "compile_inner_graph",
    "fuse_indexed_into_elemwise",
    "introduce_explicit_core_shape_blockwise",
    "introduce_lazy_ifelse",
)


def rewrite_scan_inner_graphs(fgraph: FunctionGraph) -> None:
    """Rewrite the inner graphs of those Scan nodes that are then supported in a kernel."""
    scans = [node for node in fgraph.toposort() if isinstance(node.op, Scan)]
    if not scans:
        return
    active = get_active_mode(fgraph)
    mode = active if is_for_numba(active) else get_mode("NUMBA")
    mode = mode.excluding(*EXCLUDED)
    for node in scans:
        try:
            rewritten = _with_rewritten_inner_graph(node, mode)
        except Exception as error:
            report_defect(error, f"the node {node}")
            continue
        if is_supported(rewritten):
            copy_stack_trace(node.outputs, rewritten.outputs)
            pairs = list(zip(node.outputs, rewritten.outputs, strict=True))
            fgraph.replace_all(pairs, reason="fastlogp_fused_kernel")


def _with_rewritten_inner_graph(node: Apply, mode: Mode) -> Apply:
    inner = node.op.fgraph.unfreeze()
    mode.optimizer.rewrite(inner)
    for scan in [n for n in inner.toposort() if isinstance(n.op, Scan)]:
        pairs = zip(scan.outputs, _with_rewritten_inner_graph(scan, mode).outputs, strict=True)
        inner.replace_all(list(pairs))
    # Not `make_node`: it rejects inputs with a static length of 1 that is unknown in the inner graph.
    outputs = [x.type() for x in node.outputs]
    return Apply(node.op.clone_with_inner_graph(inner), [*map(_as_filled, node.inputs)], outputs)


def _as_filled(x: Variable) -> Variable:
    """Return a large constant of equal elements as an Alloc of one number, so that kernels do not load it."""
    if not isinstance(x, TensorConstant) or is_embedded(x):
        return x
    first = x.data.flat[0]
    # Compare bytes, since 0.0 == -0.0.
    is_filled = x.data.tobytes() == np.full_like(x.data, first, order="C").tobytes()
    return alloc(first, *x.data.shape) if is_filled else x
