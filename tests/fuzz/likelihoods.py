"""Table of likelihoods of a linear predictor, with simulated data."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from tests.fuzz.compositions import COMPOSITIONS, rate
from tests.fuzz.draw import POSITIVE, REAL, UNIT, Draw

# Stands before the name of a likelihood, since priors have names of that kind, too.
OBSERVED = "observed: "
# Of counts of a known number of trials.
MOST = 12


def observe(draw: Draw, eta: TensorVariable) -> None:
    """Add a likelihood, or several that share the predictor, or have more than that."""
    draw.pick(LIKELIHOODS, OBSERVED)(draw, "y0", eta)
    for k in range(1, 3):
        if draw.chance(0.2):
            other = eta if draw.chance(0.5) else draw.prior(REAL) * eta + draw.predictor()
            draw.pick(LIKELIHOODS, OBSERVED)(draw, f"y{k}", other)


def _real(draw: Draw) -> np.ndarray:
    y = draw.rng.normal(0.5, 2.0, size=draw.n)
    others = [np.round(y), y.astype("float32"), y.astype("int64"), np.full(draw.n, 1.5), 1e3 + y]
    return draw.choice([y, *others])


def _positive(draw: Draw) -> np.ndarray:
    y = draw.rng.gamma(2.0, 1.0, size=draw.n) + 1e-3
    return draw.choice([y, np.ceil(y), y.astype("float32")])


def _counts(draw: Draw) -> np.ndarray:
    mean = draw.choice([0.5, 3.0, 1000.0, 1e6, 1e9])
    draw.chosen.append(f"counts around {mean:g}")
    y = draw.rng.poisson(mean, size=draw.n)
    return y.astype(draw.choice(["int64", "int32", "int16"] if mean < 1e4 else ["int64", "int32"]))


def _binary(draw: Draw) -> np.ndarray:
    y = draw.rng.random(draw.n) < draw.choice([0.05, 0.5, 1.0])
    return draw.choice([y, y.astype("int64"), y.astype("int8")])


def _unit(draw: Draw) -> np.ndarray:
    return draw.rng.uniform(0.01, 0.99, size=draw.n)


def _angle(draw: Draw) -> np.ndarray:
    return draw.rng.uniform(-np.pi, np.pi, size=draw.n)


def _few(draw: Draw) -> np.ndarray:
    return draw.rng.integers(0, MOST + 1, size=draw.n)


def _trials_until(draw: Draw) -> np.ndarray:
    return _few(draw) + 1


def _trials(draw: Draw, y: np.ndarray) -> np.ndarray:
    return y + draw.rng.integers(0, 4, size=draw.n)


def _imputed(draw: Draw, name: str, eta: TensorVariable) -> None:
    y = _real(draw).astype("float64")
    y[draw.rng.random(draw.n) < 0.3] = np.nan
    pm.Normal(name, eta, draw.prior(POSITIVE), observed=y)


def _binomial(draw: Draw, name: str, eta: TensorVariable) -> None:
    y = _counts(draw)
    pm.Binomial(name, n=_trials(draw, y), logit_p=eta, observed=y)


def _beta_binomial(draw: Draw, name: str, eta: TensorVariable) -> None:
    y = _counts(draw)
    pm.BetaBinomial(
        name, n=_trials(draw, y), alpha=rate(eta), beta=draw.prior(POSITIVE), observed=y
    )


def _ordered(draw: Draw, name: str, eta: TensorVariable) -> None:
    cuts = pm.Normal(
        f"{name}_cuts",
        0,
        2,
        shape=3,
        transform=pm.distributions.transforms.ordered,
        initval=np.array([-1.0, 0.0, 1.0], dtype=pytensor.config.floatX),
    )
    y = draw.rng.integers(0, 4, size=draw.n)
    pm.OrderedLogistic(name, eta=eta, cutpoints=cuts, compute_p=False, observed=y)


def _categorical(draw: Draw, name: str, eta: TensorVariable) -> None:
    others = draw.prior(REAL, (2,))
    logits = pt.concatenate([eta[:, None], pt.broadcast_to(others, (draw.n, 2))], axis=1)
    pm.Categorical(name, logit_p=logits, observed=draw.rng.integers(0, 3, size=draw.n))


def _of(distribution, data, **parameters):
    """Return a row of the table: a distribution, its data, and how each parameter comes from the predictor or from a prior."""

    def observe_(draw: Draw, name: str, eta: TensorVariable) -> None:
        given = {key: make(draw, eta) for key, make in parameters.items()}
        distribution(name, **given, observed=data(draw))

    return observe_


def _eta(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return eta


def _exp(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return rate(eta)


def _some_positive(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return draw.prior(POSITIVE)


def _some_unit(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return draw.prior(UNIT)


def _sigmoid(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return pt.sigmoid(eta)


def _angle_of(draw: Draw, eta: TensorVariable) -> TensorVariable:
    return 2 * pt.arctan(eta)


def _zero(draw: Draw, eta: TensorVariable) -> float:
    return 0.0


def _one(draw: Draw, eta: TensorVariable) -> float:
    return 1.0


def _least(draw: Draw, eta: TensorVariable) -> float:
    return 1e-3


def _most(draw: Draw, eta: TensorVariable) -> int:
    return MOST


LIKELIHOODS = {
    "Normal": _of(pm.Normal, _real, mu=_eta, sigma=_some_positive),
    "Normal, sigma by row": _of(pm.Normal, _real, mu=_eta, sigma=_exp),
    "StudentT": _of(pm.StudentT, _real, nu=_some_positive, mu=_eta, sigma=_some_positive),
    "Laplace": _of(pm.Laplace, _real, mu=_eta, b=_some_positive),
    "Cauchy": _of(pm.Cauchy, _real, alpha=_eta, beta=_some_positive),
    "Logistic": _of(pm.Logistic, _real, mu=_eta, s=_some_positive),
    "Gumbel": _of(pm.Gumbel, _real, mu=_eta, beta=_some_positive),
    "SkewNormal": _of(pm.SkewNormal, _real, mu=_eta, sigma=_some_positive, alpha=_some_positive),
    "AsymmetricLaplace": _of(pm.AsymmetricLaplace, _real, mu=_eta, b=_some_positive, kappa=_exp),
    "SkewStudentT": _of(
        pm.SkewStudentT, _real, a=_some_positive, b=_some_positive, mu=_eta, sigma=_some_positive
    ),
    "ExGaussian": _of(pm.ExGaussian, _real, mu=_eta, sigma=_some_positive, nu=_some_positive),
    "Moyal": _of(pm.Moyal, _real, mu=_eta, sigma=_some_positive),
    "VonMises": _of(pm.VonMises, _angle, mu=_angle_of, kappa=_some_positive),
    "HalfNormal": _of(pm.HalfNormal, _positive, sigma=_exp),
    "HalfCauchy": _of(pm.HalfCauchy, _positive, beta=_exp),
    "HalfStudentT": _of(pm.HalfStudentT, _positive, nu=_some_positive, sigma=_exp),
    "ChiSquared": _of(pm.ChiSquared, _positive, nu=_exp),
    "Rice": _of(pm.Rice, _positive, nu=_exp, sigma=_some_positive),
    "Pareto": _of(pm.Pareto, _positive, alpha=_exp, m=_least),
    "TruncatedNormal": _of(
        pm.TruncatedNormal, _positive, mu=_eta, sigma=_some_positive, lower=_zero
    ),
    "Gamma": _of(pm.Gamma, _positive, mu=_exp, sigma=_some_positive),
    "Gamma, alpha": _of(pm.Gamma, _positive, alpha=_exp, beta=_some_positive),
    "InverseGamma": _of(pm.InverseGamma, _positive, alpha=_some_positive, beta=_exp),
    "LogNormal": _of(pm.LogNormal, _positive, mu=_eta, sigma=_some_positive),
    "Weibull": _of(pm.Weibull, _positive, alpha=_some_positive, beta=_exp),
    "Exponential": _of(pm.Exponential, _positive, lam=_exp),
    "Wald": _of(pm.Wald, _positive, mu=_exp, lam=_some_positive),
    "Poisson": _of(pm.Poisson, _counts, mu=_exp),
    "NegativeBinomial": _of(pm.NegativeBinomial, _counts, mu=_exp, alpha=_some_positive),
    "ZeroInflatedPoisson": _of(pm.ZeroInflatedPoisson, _counts, psi=_some_unit, mu=_exp),
    "ZeroInflatedNegativeBinomial": _of(
        pm.ZeroInflatedNegativeBinomial, _counts, psi=_some_unit, mu=_exp, alpha=_some_positive
    ),
    "HurdlePoisson": _of(pm.HurdlePoisson, _counts, psi=_some_unit, mu=_exp),
    "HurdleNegativeBinomial": _of(
        pm.HurdleNegativeBinomial, _counts, psi=_some_unit, mu=_exp, alpha=_some_positive
    ),
    "HurdleLogNormal": _of(
        pm.HurdleLogNormal, _positive, psi=_some_unit, mu=_eta, sigma=_some_positive
    ),
    "HurdleGamma": _of(pm.HurdleGamma, _positive, psi=_some_unit, alpha=_some_positive, beta=_exp),
    "Bernoulli": _of(pm.Bernoulli, _binary, logit_p=_eta),
    "Bernoulli, p": _of(pm.Bernoulli, _binary, p=_sigmoid),
    "Beta": _of(pm.Beta, _unit, alpha=_exp, beta=_some_positive),
    "Kumaraswamy": _of(pm.Kumaraswamy, _unit, a=_exp, b=_some_positive),
    "LogitNormal": _of(pm.LogitNormal, _unit, mu=_eta, sigma=_some_positive),
    "Triangular": _of(pm.Triangular, _unit, lower=_zero, c=_sigmoid, upper=_one),
    "Geometric": _of(pm.Geometric, _trials_until, p=_sigmoid),
    "DiscreteWeibull": _of(pm.DiscreteWeibull, _few, q=_sigmoid, beta=_some_positive),
    "ZeroInflatedBinomial": _of(pm.ZeroInflatedBinomial, _few, psi=_some_unit, n=_most, p=_sigmoid),
    "Binomial": _binomial,
    "BetaBinomial": _beta_binomial,
    "imputed": _imputed,
    "OrderedLogistic": _ordered,
    "Categorical": _categorical,
    **COMPOSITIONS,
}
