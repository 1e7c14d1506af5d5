"""Models with LKJ priors as users write them: one kernel, and the value and gradient of upstream."""

from functools import partial
from math import inf, prod

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.config import switched
from pymc_fastlogp.kernel.graph.op import FusedKernel
from tests.fuzz.evaluation import by_kernels
from tests.rewrites.conftest import PYTHON, pregrad, sketch

GROUPS, ROWS = 5, 12
GROUP, X = np.arange(ROWS) % GROUPS, np.linspace(-1.0, 1.0, ROWS)

SD_DISTS = {
    "Exponential": lambda: pm.Exponential.dist([1.0, 2.0, 0.5]),
    "HalfNormal": lambda: pm.HalfNormal.dist(1.5),
    "HalfCauchy": lambda: pm.HalfCauchy.dist(2.0),
    "HalfStudentT": lambda: pm.HalfStudentT.dist(nu=3.0, sigma=1.0),
    "Gamma": lambda: pm.Gamma.dist(2.0, 0.5),
    "InverseGamma": lambda: pm.InverseGamma.dist(3.0, 1.0),
    "LogNormal": lambda: pm.LogNormal.dist(0.0, 0.5),
    "Weibull": lambda: pm.Weibull.dist(2.0, 1.0),
    "TruncatedNormal": lambda: pm.TruncatedNormal.dist(0.5, 1.0, lower=0.0),
}


def observed(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


def lkj(name, n, **kwargs):
    return pm.LKJCholeskyCov(name, n=n, eta=2.0, sd_dist=pm.Exponential.dist(1.0), **kwargs)


def sd_dists(names):
    for name in names:
        pm.LKJCholeskyCov(name, n=3, eta=1.5, sd_dist=SD_DISTS[name]())


# In two, since NumPy does not add up as many terms as all of them have.
def half_of_the_sd_dists():
    sd_dists([*SD_DISTS][:5])


def the_other_sd_dists():
    sd_dists([*SD_DISTS][5:])


def every_size():
    for n in (2, 7, 30):
        pm.LKJCorr(f"corr{n}", n=n, eta=2.0)
        lkj(f"chol{n}", n)


def varying_effects():
    """Three blocks: packed and full, products from either side."""
    a, _, _ = lkj("a", 2)
    b = pm.math.expand_packed_triangular(2, lkj("b", 2, compute_corr=False))
    c = pm.LKJCorr("c", n=3, eta=1.0) * pm.HalfNormal("sd", shape=3)[:, None]
    za, zc = pm.Normal("za", shape=(GROUPS, 2)), pm.Normal("zc", shape=(GROUPS, 3))
    zb = pm.Normal("zb", shape=(2, GROUPS))
    ea, eb, ec = (za @ a.T)[GROUP], (b @ zb)[:, GROUP], pt.dot(zc, c.T)[GROUP]
    mean = ea[:, 0] + ea[:, 1] * X + eb[0] + eb[1] * X + ec[:, 0] + ec[:, 1] * X + ec[:, 2] * X**2
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=observed(ROWS))


def centered_effects():
    chol, _, _ = lkj("chol", 2)
    effects = pm.MvNormal("effects", pm.Normal("mean", shape=2), chol=chol, shape=(GROUPS, 2))
    mean = effects[GROUP, 0] + effects[GROUP, 1] * X
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=observed(ROWS))


def walks_and_heavy_tails():
    """Effects that follow one another, and effects with heavy tails, under a Poisson."""
    chol, _, _ = lkj("chol", 2)
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    mu = np.zeros(2)
    walk = pm.MvGaussianRandomWalk("walk", mu, chol=chol, init_dist=start, shape=(ROWS, 2))
    tails = pm.MvStudentT("tails", nu=5.0, mu=mu, scale=chol @ chol.T, shape=(GROUPS, 2))
    mean = walk[:, 0] + walk[:, 1] * X + tails[GROUP, 0] + tails[GROUP, 1] * X
    pm.Poisson("y", pt.exp(mean), observed=GROUP)


def mv_normals():
    """The same likelihood by factor, by covariance in three ways, and by precision."""
    chol, corr, stds = lkj("chol", 3)
    factor, sd = pm.LKJCorr("factor", n=3, eta=2.0), pm.HalfNormal("sd", shape=3)
    y = observed(4, 3)
    pm.MvNormal("by_chol", np.zeros(3), chol=pt.diag(sd) @ factor, observed=y)
    pm.MvNormal("by_cov", np.zeros(3), cov=chol @ chol.T, observed=y)
    scaled = sd[:, None] * (factor @ factor.T) * sd
    pm.MvNormal("by_scaled", np.zeros(3), cov=scaled, observed=y)
    own = pt.diag(stds) @ corr @ pt.diag(stds)
    pm.MvNormal("by_corr", np.zeros(3), cov=own, observed=y)
    pm.MvNormal("by_tau", np.zeros(3), tau=chol @ chol.T, observed=y[0])


def other_likelihoods():
    chol, _, _ = lkj("chol", 3)
    columns, _, _ = lkj("columns", 2)
    nu = pm.Gamma("nu", 2.0, 0.1)
    pm.MvStudentT("by_chol", nu=nu, mu=np.zeros(3), chol=chol, observed=observed(4, 3))
    pm.MvStudentT("by_scale", nu=nu, mu=np.ones(3), scale=chol @ chol.T, observed=observed(4, 3))
    pm.MatrixNormal(
        "matrix", mu=np.zeros((3, 2)), rowchol=chol, colchol=columns, observed=observed(3, 2)
    )
    covs = {"rowcov": chol @ chol.T, "colcov": columns @ columns.T}
    pm.MatrixNormal("matrix_by_cov", mu=np.ones((3, 2)), **covs, observed=observed(3, 2))


def kronecker_normal():
    a, b = (lkj(name, n, compute_corr=False) for name, n in (("a", 3), ("b", 2)))
    factors = [pm.math.expand_packed_triangular(n, x) for n, x in ((3, a), (2, b))]
    covs = [factor @ factor.T for factor in factors]
    pm.KroneckerNormal("y", mu=np.zeros(6), covs=covs, sigma=0.1, observed=observed(4, 6))


def covariances_of_parts():
    """Covariances that are no product of a factor: low rank and noise, and a Kronecker product and noise."""
    loadings, noise = pm.Normal("loadings", shape=(4, 2)), pm.HalfNormal("noise", shape=4)
    pm.MvNormal(
        "low_rank", np.zeros(4), cov=loadings @ loadings.T + pt.diag(noise), observed=observed(9, 4)
    )
    a, b = (lkj(name, n)[0] for name, n in (("a", 3), ("b", 2)))
    product = pt.linalg.kron(a @ a.T, b @ b.T) + pt.diag(pm.HalfNormal("nugget", shape=6))
    pm.MvNormal("kronecker", np.zeros(6), cov=product, observed=observed(5, 6))


def batches():
    """Triangles of two variables and of three, in one batch axis and in two."""
    pm.LKJCorr("pairs", n=2, eta=1.0, shape=(4, 2, 2))
    pm.LKJCorr("grid", n=4, eta=1.0, shape=(2, 3, 4, 4))
    factors = pm.LKJCorr("factors", n=3, eta=2.0, shape=(5, 3, 3))
    z = pm.Normal("z", shape=(5, 3, 1))
    pm.Normal("y", (factors @ z)[..., 0], 1.0, observed=observed(5, 3))


MODELS = (
    half_of_the_sd_dists,
    the_other_sd_dists,
    every_size,
    varying_effects,
    centered_effects,
    walks_and_heavy_tails,
    mv_normals,
    other_likelihoods,
    kronecker_normal,
    covariances_of_parts,
    batches,
)


def in_model(build):
    with pm.Model() as model:
        build()
    return model


def upstream(model):
    """Return logp and gradient without the plugin, operation by operation in NumPy."""
    inputs = model.continuous_value_vars
    logp = pregrad(model.logp(), on=False)
    gradient = pt.concatenate([pytensor.grad(logp, v).ravel() for v in inputs])
    function = pytensor.function(inputs, [logp, gradient], mode=PYTHON)
    return lambda point: function(**{v.name: point[v.name] for v in inputs})


@pytest.fixture(scope="module", params=MODELS, ids=lambda build: build.__name__)
def sides(request):
    """Upstream's function, the plugin's, and the initial point of a model."""
    off, model = upstream(in_model(request.param)), in_model(request.param)
    with switched(True):
        on = model.logp_dlogp_function(mode=by_kernels(), ravel_inputs=True)
    on.set_extra_values({})
    return off, on, model.initial_point()


def test_model_is_one_kernel(sides):
    _, on, _ = sides
    [node] = on._pytensor_function.maker.fgraph.apply_nodes
    assert isinstance(node.op, FusedKernel)


def test_value_and_gradient(sides):
    off, on, start = sides
    rng = np.random.default_rng(3)
    for _ in range(3):
        point = {name: x + 0.5 * rng.normal(size=np.shape(x)) for name, x in start.items()}
        logp, gradient = off(point)
        found, found_gradient = on(np.concatenate([np.ravel(x) for x in point.values()]))
        np.testing.assert_allclose(found, logp, rtol=1e-12)
        largest = np.abs(gradient).max()
        np.testing.assert_allclose(found_gradient, gradient, rtol=1e-11, atol=1e-13 * largest)


@pytest.mark.parametrize("on", [False, True])
def test_deterministics_that_nothing_uses_are_not_in_logp(on):
    models = (in_model(partial(lkj, "chol", 3, compute_corr=compute)) for compute in (True, False))
    with_them, without = (sketch(pregrad(model.logp(), on=on)) for model in models)
    assert with_them == without


@pytest.mark.parametrize("shape", [(60, 60), (1000, 3, 3)])
def test_a_large_prior_has_no_matrix(shape):
    model = in_model(lambda: pm.LKJCorr("corr", n=shape[-1], eta=2.0, shape=shape))
    off, on = (largest_in(pregrad(model.logp(), on=on)) for on in (False, True))
    [entries] = model.initial_point().values()
    assert on <= max(entries.size, prod(shape[:-1])) < prod(shape) <= off


def largest_in(graph):
    """Return the largest number of entries of what is computed in a graph; a length that is not known counts as infinite."""
    computed = [v for v in ancestors([graph]) if v.owner and hasattr(v.type, "shape")]
    return max(prod(inf if n is None else n for n in v.type.shape) for v in computed)
