"""Small models whose direct callbacks are compared with those of nutpie."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scan.utils import until

RNG = np.random.default_rng(20261122)
GROUP = RNG.integers(5, size=60)
X = RNG.normal(size=60)
GRADE = RNG.integers(3, size=60)
DESIGN = RNG.normal(size=(60, 40))
Y = 1.0 + 0.5 * X + RNG.normal(size=60)


def one_number() -> pm.Model:
    with pm.Model() as model:
        pm.Normal("x")
    return model


def hierarchy() -> pm.Model:
    """Data, dims, transforms, a deterministic: what most models have."""
    with pm.Model(coords={"county": list("abcde")}) as model:
        x, group = pm.Data("x", X), pm.Data("group", GROUP)
        mu, sigma_a = pm.Normal("mu"), pm.HalfNormal("sigma_a")
        raw = pm.Normal("raw", dims="county")
        a = pm.Deterministic("a", mu + sigma_a * raw, dims="county")
        b = pm.Normal("b")
        sigma = pm.Exponential("sigma", 1)
        pm.Normal("y", a[group] + b * x, sigma, observed=Y)
    return model


def correlated() -> pm.Model:
    """A Cholesky prior, and a likelihood that calls BLAS."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=pm.Exponential.dist(1))
        z = pm.Normal("z", shape=(5, 2))
        effects = z @ chol.T
        pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X, 1, observed=Y)
    return model


def constrained() -> pm.Model:
    """Ordered and bounded parameters, a mixture, counts."""
    with pm.Model() as model:
        cut = pm.Normal(
            "cut",
            np.array([-1.0, 1.0]),
            1,
            transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 1.0],
        )
        p = pm.Beta("p", 1, 1)
        pm.OrderedLogistic("grade", eta=p * X, cutpoints=cut, observed=GRADE)
        weights = pm.Dirichlet("weights", np.ones(2))
        pm.NormalMixture("mix", weights, np.array([-1.0, 1.0]), np.array([1.0, 2.0]), observed=Y)
    return model


def regression() -> pm.Model:
    """Enough columns that a product with the design matrix is one of BLAS."""
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=40)
        pm.Bernoulli("y", logit_p=DESIGN @ beta, observed=Y > 1)
    return model


def series() -> pm.Model:
    """A recursion over time."""
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.1)
        states = pytensor.scan(
            lambda x, before, rho: rho * pt.tanh(before) + x,
            sequences=[pt.as_tensor(X[:20])],
            outputs_info=[pt.zeros(())],
            non_sequences=[rho],
            return_updates=False,
        )
        pm.Normal("y", states, 1, observed=Y[:20])
    return model


def ranks() -> pm.Model:
    """A recursion that sorts, which no kernel takes."""
    with pm.Model() as model:
        start = pm.Normal("start", shape=3)
        states = pytensor.scan(
            lambda x, before: pt.sort(0.5 * before) + x,
            sequences=[pt.as_tensor(X[:20])],
            outputs_info=[start],
            return_updates=False,
        )
        pm.Normal("y", states[:, 0], 1, observed=Y[:20])
    return model


SQUARE = RNG.normal(size=(6, 6))
POSITIVE = SQUARE @ SQUARE.T + np.eye(6)


def spectrum() -> pm.Model:
    """An eigenvalue decomposition between two kernels, also in what is stored."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=6)
        values, vectors = pt.linalg.eigh(POSITIVE + pt.outer(a, a))
        mean = pm.Deterministic("mean", vectors @ (pt.exp(-values) * a))
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y[:6])
    return model


def system() -> pm.Model:
    """A system of equations with a general matrix, and a sort."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=6)
        mean = pt.linalg.solve(SQUARE + pt.diag(pt.exp(a)), pt.sort(a))
        pm.Normal("y", mean, 1, observed=Y[:6])
    return model


def volume() -> pm.Model:
    """The logarithm of a determinant, whose gradient has an inverse: it raises where the matrix is singular."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=6)
        pm.Potential("p", -pt.linalg.slogdet(POSITIVE * a[:, None])[1])
    return model


def stopped() -> pm.Model:
    """A recursion that may end early."""
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 1)
        states = pytensor.scan(
            lambda before, rho: (rho * pt.tanh(before) + 1, until(before > 2)),
            outputs_info=[pt.zeros(())],
            non_sequences=[rho],
            n_steps=20,
            return_updates=False,
        )
        pm.Normal("y", states[-1], 1, observed=0.3)
    return model


class Cube(Op):
    """An Op of a user, in Python; it raises for what is larger than a million."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        [x] = inputs
        if (abs(x) > 1e6).any():
            raise ValueError("too large")
        output_storage[0][0] = x**3

    def pullback(self, inputs, outputs, cotangents):
        return [3 * inputs[0] ** 2 * cotangents[0]]


def own() -> pm.Model:
    with pm.Model() as model:
        a = pm.Normal("a", shape=6)
        pm.Normal("y", Cube()(pt.exp(a)), pm.HalfNormal("sigma"), observed=Y[:6])
    return model


DIRECT = (one_number, hierarchy, correlated, constrained, regression, series)
# Those with a graph that is more than a kernel.
BY_NUMBA = (spectrum, system, volume, ranks, stopped, own)
