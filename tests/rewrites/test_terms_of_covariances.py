"""The Gaussian terms of each of many small covariances take their gradients by inverses, in lanes over the batch."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.linalg.solvers.triangular import solve_triangular

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.kernel.ir.expressions import Compute
from pymc_fastlogp.kernel.ir.traversal import expressions, is_call, loops_in
from pymc_fastlogp.kernel.native.target import default_width
from pymc_fastlogp.ops import LowerInverse
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import HalfLogDets, QuadraticForms
from tests.rewrites.conftest import SIDES, ops_of, pregrad, with_gradients

GROUPS, N = 70, 3
OPS = (HalfLogDets, QuadraticForms)

K = pt.tensor("K", shape=(GROUPS, N, N))
b = pt.tensor("b", shape=(GROUPS, N))
free = pt.tensor("free", shape=(None, N, N))
b_free = pt.tensor("b_free", shape=(None, N))
pairs = pt.tensor("pairs", shape=(5, 4, N, N))
b_pairs = pt.tensor("b_pairs", shape=(5, 4, N))


def diagonals(factor):
    return pt.diagonal(factor, axis1=-2, axis2=-1)


def half_logdets(k):
    return pt.log(diagonals(cholesky(k))).sum(axis=-1)


def whitened(k, x):
    return solve_triangular(cholesky(k), x, lower=True, b_ndim=1)


def forms(k, x):
    return pt.sqr(whitened(k, x)).sum(axis=-1)


def density(k, x):
    return (-half_logdets(k) - 0.5 * forms(k, x)).sum()


FIRES = {
    "log-determinants": ((pt.exp(half_logdets(K) / 4)).sum(), [HalfLogDets]),
    "their sum": (pt.log(diagonals(cholesky(K))).sum(), [HalfLogDets]),
    "forms": (pt.log1p(forms(K, b)).sum(), [QuadraticForms]),
    "their sum as one": (pt.sqr(whitened(K, b)).sum(), [QuadraticForms]),
    "power": ((whitened(K, b) ** 2).sum(axis=-1).sum(), [QuadraticForms]),
    "density": (density(K, b), OPS),
    "open length": (density(free, b_free), OPS),
    "two axes": (density(pairs, b_pairs), OPS),
    "one axis of two": (
        pt.exp(pt.sqr(whitened(pairs, b_pairs)).sum(axis=(0, 2)) / 9).sum(),
        OPS[1:],
    ),
    "with checks of the factor": (
        pt.switch(pt.all(diagonals(cholesky(K)) > 0), density(K, b), -np.inf),
        OPS,
    ),
}
WIDE = pt.tensor("WIDE", shape=(GROUPS, 13, 13))
UNKNOWN = pt.tensor("UNKNOWN", shape=(GROUPS, None, None))
SCALE = pt.scalar("SCALE")
KNOWN = np.array([np.eye(N) + 0.5, np.eye(N)])
REFUSES = {
    "one matrix": density(K[0], b[0]),
    "a batch of one": density(K[:1], b[:1]),
    "many rows": half_logdets(WIDE).sum(),
    "rows that are not known": half_logdets(UNKNOWN).sum(),
    "upper factor": pt.log(diagonals(cholesky(K, lower=False))).sum(),
    "another diagonal": pt.log(pt.diagonal(cholesky(K), offset=-1, axis1=-2, axis2=-1)).sum(),
    "diagonal of other axes": pt.log(pt.diagonal(cholesky(K), axis1=0, axis2=1)).sum(),
    "factors that are given": pt.log(diagonals(pt.tril(K))).sum(),
    "sum over the batch alone": pt.exp(pt.log(diagonals(cholesky(K))).sum(axis=0)).sum(),
    "a vector for all": forms(K, b[0]).sum(),
    "matrices on the right": pt.sqr(solve_triangular(cholesky(K), K, lower=True)).sum(),
    "multiples of a constant, whose factor is known": half_logdets(pt.exp(SCALE) * KNOWN).sum(),
}
INPUTS = [K, b, free, b_free, pairs, b_pairs]


def covariances(rng, *shape):
    x = rng.normal(size=(*shape[:-1], 2 * shape[-1]))
    # Of which only the lower triangle counts.
    return x @ np.swapaxes(x, -1, -2) + 0.1 * np.eye(shape[-1]) + np.triu(rng.normal(size=shape), 1)


def values(seed=0, n_free=GROUPS):
    rng = np.random.default_rng(seed)
    shapes = [(GROUPS, N), (n_free, N), (5, 4, N)]
    return [x for s in shapes for x in (covariances(rng, *s, N), rng.normal(size=s))]


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    out, expected = FIRES[name]
    rewritten = pregrad(out, on=True)
    assert {op for op in ops_of(rewritten) if op in OPS} == {*expected}
    assert rewritten.type == out.type


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert not {*OPS} & {*ops_of(pregrad(REFUSES[name], on=True))}


@pytest.mark.parametrize("name", ["fastlogp_half_logdet", "fastlogp_quadratic_form"])
def test_rule_is_excluded_by_name(name):
    op = {"fastlogp_half_logdet": HalfLogDets, "fastlogp_quadratic_form": QuadraticForms}[name]
    assert op not in ops_of(pregrad(density(K, b), on=True, exclude=[name]))


@pytest.fixture(scope="module")
def both_sides():
    """Return all values and their gradients, with the plugin on and off; upstream takes long to compile for each."""
    results = []
    for on in (True, False):
        with switched(on):
            outs = [pregrad(out, on=on) for out, _ in FIRES.values()]
            gradients = [pytensor.grad(x, INPUTS, disconnected_inputs="ignore") for x in outs]
            every = [x for out, of_out in zip(outs, gradients, strict=True) for x in (out, *of_out)]
            found = pytensor.function(INPUTS, every, mode=SIDES[on])(*values())
        n = 1 + len(INPUTS)
        results.append([found[n * i : n * i + n] for i in range(len(FIRES))])
    return dict(zip(FIRES, zip(*results, strict=True), strict=True))


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(both_sides, name):
    for ours, upstreams in zip(*both_sides[name], strict=True):
        assert_close(ours, upstreams)


def assert_close(ours, upstreams):
    largest = np.abs(upstreams).max(initial=1, where=np.isfinite(upstreams))
    np.testing.assert_allclose(ours, upstreams, rtol=1e-9, atol=1e-10 * largest)


def test_one_kernel_of_one_loop_over_the_batch():
    function = with_gradients(density(K, b), [K, b], on=True)
    [kernel] = [n.op for n in function.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel)]
    loops = list(loops_in(kernel.build_program().steps))
    assert not any(map(is_call, loops))
    factoring = [loop for loop in loops if any(map(_is_root, expressions(loop)))]
    assert [loop.domain for loop in factoring] == [(GROUPS,)]


def _is_root(expr):
    return isinstance(expr, Compute) and isinstance(expr.op, ps.Sqrt)


@pytest.fixture(scope="module")
def sides():
    """Return what computes the density of a number of matrices that is not known, by rows and side."""
    functions = {}

    def compiled(n, on):
        if (n, on) not in functions:
            k, x = pt.tensor("k", shape=(None, n, n)), pt.tensor("x", shape=(None, n))
            terms = -half_logdets(k) - 0.5 * forms(k, x)
            with switched(on):
                value = pregrad(terms.sum(), on=on)
                gradients = pytensor.grad(value, [k, x])
                functions[n, on] = pytensor.function([k, x], [terms, *gradients], mode=SIDES[on])
        return functions[n, on]

    return compiled


W = default_width()


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 1, W // 2 - 1, W // 2 + 1, W - 1, W, W + 1, 3 * W + 2]),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_failed_matrix_gives_nan_for_its_own_terms_alone(sides, n, groups, seed, data):
    """A matrix without a factor gives NaN for its own terms alone."""
    rng = np.random.default_rng(seed)
    k, x = covariances(rng, groups, n, n), rng.normal(size=(groups, n))
    # Of one row, upstream takes the square root, which zero has.
    some = st.sets(st.integers(0, groups - 1), max_size=2) if groups and n > 1 else st.just(set())
    failing = data.draw(some)
    for position in failing:
        pivot = rng.integers(n)
        k[position, pivot, pivot] = rng.choice([0.0, -1.0, np.nan])
    on = sides(n, True)(k, x)
    if not groups:  # Blockwise in NumPy needs at least one matrix.
        assert [y.shape for y in on] == [(0,), k.shape, x.shape]
        return
    off = sides(n, False)(k, x)
    for ours, upstreams in zip(on, off, strict=True):
        assert_close(ours, upstreams)
        is_nan = np.isnan(ours)
        assert is_nan[[*failing]].all()
        assert not is_nan[[i for i in range(groups) if i not in failing]].any()


def test_nearly_singular_matrices_are_as_accurate_as_upstream(sides):
    n, rng = 4, np.random.default_rng(1)
    errors = {True: 0.0, False: 0.0}
    for condition in (1e2, 1e5, 1e8):
        q = np.linalg.qr(rng.normal(size=(W + 1, n, n)))[0]
        k = q * np.geomspace(1, 1 / condition, n) @ np.swapaxes(q, -1, -2)
        x = rng.normal(size=(W + 1, n))
        exact = np.array([_exact_gradient(*pair) for pair in zip(k, x, strict=True)])
        for side in errors:
            found = sides(n, side)(k, x)[1]
            relative = np.abs(found - exact).max(axis=(1, 2)) / np.abs(exact).max(axis=(1, 2))
            errors[side] = max(errors[side], relative.max() / condition)
    assert errors[True] <= 4 * errors[False]


def _exact_gradient(k, x):
    """Return the derivative of a density by the lower triangle."""
    with mpmath.workdps(60):
        inverse = mpmath.matrix(np.tril(k) + np.tril(k, -1).T) ** -1
        w = inverse * mpmath.matrix(x)
        full = 0.5 * (w * w.T - inverse)
        return np.tril(np.array((2 * full).tolist(), dtype=float)) - np.diag(
            np.array([float(full[i, i]) for i in range(len(x))])
        )


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "JAX"])
def test_backends_agree(mode):
    given = values()
    reference = with_gradients(density(K, b), INPUTS, on=False)(*given)
    found = with_gradients(density(K, b), INPUTS, on=True, mode=mode)(*given)
    for ours, upstreams in zip(found, reference, strict=True):
        assert_close(ours, upstreams)


def test_function_without_kernels_has_no_gradient_op():
    function = with_gradients(density(K, b), INPUTS, on=True, mode="FAST_RUN")
    assert not {*OPS} & {type(node.op) for node in function.maker.fgraph.apply_nodes}


def test_gradients_have_the_type_of_their_inputs():
    k, x = pt.ftensor3("k"), pt.fmatrix("x")
    k, x = pt.specify_shape(k, (None, N, N)), pt.specify_shape(x, (None, N))
    logp = pregrad(density(k, x), on=True)
    assert {*OPS} <= {*ops_of(logp)}
    roots = [v for v in pytensor.graph.traversal.explicit_graph_inputs([logp]) if v.name]
    assert {gradient.type.dtype for gradient in pytensor.grad(logp, roots)} == {"float32"}


def test_second_derivatives_agree():
    scale = pt.scalar("scale")
    k = scale * K + pt.eye(N)
    given = [0.7, *values()[:2]]
    found = []
    for on in (False, True):
        logp = pregrad(density(k, scale * b), on=on)
        [second] = [pytensor.grad(pytensor.grad(logp, scale), scale)]
        with switched(on):
            found.append(pytensor.function([scale, K, b], second, mode="FAST_COMPILE")(*given))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


@pytest.mark.parametrize(
    "shape", [(W + 1, 4, 4), (2, 3, 1, 1), (0, 5, 5), (3, 12, 12), (3, 13, 13)]
)
def test_inverses_of_factors_agree_with_numpy(shape):
    rng = np.random.default_rng(2)
    factor = pt.tensor("factor", shape=shape)
    symmetric = np.tril(covariances(rng, *shape))
    lower = np.linalg.cholesky(symmetric)
    function = pytensor.function([factor], LowerInverse()(factor * 2.0), mode="NUMBA")
    found = function(lower)
    expected = np.tril(np.linalg.inv(4 * lower @ np.swapaxes(lower, -1, -2)))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_whole_model_agrees():
    """A meta-analysis: several outcomes of each study, with errors whose covariances are known."""
    rng = np.random.default_rng(3)
    errors = 0.2 * np.tril(covariances(rng, GROUPS, 2, 2))
    errors += np.swapaxes(np.tril(errors, -1), -1, -2)
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
        mu = pm.Normal("mu", 0, 5, shape=2)
        pm.MvNormal("y", mu, cov=chol @ chol.T + errors, observed=rng.normal(size=(GROUPS, 2)))
    fired = {row.rewrite for row in pymc_fastlogp.explain(model)["y"] if row.fired}
    assert {"fastlogp_half_logdet", "fastlogp_quadratic_form"} <= fired
    assert pymc_fastlogp.verify(model)
