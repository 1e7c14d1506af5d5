"""Each of PyMC's constructions of the triangle of an LKJ prior becomes one set of the vector's entries, and the same kernel."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import CholeskyCorrTransform

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.fuzz.evaluation import by_kernels
from tests.rewrites.conftest import PYTHON, assert_same_value_and_gradient, pregrad, sketch


def spiral(n):
    """Return the entry of the vector at each position below the diagonal, row by row, as PyMC fills it."""
    entries = np.arange(n * (n - 1) // 2)
    square = np.concatenate([entries[n - 1 :], entries[::-1]]).reshape(n - 1, n - 1)
    return square[np.tril_indices(n - 1)]


def one_set(v, n):
    strict = pt.zeros((n, n))[np.tril_indices(n, -1)].set(v[spiral(n)])
    return strict[np.arange(n), np.arange(n)].set(1.0)


def joined_rows(v, n):
    rows = np.split(spiral(n), np.cumsum(np.arange(n))[:-1])
    ends = [np.eye(n)[i, i:] for i in range(n)]
    return pt.stack([pt.concatenate([v[row], end]) for row, end in zip(rows, ends, strict=True)])


def index_by_cumsum(v, n):
    is_below = np.tri(n, k=-1, dtype=bool)
    index = pt.cumsum(is_below.astype(int)).reshape((n, n)) - 1
    return pt.where(is_below, v[spiral(n)][index], pt.eye(n))


def masked_index(v, n):
    is_below = np.tri(n, k=-1)
    index = np.maximum(np.cumsum(is_below).astype(int).reshape(n, n) - 1, 0)
    strict = v[spiral(n)][index] * is_below
    return pt.set_subtensor(strict[np.diag_indices(n)], 1.0)


def padded_blocks(v, n):
    """One row more at a time, below zeros and with a one at its end."""
    triangle = pt.ones((1, 1))
    for row in np.split(spiral(n), np.cumsum(np.arange(n))[:-1])[1:]:
        below = pt.concatenate([v[row], [1.0]])[None, :]
        triangle = pt.concatenate([pt.pad(triangle, [(0, 0), (0, 1)]), below])
    return triangle


def prior(spelling, n):
    """Return a model with an LKJ prior whose triangle is spelled in another way, or in PyMC's."""

    class Transform(CholeskyCorrTransform):
        def backward(self, value, *inputs):
            triangle = spelling(pt.as_tensor(value), self.n)
            return triangle / pt.linalg.norm(triangle, axis=-1, ord=2)[..., None]

    with pm.Model() as model:
        transform = CholeskyCorrTransform(n) if spelling is None else Transform(n)
        pm.LKJCorr("L", n=n, eta=2.0, default_transform=transform)
    return model


SPELLINGS = [one_set, joined_rows, index_by_cumsum, masked_index, padded_blocks]


@pytest.fixture(scope="module", params=[2, 3, 6])
def in_pymc(request):
    """Return the number of variables, the logp as PyMC spells it, and its compiled gradient."""
    model = prior(None, request.param)
    return request.param, sketch(pregrad(model.logp(), on=True)), compiled(model)


@pytest.fixture(params=SPELLINGS, ids=lambda spelling: spelling.__name__)
def spelling(request):
    return request.param


def test_spelling_becomes_one_set(spelling):
    v = pt.vector("v", shape=(15,))
    found = pregrad(spelling(v, 6), on=True)
    where = np.argsort(spiral(6))
    rows, columns = (index[where] for index in np.tril_indices(6, -1))
    packed = pt.zeros((6, 6))[rows, columns].set(v)[np.arange(6), np.arange(6)].set(1.0)
    assert sketch(found) == sketch(pregrad(packed, on=False))
    assert_same_value_and_gradient(spelling(v, 6), {v: np.linspace(-1.0, 2.0, 15)}, rtol=0)


def test_spelling_has_the_kernel_of_pymcs(in_pymc, spelling):
    n, logp, function = in_pymc
    other = prior(spelling, n)
    assert sketch(pregrad(other.logp(), on=True)) == logp
    assert kernels(compiled(other)) == kernels(function)


def test_value_and_gradient(in_pymc, spelling):
    n, _, function = in_pymc
    model = prior(spelling, n)
    [value] = model.continuous_value_vars
    logp = pregrad(model.logp(), on=False)
    upstream = pytensor.function([value], [logp, pytensor.grad(logp, value)], mode=PYTHON)
    for scale in (0.1, 3.0):
        at = scale * np.linspace(-1.0, 2.0, n * (n - 1) // 2)
        for found, expected in zip(function(at), upstream(at), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def compiled(model):
    with switched(True):
        function = model.logp_dlogp_function(ravel_inputs=True, mode=by_kernels())
    function.set_extra_values({})
    return function


def kernels(function):
    """Return how many nodes each kernel has inside, and what is left outside of kernels."""
    nodes = function._pytensor_function.maker.fgraph.apply_nodes
    inside = [len(node.op.fgraph.apply_nodes) for node in nodes if isinstance(node.op, FusedKernel)]
    return inside, [str(node.op) for node in nodes if not isinstance(node.op, FusedKernel)]
