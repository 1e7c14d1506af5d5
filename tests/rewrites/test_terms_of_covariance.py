"""The log-determinant and the quadratic forms of a covariance take their gradients by one inverse."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.linalg.decomposition.cholesky import cholesky
from pytensor.tensor.linalg.solvers.triangular import solve_triangular

import pymc_fastlogp
from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from pymc_fastlogp.ops import LowerInverse
from pymc_fastlogp.rewrites.linalg.terms_of_covariance import HalfLogDet, QuadraticForm
from tests.rewrites.conftest import (
    ops_of,
    pregrad,
    with_gradients,
)

N = 40
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 3, N))
DISTANCES = (X[:, None] - X) ** 2

s = pt.vector("s", shape=(2,))
K = s[0] * pt.exp(-s[1] * DISTANCES) + 0.3 * pt.eye(N)
free = pt.matrix("free")  # of open length, and nothing says that it is symmetric
L = cholesky(K)
y = pt.vector("y", shape=(N,))
rows = pt.matrix("rows", shape=(3, N))


def half_logdet(factor):
    return pt.log(pt.diagonal(factor)).sum()


def form(factor, b):
    return pt.sqr(solve_triangular(factor, b, lower=True, b_ndim=1)).sum(axis=-1)


FIRES = {
    "log-determinant": (half_logdet(L), [HalfLogDet]),
    "form": (form(L, y), [QuadraticForm]),
    "form of rows": ((form(L, rows) * [1.0, 2.0, 0.5]).sum(), [QuadraticForm]),
    "power": ((solve_triangular(L, y, lower=True, b_ndim=1) ** 2).sum(), [QuadraticForm]),
    "density": (half_logdet(L) - 0.5 * form(L, y - s[0]), [HalfLogDet, QuadraticForm]),
    "open length": (
        half_logdet(cholesky(free)) + form(cholesky(free), y),
        [HalfLogDet, QuadraticForm],
    ),
    "another function of the form": (pt.log1p(form(L, rows) / 4).sum(), [QuadraticForm]),
}
FEW = s[0] * pt.exp(-s[1] * DISTANCES[:32, :32]) + 0.3 * pt.eye(32)
UPPER = cholesky(K, lower=False)
KNOWN = np.exp(-DISTANCES) + np.eye(N)
TRIANGLE = pt.set_subtensor(pt.zeros((N, N))[np.tril_indices(N, -1)], s[0])[
    np.arange(N), np.arange(N)
].set(1.0)
REFUSES = {
    "few rows": half_logdet(cholesky(FEW)) + form(cholesky(FEW), y[:32]),
    "multiple of a constant, whose factor is known": half_logdet(cholesky(s[0] * KNOWN))
    + form(cholesky(s[0] * KNOWN), y),
    "gram matrix, whose factor is known": half_logdet(cholesky(TRIANGLE @ TRIANGLE.T)),
    "upper factor": half_logdet(UPPER),
    "batch": pt.log(pt.diagonal(cholesky(pt.stack([K, 2 * K])), axis1=1, axis2=2))
    .sum(axis=1)
    .sum(),
    "factor that is given": half_logdet(pt.tril(free)),
    "another diagonal": pt.log(pt.diagonal(L, offset=-1)).sum(),
    "diagonal of other axes": pt.log(pt.diagonal(L[None], axis1=0, axis2=1)).sum(),
    "matrix on the right": pt.sqr(solve_triangular(L, rows.T, lower=True)).sum(),
    "columns of a matrix on the right": pt.sqr(solve_triangular(L, rows.T, lower=True)).sum(axis=1),
    "sum over rows": pt.sqr(solve_triangular(L, rows, lower=True, b_ndim=1)).sum(axis=0) * y,
    "sum over rows of open length": pt.sqr(
        solve_triangular(cholesky(free), pt.matrix("open_rows"), lower=True, b_ndim=1)
    ).sum(axis=0)
    * y,
    "sum over all rows": pt.sqr(solve_triangular(L, rows, lower=True, b_ndim=1)).sum(),
    "rows of a batch": form(cholesky(free), pt.tensor3("batch")),
    "solve by the upper triangle of the factor": pt.sqr(
        solve_triangular(L, y, lower=False, b_ndim=1)
    ).sum(),
    "solve by a triangle with ones on its diagonal": pt.sqr(
        solve_triangular(L, y, lower=True, unit_diagonal=True, b_ndim=1)
    ).sum(),
    "product with the factor": pt.sqr(L @ y).sum(),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires_before_the_gradient(name):
    out, expected = FIRES[name]
    ops = ops_of(pregrad(out, on=True))
    assert {op for op in ops if op in (HalfLogDet, QuadraticForm)} == {*expected}
    assert pregrad(out, on=True).type == out.type


@pytest.mark.parametrize("name", REFUSES)
def test_refuses(name):
    assert not {HalfLogDet, QuadraticForm} & {*ops_of(pregrad(REFUSES[name], on=True))}


@pytest.mark.parametrize("name", ["fastlogp_half_logdet", "fastlogp_quadratic_form"])
def test_rule_is_excluded_by_name(name):
    op = {"fastlogp_half_logdet": HalfLogDet, "fastlogp_quadratic_form": QuadraticForm}[name]
    assert op not in ops_of(pregrad(FIRES["density"][0], on=True, exclude=[name]))


def values():
    spd = RNG.normal(size=(N, N))
    return {
        s: np.array([0.8, 1.7]),
        free: spd @ spd.T + np.eye(N) + np.triu(RNG.normal(size=(N, N)), 1),
        y: RNG.normal(size=N),
        rows: RNG.normal(size=(3, N)),
    }


compiled = partial(with_gradients, inputs=[s, free, y, rows])


@pytest.mark.parametrize("name", FIRES)
def test_value_and_gradient(name):
    """The gradient includes a matrix of which only the lower triangle counts, as upstream."""
    given = values().values()
    off, on = (compiled(FIRES[name][0], on=on)(*given) for on in (False, True))
    for a, b in zip(on, off, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max(initial=1))
    if name == "open length":
        assert not np.triu(on[2], 1).any()
        assert np.tril(on[2], -1).any()


def test_gradients_have_the_type_of_their_inputs():
    covariance, b = pt.fmatrix("covariance"), pt.fvector("b")
    logp = pregrad(half_logdet(cholesky(covariance)) + form(cholesky(covariance), b), on=True)
    assert {HalfLogDet, QuadraticForm} <= {*ops_of(logp)}
    gradients = pytensor.grad(logp, [covariance, b])
    assert {gradient.type.dtype for gradient in gradients} == {"float32"}


def test_one_kernel_with_one_factor_and_one_inverse():
    logp = pregrad(FIRES["density"][0], on=True)
    function = pytensor.function([s, y], [logp, *pytensor.grad(logp, [s, y])], mode="NUMBA")
    kernels = [n.op for n in function.maker.fgraph.apply_nodes if isinstance(n.op, FusedKernel)]
    [text] = [str(kernel.build_program()) for kernel in kernels]
    assert text.count("'factor'") == text.count("'inverse'") == 1
    assert "'dpotr" not in text
    assert "'dtrsm'" not in text
    assert "'dgemm'" not in text


@pytest.mark.parametrize(
    "mode", ["FAST_COMPILE", "JAX", get_mode("NUMBA").excluding("fastlogp_fused_kernel")]
)
def test_backends_agree(mode):
    given = [np.asarray(value) for value in values().values()]
    reference = compiled(FIRES["density"][0], on=False)(*given)
    found = compiled(FIRES["density"][0], on=True, mode=mode)(*given)
    for a, b in zip(found, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_compiled_function_has_no_gradient_op():
    for mode in ("NUMBA", "FAST_RUN"):
        ops = {
            type(node.op)
            for node in compiled(FIRES["density"][0], on=True, mode=mode).maker.fgraph.apply_nodes
        }
        assert not ops & {HalfLogDet, QuadraticForm}


def test_indefinite_matrix_gives_nan():
    function = compiled(FIRES["open length"][0], on=True)
    given = values() | {free: -np.eye(N)}
    logp, _, gradient, *_ = function(*given.values())
    assert np.isnan(logp)
    assert np.isnan(gradient[np.tril_indices(N)]).all()


def test_second_derivatives_agree():
    given = values().values()
    hessians = []
    for on in (False, True):
        logp = pregrad(FIRES["density"][0], on=on)
        hessian = pytensor.gradient.hessian(logp, s)
        with switched(on):
            hessians.append(
                pytensor.function(
                    [s, free, y, rows], hessian, mode="FAST_COMPILE", on_unused_input="ignore"
                )(*given)
            )
    np.testing.assert_allclose(hessians[1], hessians[0], rtol=1e-8)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (60, 60), (None, None)])
def test_inverse_of_a_factor_is_a_kernel(shape):
    factor = pt.matrix("factor", shape=shape)
    n = shape[0] or 23
    a = RNG.normal(size=(n, n))
    lower = np.linalg.cholesky(a @ a.T + np.eye(n))
    # A kernel is made of two nodes at least.
    function = pytensor.function([factor], LowerInverse()(factor * 2.0), mode="NUMBA")
    assert any(isinstance(node.op, FusedKernel) for node in function.maker.fgraph.apply_nodes)
    expected = np.tril(np.linalg.inv(4 * lower @ lower.T))
    np.testing.assert_allclose(function(lower), expected, rtol=1e-9, atol=1e-10)
    above = lower + np.triu(np.full((n, n), np.inf), 1)
    np.testing.assert_array_equal(function(above), function(lower))


def test_inverse_of_a_factor_with_a_zero_on_its_diagonal_is_nan():
    factor = pt.matrix("factor", shape=(4, 4))
    function = pytensor.function([factor], LowerInverse()(factor * 2.0), mode="NUMBA")
    found = function(np.diag([1.0, 0.0, 2.0, 3.0]))
    assert np.isnan(found[np.tril_indices(4)]).all()
    assert not found[np.triu_indices(4, 1)].any()


def test_inverse_in_single_precision_is_upstreams():
    factor = pt.matrix("factor", shape=(4, 4), dtype="float32")
    function = pytensor.function([factor], LowerInverse()(factor + factor), mode="NUMBA")
    found = function(np.eye(4, dtype="float32"))
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, np.eye(4) / 4)


@pytest.mark.parametrize("n_rows", [None, 3])
def test_whole_model_agrees(n_rows):
    with pm.Model() as model:
        length, scale = pm.HalfNormal("length"), pm.HalfNormal("scale")
        covariance = scale**2 * pt.exp(-DISTANCES / length) + 0.1 * pt.eye(N)
        seen = RNG.normal(size=N if n_rows is None else (n_rows, N))
        pm.MvNormal("seen", pm.Normal("mu") * np.ones(N), cov=covariance, observed=seen)
    fired = {row.rewrite for row in pymc_fastlogp.explain(model)["seen"] if row.fired}
    assert {"fastlogp_half_logdet", "fastlogp_quadratic_form"} <= fired
    assert pymc_fastlogp.verify(model)
