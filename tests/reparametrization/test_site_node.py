"""Hand-written derivatives of sites equal those of the outputs, and are part of kernels."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

from pymc_fastlogp import disabled
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.expressions import Role
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.lower import lower
from pymc_fastlogp.ops import SiteNode
from pymc_fastlogp.reparametrization import crossed, elimination, joint_site, single_site
from pymc_fastlogp.reparametrization.site_node import as_node, unbroadcast

J = 4
FAST = {"mode": "FAST_COMPILE", "on_unused_input": "ignore"}


def of_placed(rng):
    return (
        single_site._forward,
        single_site._pullback,
        [rng.gamma(2), *rng.normal(size=(2, J)), X(rng)],
        4,
    )


def of_placed_by_group(rng):
    forward, pullback, [_, *others], n = of_placed(rng)
    return forward, pullback, [rng.gamma(2, size=J), *others], n


def of_eliminated(rng, n=2):
    root = rng.normal(size=(n, n, J))
    matrix = np.einsum("ikj,lkj->ilj", root, root)
    numbers = [matrix[place] for place in elimination._upper(n)]
    values = [*rng.gamma(2, size=n - 1), *rng.normal(size=(n, J)), *numbers]
    return *elimination._functions(n), values, 2 * n - 1


def of_three_eliminated(rng):
    return of_eliminated(rng, 3)


def of_crossing(rng, n=2):
    values = []
    for _ in range(n):
        values += [rng.gamma(2), rng.normal(size=J), rng.normal()]
    for sign in rng.choice([1.0, -1.0], n):
        information = X(rng)
        values += [information, information / information.sum(), sign, information.sum()]
    return *crossed._functions(n), values, 3 * n


def of_three_factors(rng):
    return of_crossing(rng, 3)


def of_crossed(rng):
    information = X(rng)
    values = [rng.gamma(2), *rng.normal(size=(2, J)), rng.gamma(2), 0.7]
    return (
        crossed._standardize,
        crossed._standardize_pullback,
        [*values, information, information / 9],
        5,
    )


def of_factored(rng, n=2):
    root = rng.normal(size=(n, n, J))
    matrix = np.einsum("ikj,lkj->ilj", root, root) + np.eye(n)[:, :, None]
    lower = np.array([matrix[place] for place in joint_site.lower_indices(n)])
    return joint_site._forward, joint_site._pullback, [lower, *rng.normal(size=(2, n, J))], 3


def of_three_factored(rng):
    return of_factored(rng, 3)


def X(rng):  # noqa: N802
    return rng.gamma(1, 5, size=J)


NODES = [
    of_placed,
    of_placed_by_group,
    of_eliminated,
    of_three_eliminated,
    of_crossing,
    of_three_factors,
    of_crossed,
    of_factored,
    of_three_factored,
]


@pytest.mark.parametrize("of_all_outputs", [True, False])
@pytest.mark.parametrize("make", NODES)
def test_derivatives_are_those_of_the_outputs(make, of_all_outputs):
    rng = np.random.default_rng(7)
    forward, pullback, values, n = make(rng)
    inputs = [pt.tensor(shape=np.shape(x), dtype="float64") for x in values]
    written, as_nodes = forward(*inputs), as_node(forward, pullback, *inputs)
    weights = [rng.normal(size=x.type.shape) for x in written]
    if not of_all_outputs:
        weights = [weights[0], *(None for _ in written[1:])]
    gradients = [
        pt.grad(
            sum((w * x).sum() for w, x in zip(weights, outputs, strict=True) if w is not None),
            inputs[:n],
            disconnected_inputs="ignore",
        )
        for outputs in (written, as_nodes)
    ]
    function = pytensor.function(
        inputs, [*written, *as_nodes, *gradients[0], *gradients[1]], **FAST
    )
    found = function(*values)
    k = len(written)
    for one, other in zip(found[:k], found[k : 2 * k], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13)
    for one, other in zip(found[2 * k : 2 * k + n], found[2 * k + n :], strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


def test_arrays_of_sites_have_no_derivative():
    inputs = [pt.dscalar(), pt.dvector(), pt.dvector(), pt.dscalar(), pt.dscalar()]
    numbers = [pt.dvector(), pt.dvector()]
    u, _ = as_node(crossed._standardize, crossed._standardize_pullback, *inputs, *numbers)
    with pytest.raises(Exception, match="array of a site"):
        pt.grad(u.sum(), numbers[0])


def test_nodes_of_sites_are_part_of_the_kernel():
    inputs = [pt.dscalar("s"), *(pt.tensor(shape=(J,), dtype="float64") for _ in range(3))]
    s, w, z, information = inputs
    u, logs = single_site.standardized_effects(z, s, w, information)
    total = (u**2).sum() + logs.sum()
    outputs = [total, *pt.grad(total, [s, w, z])]
    values = [np.float64(1.3), *np.random.default_rng(1).gamma(1, size=(3, J))]
    found = {}
    for excluded in ([], ["fastlogp"]):
        mode = pytensor.compile.mode.get_mode("NUMBA").excluding(*excluded)
        function = pytensor.function(inputs, outputs, mode=mode)
        nodes = function.maker.fgraph.apply_nodes
        assert sum(type(node.op) is FusedKernel for node in nodes) == (not excluded)
        assert sum(isinstance(node.op, SiteNode) for node in nodes) == (2 if excluded else 0)
        found[bool(excluded)] = function(*values)
        if not excluded:
            [kernel] = [node.op for node in nodes if type(node.op) is FusedKernel]
            inner = kernel.fgraph.apply_nodes
            assert sum(isinstance(node.op, SiteNode) for node in inner) == 2
            # What scalars are, groups, and what is summed over them.
            assert len(kernel.build_program().steps) <= 4
    for one, other in zip(found[False], found[True], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_one_node_is_a_kernel():
    x = pt.tensor(shape=(J,), dtype="float64")
    outputs = as_node(lambda x: [pt.exp(x), pt.exp(x) * x], lambda *_: [], x)
    function = pytensor.function([x], outputs, mode="NUMBA")
    [node] = function.maker.fgraph.apply_nodes
    assert type(node.op) is FusedKernel
    value = np.arange(float(J))
    for one, other in zip(function(value), (np.exp(value), np.exp(value) * value), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_arrays_of_site_nodes_are_not_overwritten():
    """Both sets copy their input, although only one node reads it."""

    def forward(x):
        return [y := 2.0 * x, y.copy()]

    x = pt.tensor(shape=(J,), dtype="float64")
    given = pt.exp(x)
    one, other = as_node(forward, lambda *_: [], given)
    outputs = [one[1:].set(pt.sqr(x[1:])), other[:2].set(pt.sin(x[:2])), given[:1].set(x[:1])]
    function = pytensor.function([x], outputs, mode="NUMBA")
    value = np.linspace(0.3, 0.9, J)
    base = np.exp(value)
    expected = [
        np.concatenate([2 * base[:1], value[1:] ** 2]),
        np.concatenate([np.sin(value[:2]), 2 * base[2:]]),
        np.concatenate([value[:1], base[1:]]),
    ]
    for found, wanted in zip(function(value), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_operations_read_by_site_nodes_alone_join_them():
    """Only elements that a reduction, an array of another shape or the user reads are stored."""

    def forward(x, y):
        a = pt.exp(x)
        b = pt.sqr(a) + 1.0
        c = b * y  # of another shape than b
        return [c.sum(), pt.log(c)]

    x, y = pt.tensor(shape=(1, J), dtype="float64"), pt.tensor(shape=(3, J), dtype="float64")
    node = as_node(forward, lambda *_: [], x, y)[0].owner
    program = lower(FunctionGraph([x, y], [*node.outputs], clone=True), [None, None])
    stored = [
        statement.buffer.shape
        for step in program.steps
        for statement in step.body
        if isinstance(statement, Store) and statement.buffer.role is Role.SCRATCH
    ]
    assert sorted(stored, key=len) == [(), (1, J), (3, J), (3, J)]


@pytest.mark.usefixtures("with_c")
@pytest.mark.parametrize("mode", ["FAST_COMPILE", Mode("py", None), Mode("vm", None)])
def test_results_of_one_node_survive_the_next(mode):
    """C code within PyTensor's inner function writes into what the last call gave: docs/upstream.md."""

    def forward(x):
        return [pt.exp(pt.cos(pt.sin(x.sum())))[None]]

    def no_pullback(inputs, outputs, gradients):
        return []

    x = pt.tensor(shape=(J,), dtype="float64")
    with disabled():
        outputs = [as_node(forward, no_pullback, by * x)[0] for by in (1.0, 2.0)]
        one, two = pytensor.function([x], outputs, mode=mode)(np.ones(J))
    np.testing.assert_allclose([one, two], np.exp(np.cos(np.sin([[4.0], [8.0]]))), rtol=1e-14)


def test_uncovered_node_stays():
    def forward(x):
        return [pt.linalg.eigh(x)[0]]

    def pullback(inputs, outputs, gradients):
        return [pt.zeros_like(inputs[0])]

    x = pt.tensor(shape=(3, 3), dtype="float64")
    [y] = as_node(forward, pullback, x)
    function = pytensor.function([x], y, mode="NUMBA")
    assert any(isinstance(node.op, SiteNode) for node in function.maker.fgraph.apply_nodes)
    np.testing.assert_allclose(function(np.diag([1.0, 2.0, 3.0])), [1, 2, 3])


def test_gradients_are_summed_over_broadcast_axes():
    x = pt.tensor(shape=(2, J), dtype="float64")
    for shape in [(), (1,), (J,), (1, J), (2, 1), (2, J)]:
        assert unbroadcast(x, pt.tensor(shape=shape, dtype="float64")).type.shape == shape
