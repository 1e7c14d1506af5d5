"""The smallest graph that the first rule rewrites; without PyMC, so that scripts start fast."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.__main__ import has_elemwise_of_set

# The name of the rules that rewrite it, before and after the gradient.
LIFT = "fastlogp_lift_set_subtensor"


def exp_of_set(a: TensorVariable) -> TensorVariable:
    """Return ``exp`` of a vector of five that is filled from ``a``, a vector of two."""
    return pt.exp(pt.zeros(5)[np.array([1, 3])].set(a))


def is_rewritten_before_gradient() -> bool:
    """Return whether what PyMC and nutpie do to a logp before its gradient includes the first rule."""
    graph = exp_of_set(pt.vector("a", shape=(2,)))
    rewritten = rewrite_graph(graph, include=["canonicalize", "stabilize"])
    return not has_elemwise_of_set(FunctionGraph(outputs=[rewritten], clone=False))
