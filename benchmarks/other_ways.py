"""Models of the suite written the other way by hand: centered instead of non-centered, and the reverse.

One function for each module of :mod:`benchmarks.models`, with the arguments of the module's ``make``. :data:`EFFECTS` maps effects of the suite to their
names here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm

from benchmarks import data
from benchmarks.models import calendar_year as calendar_year_model
from benchmarks.models import contraception as contraception_model
from benchmarks.models import eight_schools as eight_schools_model
from benchmarks.models import epilepsy as epilepsy_model
from benchmarks.models import frailty as frailty_model
from benchmarks.models import lkj_slopes as lkj_slopes_model
from benchmarks.models import mrp as mrp_model
from benchmarks.models import negative_binomial as negative_binomial_model
from benchmarks.models import ordered_logit as ordered_logit_model
from benchmarks.models import poisson as poisson_model
from benchmarks.models import schools_and_areas as schools_and_areas_model
from benchmarks.models import student_t as student_t_model
from benchmarks.models import varying_slope as varying_slope_model
from benchmarks.models import zero_sum as zero_sum_model
from case_studies import sleepstudy_model


def radon(rows: int | None = None) -> pm.Model:
    """Return the model with centered intercepts and slopes."""
    houses = data.radon(rows)
    with pm.Model(coords={"county": houses.counties}) as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 2), pm.Normal("mu_b", 0, 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        a = pm.Normal("a", mu_a, sigma_a, dims="county")
        b = pm.Normal("b", mu_b, sigma_b, dims="county")
        sigma = pm.HalfNormal("sigma", 1)
        eta = a[houses.county] + b[houses.county] * houses.floor
        pm.Normal("log_radon", eta, sigma, observed=houses.log_radon)
    return model


def varying_slope(rows: int) -> pm.Model:
    """Return the model with non-centered intercepts and slopes."""
    group, x, y = varying_slope_model.simulate(rows)
    with pm.Model(coords={"group": range(varying_slope_model.GROUPS)}) as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 2), pm.Normal("mu_b", 0, 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        a_raw, b_raw = pm.Normal("a_raw", dims="group"), pm.Normal("b_raw", dims="group")
        a = pm.Deterministic("a", mu_a + sigma_a * a_raw, dims="group")
        b = pm.Deterministic("b", mu_b + sigma_b * b_raw, dims="group")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", a[group] + b[group] * x, sigma, observed=y)
    return model


def eight_schools() -> pm.Model:
    """Return the model with centered effects."""
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, dims="school")
        error = eight_schools_model.STANDARD_ERROR
        pm.Normal("y", theta, error, observed=eight_schools_model.EFFECT, dims="school")
    return model


def lkj_slopes(rows: int) -> pm.Model:
    """Return the model with centered coefficients."""
    group, design, y = lkj_slopes_model.simulate(rows)
    n = lkj_slopes_model.COEFFICIENTS
    coords = {"group": range(lkj_slopes_model.GROUPS), "coefficient": range(n)}
    with pm.Model(coords=coords) as model:
        mu0 = pm.Normal("mu0", dims="coefficient")
        chol, _, _ = pm.LKJCholeskyCov("chol", n=n, eta=2, sd_dist=pm.Exponential.dist(1, shape=n))
        beta = pm.MvNormal("beta", mu0, chol=chol, dims=("group", "coefficient"))
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", (beta[group] * design).sum(-1), sigma, observed=y)
    return model


def sleepstudy() -> pm.Model:
    """Return the model with centered effects."""
    study = sleepstudy_model.data()
    coords = {"subject": study.subjects, "effect": ["intercept", "slope"]}
    with pm.Model(coords=coords) as model:
        mean = pm.Normal("mean", mu=[250.0, 0.0], sigma=[100.0, 25.0], dims="effect")
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(sigma=[50.0, 15.0])
        )
        effects = pm.MvNormal("effects", mean, chol=chol, dims=("subject", "effect"))
        sigma = pm.HalfNormal("sigma", sigma=50.0)
        expected = effects[study.subject, 0] + effects[study.subject, 1] * study.days
        pm.Normal("reaction", mu=expected, sigma=sigma, observed=study.reaction)
    return model


def ordered_logit() -> pm.Model:
    """Return the model with centered intercepts."""
    group, x, y = ordered_logit_model.simulate()
    coords = {
        "group": range(ordered_logit_model.GROUPS),
        "cutpoint": range(len(ordered_logit_model.CUTPOINTS)),
    }
    with pm.Model(coords=coords) as model:
        cutpoints = pm.Normal(
            "cutpoints",
            0,
            2,
            transform=pm.distributions.transforms.ordered,
            initval=ordered_logit_model.CUTPOINTS,
            dims="cutpoint",
        )
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, dims="group")
        eta = a[group] + pm.Normal("b") * x
        pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, compute_p=False, observed=y)
    return model


def contraception() -> pm.Model:
    """Return the model with centered intercepts and slopes."""
    survey = contraception_model.load()
    coords = {"district": survey.districts, "column": contraception_model.COLUMNS}
    with pm.Model(coords=coords) as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 2), pm.Normal("mu_b", 0, 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        a = pm.Normal("a", mu_a, sigma_a, dims="district")
        b = pm.Normal("b", mu_b, sigma_b, dims="district")
        beta = pm.Normal("beta", dims="column")
        slope = b[survey.district] * survey.urban
        eta = a[survey.district] + slope + survey.columns @ beta
        pm.Bernoulli("use", logit_p=eta, observed=survey.uses)
    return model


def mrp(rows: int) -> pm.Model:
    """Return the model with centered effects."""
    indices, is_male, answers = mrp_model.simulate(rows)
    with pm.Model(coords={name: range(n) for name, n in mrp_model.LEVELS.items()}) as model:
        eta = pm.Normal("intercept", 0, 1.5) + pm.Normal("male", 0, 1) * is_male
        for factor, index in indices.items():
            sigma = pm.HalfNormal(f"sigma_{factor}", 1)
            eta += pm.Normal(f"a_{factor}", 0, sigma, dims=factor)[index]
        pm.Bernoulli("y", logit_p=eta, observed=answers)
    return model


def insteval() -> pm.Model:
    """Return the model with non-centered effects."""
    ratings = data.insteval()
    coords = {"student": ratings.students, "lecturer": ratings.lecturers}
    with pm.Model(coords=coords) as model:
        mu, b = pm.Normal("mu", 3, 1), pm.Normal("b")
        sigma_s, sigma_d = pm.HalfNormal("sigma_s", 1), pm.HalfNormal("sigma_d", 1)
        s_raw, d_raw = pm.Normal("s_raw", dims="student"), pm.Normal("d_raw", dims="lecturer")
        s = pm.Deterministic("s", sigma_s * s_raw, dims="student")
        d = pm.Deterministic("d", sigma_d * d_raw, dims="lecturer")
        sigma = pm.HalfNormal("sigma", 1)
        eta = mu + b * ratings.service + s[ratings.student] + d[ratings.lecturer]
        pm.Normal("rating", eta, sigma, observed=ratings.rating)
    return model


def negative_binomial() -> pm.Model:
    """Return the model with centered intercepts."""
    group, x, y = negative_binomial_model.simulate()
    with pm.Model(coords={"group": range(negative_binomial_model.GROUPS)}) as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, dims="group")
        b, alpha = pm.Normal("b"), pm.Gamma("alpha", 2, 0.5)
        pm.NegativeBinomial("y", mu=pm.math.exp(a[group] + b * x), alpha=alpha, observed=y)
    return model


def poisson() -> pm.Model:
    """Return the model with centered intercepts."""
    group, x, y = poisson_model.simulate()
    with pm.Model(coords={"group": range(poisson_model.GROUPS)}) as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, dims="group")
        pm.Poisson("y", pm.math.exp(a[group] + pm.Normal("b") * x), observed=y)
    return model


def student_t() -> pm.Model:
    """Return the model with centered intercepts."""
    group, x, y = student_t_model.simulate()
    with pm.Model(coords={"group": range(student_t_model.GROUPS)}) as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
        a = pm.Normal("a", mu, tau, dims="group")
        b, sigma, nu = pm.Normal("b"), pm.HalfNormal("sigma", 1), pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=a[group] + b * x, sigma=sigma, observed=y)
    return model


def epilepsy() -> pm.Model:
    """Return the model with centered effects of patients and counts."""
    trial = epilepsy_model.load()
    coords = {
        "column": epilepsy_model.COLUMNS,
        "patient": range(trial.patient.max() + 1),
        "count": range(len(trial.seizures)),
    }
    with pm.Model(coords=coords) as model:
        beta = pm.Normal("beta", 0, 2, dims="column")
        sigma_b, sigma_e = pm.HalfNormal("sigma_b", 1), pm.HalfNormal("sigma_e", 1)
        patient = pm.Normal("a_b", 0, sigma_b, dims="patient")
        count = pm.Normal("a_e", 0, sigma_e, dims="count")
        eta = trial.columns @ beta + patient[trial.patient] + count
        pm.Poisson("seizures", pm.math.exp(eta), observed=trial.seizures)
    return model


def frailty() -> pm.Model:
    """Return the model with non-centered frailties."""
    coords = {"hospital": range(frailty_model.HOSPITALS), "column": ["age", "treated"]}
    with pm.Model(coords=coords) as model:
        tau, raw = pm.HalfNormal("tau", 1), pm.Normal("raw", dims="hospital")
        a = pm.Deterministic("a", tau * raw, dims="hospital")
        frailty_model.likelihood(a, *frailty_model.simulate())
    return model


def zero_sum() -> pm.Model:
    """Return the model with standardized effects that sum to zero."""
    indices, y = zero_sum_model.simulate()
    with pm.Model(coords={x: range(n) for x, n in zero_sum_model.LEVELS.items()}) as model:
        eta = pm.Normal("mu", 0, 2)
        for factor, index in indices.items():
            tau, raw = (
                pm.HalfNormal(f"tau_{factor}", 1),
                pm.ZeroSumNormal(f"raw_{factor}", dims=factor),
            )
            eta += pm.Deterministic(f"a_{factor}", tau * raw, dims=factor)[index]
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    return model


def calendar_year() -> pm.Model:
    """Return the model with centered columns, which is the same since the level has the mean that an intercept of mean 0 gives it."""
    x, y = calendar_year_model.simulate()
    mean = x.mean(axis=0)
    with pm.Model(coords={"column": calendar_year_model.COLUMNS}) as model:
        beta = pm.Normal("beta", 0, calendar_year_model.OF_SLOPES, dims="column")
        level = pm.Normal("level", mean @ beta, calendar_year_model.OF_INTERCEPT)
        pm.Deterministic("intercept", level - mean @ beta)
        pm.Normal("y", level + (x - mean) @ beta, pm.HalfNormal("sigma", 5), observed=y)
    return model


def schools_and_areas() -> pm.Model:
    """Return the model with centered effects."""
    indices, x, y = schools_and_areas_model.simulate()
    coords = {name: range(n) for name, n in schools_and_areas_model.LEVELS.items()}
    with pm.Model(coords=coords) as model:
        eta = pm.Normal("mu", 5, 2) + pm.Normal("b") * x
        for factor, index in indices.items():
            tau = pm.HalfNormal(f"tau_{factor}", 1)
            eta += pm.Normal(f"a_{factor}", 0, tau, dims=factor)[index]
        pm.Normal("y", eta, pm.HalfNormal("sigma", 1), observed=y)
    return model


def _product(scale: str, raw: str) -> Callable[[Any], Any]:
    return lambda posterior: posterior[scale] * posterior[raw]


def _shifted(mean: str, scale: str, raw: str) -> Callable[[Any], Any]:
    return lambda posterior: posterior[mean] + posterior[scale] * posterior[raw]


def _coefficients(posterior: Any) -> Any:
    """Return ``mu0 + z @ chol.T`` of the draws."""
    packed, n = posterior["chol"], lkj_slopes_model.COEFFICIENTS
    chol = np.zeros((*packed.shape[:2], n, n))
    chol[..., *np.tril_indices(n)] = packed
    effects = np.einsum("cdgk,cdjk->cdgj", posterior["z"].to_numpy(), chol)
    return posterior["z"].copy(data=posterior["mu0"].to_numpy()[:, :, None] + effects)


# Effects that the suite's models do not name, by their names above.
EFFECTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "negative_binomial": {"a": _shifted("mu", "tau", "a_raw")},
    "poisson": {"a": _shifted("mu", "tau", "a_raw")},
    "student_t": {"a": _shifted("mu", "tau", "a_raw")},
    "ordered_logit": {"a": _product("tau", "a_raw")},
    "lkj_slopes": {"beta": _coefficients},
    "mrp": {f"a_{x}": _product(f"sigma_{x}", f"z_{x}") for x in mrp_model.LEVELS},
    "epilepsy": {f"a_{x}": _product(f"sigma_{x}", x) for x in "be"},
}
