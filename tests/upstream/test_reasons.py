"""Reasons in the table of known differences."""

import numpy as np
import pymc as pm
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import Cholesky

from pymc_fastlogp.kernel.graph.op import FusedKernel


def nodes_of(graph: AbstractFunctionGraph) -> list[Apply]:
    """Return the nodes of a graph and of the kernels in it."""
    found = list(graph.toposort())
    inner = [node.op.fgraph for node in found if isinstance(node.op, FusedKernel)]
    return found + [node for graph in inner for node in nodes_of(graph)]


def test_a_wishart_needs_no_cholesky_factor():
    with pm.Model() as model:
        pm.Wishart("W", nu=7, V=np.eye(3) + 0.3)
    nodes = nodes_of(model.compile_logp().f.maker.fgraph)
    ops = [x.op.core_op if isinstance(x.op, Blockwise) else x.op for x in nodes]
    assert any(isinstance(op, FusedKernel) for op in ops)
    assert not any(isinstance(op, Cholesky) for op in ops)
