"""The inner graphs of Scan, rewritten before they become part of a kernel.

PyTensor rewrites an inner graph behind all else, so that it may work in place. A kernel wants it earlier, as all rules
leave it, but with nothing in place and nothing fused. What a kernel does not cover is left as it is.
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

# What the kernel does itself, what works in place, and what is there for upstream's code alone.
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


def specialise_scans(fgraph: FunctionGraph) -> None:
    """Rewrite the inner graphs of those Scans that a kernel then covers."""
    scans = [node for node in fgraph.toposort() if isinstance(node.op, Scan)]
    if not scans:
        return
    active = get_active_mode(fgraph)
    mode = active if is_for_numba(active) else get_mode("NUMBA")
    mode = mode.excluding(*EXCLUDED)
    for node in scans:
        try:
            specialized = _specialized(node, mode)
        except Exception as error:
            report_defect(error, f"the node {node}")
            continue
        if is_supported(specialized):
            copy_stack_trace(node.outputs, specialized.outputs)
            pairs = list(zip(node.outputs, specialized.outputs, strict=True))
            fgraph.replace_all(pairs, reason="fastlogp_fused_kernel")


def _specialized(node: Apply, mode: Mode) -> Apply:
    inner = node.op.fgraph.unfreeze()
    mode.optimizer.rewrite(inner)
    for scan in [n for n in inner.toposort() if isinstance(n.op, Scan)]:
        pairs = zip(scan.outputs, _specialized(scan, mode).outputs, strict=True)
        inner.replace_all(list(pairs))
    # Not by `make_node`, which refuses inputs that have come to know a length of 1 that the inner graph does not know.
    outputs = [x.type() for x in node.outputs]
    return Apply(node.op.clone_with_inner_graph(inner), [*map(_as_filled, node.inputs)], outputs)


def _as_filled(x: Variable) -> Variable:
    """Return a constant whose elements are all the same as that number repeated, which a kernel does not load."""
    if not isinstance(x, TensorConstant) or is_embedded(x):
        return x
    first = x.data.flat[0]
    # By their bytes, which tell zeros of either sign apart.
    is_filled = x.data.tobytes() == np.full_like(x.data, first, order="C").tobytes()
    return alloc(first, *x.data.shape) if is_filled else x
