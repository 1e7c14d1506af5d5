"""Inner graphs are inlined into the kernel if the kernel supports all of their Ops."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.rewrites.conftest import SIDES

x = pt.vector("x", shape=(3,))
m = pt.matrix("m", shape=(2, 3))
open_length = pt.vector("open_length")
VALUES = {
    x: np.array([0.3, -1.2, 2.0]),
    m: np.array([[0.5, -1.0, 2.0], [1.5, 0.1, -0.7]]),
    open_length: np.array([0.4, 1.1]),
}


def of_graph(f, *inputs, **kwargs):
    """Apply a function by way of an ``OpFromGraph``."""
    own = [v.type() for v in inputs]
    return OpFromGraph(own, [f(*own)], **kwargs)(*inputs)


def gradient(out, wrt):
    """Return the gradient of a sum in which no two entries weigh the same."""
    weights = 1 + pt.arange(out.size).reshape(out.shape) ** 2
    return pytensor.grad((pt.exp(out) * weights).sum(), wrt)


FIRES = {
    "gradient of a diagonal": gradient(pt.diag(x), x),
    "gradient of a diagonal below": gradient(pt.diag(x, k=-1), x),
    "gradient of diagonals of a batch": gradient(pt.basic.alloc_diag(m, axis1=1, axis2=2), m),
    "gradient of a diagonal of open length": gradient(pt.diag(open_length), open_length),
    "Kronecker product": pt.exp(pt.linalg.kron(m, pt.outer(x, x))),
    "gradient of a Kronecker product": gradient(pt.linalg.kron(m, pt.outer(x, x)), m),
    "a graph of the user": pt.exp(of_graph(lambda v: pt.cumsum(v) + v**2, x)),
    "a graph in a graph": pt.exp(of_graph(lambda v: of_graph(pt.exp, v) * v, x)),
    "one graph twice": of_graph(pt.exp, x) + of_graph(pt.exp, 2 * x),
}
REFUSES = {
    "a node that no kernel covers": pt.exp(of_graph(pt.sort, x)),
    "a kind that PyTensor looks for": pt.exp(pt.special.softmax(x)),
}


def graphs_left(out, *, on):
    """Count the graphs that are nodes after the rules for Numba, without those of PyTensor's own fusion."""
    include = ["canonicalize", "stabilize", "specialize", "numba"]
    with switched(on):
        found = rewrite_graph(out, include=include, exclude=["fastlogp_fused_kernel"], clone=True)
    ops = [v.owner_op for v in ancestors([found]) if isinstance(v.owner_op, OpFromGraph)]
    return sum(not isinstance(op, FinalizedOpFromGraph) for op in ops)


def compiled(out, *, on):
    inputs = [v for v in ancestors([out]) if v in VALUES]
    with switched(on):
        function = pytensor.function(inputs, out, mode=SIDES[on])
    return function, [VALUES[v] for v in inputs]


@pytest.mark.parametrize("name", FIRES)
def test_fires(name):
    assert graphs_left(FIRES[name], on=False) > 0
    assert graphs_left(FIRES[name], on=True) == 0


@pytest.mark.parametrize("name", FIRES)
def test_value(name):
    (off, values), (on, _) = (compiled(FIRES[name], on=on) for on in (False, True))
    np.testing.assert_allclose(on(*values), off(*values), rtol=1e-13)


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert graphs_left(REFUSES[name], on=True) == graphs_left(REFUSES[name], on=False) == 1


@pytest.mark.parametrize(
    ("excluded", "kernels"), [((), 1), (("fastlogp_inline_op_from_graph",), 2)]
)
def test_marginal_gaussian_process_is_one_kernel_with_the_rule(excluded, kernels):
    points = np.linspace(0, 1, 6)
    with pm.Model() as model:
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")))
        gp.marginal_likelihood("y", points[:, None], points, sigma=pm.HalfNormal("sigma"))
    with switched(True):
        mode = get_mode("NUMBA").excluding(*excluded)
        function = model.logp_dlogp_function(mode=mode, ravel_inputs=True)
    ops = [node.op for node in function._pytensor_function.maker.fgraph.apply_nodes]
    assert sum(isinstance(op, FusedKernel) for op in ops) == kernels
    assert (len(ops) > kernels) == bool(excluded)
