"""Models of groups and a slope, of some data."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(20261123)
N, GROUPS = 50, 4
GROUP = RNG.integers(GROUPS, size=N)
X = RNG.normal(size=N).round(1)
NORMAL = RNG.normal(size=N).round(1)

OBSERVED = {
    "normal": NORMAL,
    "student": NORMAL,
    "censored": NORMAL.clip(-1, 1),
    "gamma": np.abs(NORMAL) + 0.1,
    "poisson": RNG.poisson(2, size=N),
    "negative binomial": RNG.poisson(2, size=N),
    "bernoulli": RNG.integers(2, size=N),
    "binomial": RNG.integers(6, size=N),
}


def observe(kind: str, eta: pt.TensorVariable, y: np.ndarray) -> None:
    """Add a likelihood to the model of the context."""
    match kind:
        case "normal":
            pm.Normal("y", eta, pm.HalfNormal("noise"), observed=y)
        case "student":
            pm.StudentT("y", nu=4, mu=eta, sigma=1, observed=y)
        case "censored":
            pm.Censored("y", pm.Normal.dist(eta, 1), -1, 1, observed=y)
        case "gamma":
            pm.Gamma("y", alpha=2, beta=pt.exp(eta), observed=y)
        case "poisson":
            pm.Poisson("y", pt.exp(eta), observed=y)
        case "negative binomial":
            pm.NegativeBinomial("y", pt.exp(eta), 2.0, observed=y)
        case "bernoulli":
            pm.Bernoulli("y", logit_p=eta, observed=y)
        case "binomial":
            pm.Binomial("y", n=5, logit_p=eta, observed=y)


def grouped(
    kind: str = "normal",
    x: np.ndarray = X,
    group: np.ndarray = GROUP,
    y: np.ndarray | None = None,
    as_data: bool = False,
) -> pm.Model:
    """Return a model; its covariate and groups are constants, or data that may be replaced."""
    y = OBSERVED[kind] if y is None else y
    with pm.Model() as model:
        if as_data:
            x, group = pm.Data("x", x), pm.Data("group", group)
        a = pm.Normal("a", 0, pm.HalfNormal("sigma_a"), shape=GROUPS)
        observe(kind, a[group] + pm.Normal("b") * x, y)
    return model
