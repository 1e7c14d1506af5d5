"""Rules take linear time on chains in which each step reads the previous step twice."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import applys_between

from tests.rewrites.conftest import pregrad, sum_and_gradient

# More operands of a sum than 32, to which PyTensor flattens it, do not run in Python.
N, STEPS = 60, 28
RNG = np.random.default_rng(1)
X, KNOWN, PERMUTATION = RNG.normal(size=N) / STEPS, RNG.integers(0, 2, N), RNG.permutation(N)
v = pt.vector("v", shape=(N,))
VALUE = RNG.uniform(0.1, 0.9, size=N)

START = {
    "vector": v,
    "permuted": v[PERMUTATION],
    "gathered": v[:7][RNG.integers(0, 7, N)],
    "set": pt.zeros(N)[::2].set(v[: N // 2]),
}
STEP = {
    "switch": lambda u: pt.switch(u > X, u * 1.01, u + X),
    "constant switch": lambda u: pt.switch(KNOWN > 0, u * 0.5, 1 - u) - 0.1 * u,
    "sum of products": lambda u: u + u * X,
    "square": lambda u: u * pt.sin(u) + u,
    "quotient": lambda u: u / (1 + u**2) + pt.sqrt(abs(u)),
}


@pytest.mark.parametrize("start", START)
@pytest.mark.parametrize("step", STEP)
def test_graph_grows_linearly_with_a_chain(start, step):
    out = START[start]
    for _ in range(STEPS):
        out = STEP[step](out)
    off, on = (pregrad(out.sum(), on=side) for side in (False, True))
    assert len([*applys_between([v], [on])]) <= 2 * len([*applys_between([v], [off])])
    expected, found = (sum_and_gradient(total, {v: VALUE}) for total in (off, on))
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-11, atol=1e-11 * np.abs(e).max())
