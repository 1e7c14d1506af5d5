"""Recursions over time, written with ``pytensor.scan`` as users write them.

The sources are textbooks and the chapters on time series, hidden Markov models and differential equations of the Stan User's Guide;
each model names its own. Data are simulated, unless the model needs nothing but their size.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from benchmarks.gallery.registry import in_gallery


def over_time(step, sequences, states, *shared, n_steps=None):
    """Return what a step gives at each time; a state is its initial value, or None for a result that is none."""
    return pytensor.scan(
        step,
        sequences=sequences,
        outputs_info=states,
        non_sequences=shared,
        n_steps=n_steps,
        strict=True,
        return_updates=False,
    )


def autoregression(rng, *coefficients, steps):
    """Return a series with the given coefficients of the last values."""
    series = np.zeros(steps + len(coefficients))
    for t in range(len(coefficients), len(series)):
        past = series[t - len(coefficients) : t][::-1]
        series[t] = past @ coefficients + rng.normal(0, 0.5)
    return series[len(coefficients) :]


@in_gallery
def ar2_latent(rng):
    """Second-order autoregression of a latent level (Harvey, Forecasting, Structural Time Series Models, chapter 2)."""
    phi = pm.Normal("phi", 0, 0.4, shape=2)
    sigma = pm.HalfNormal("sigma", 1)
    innovation = pm.Normal("innovation", shape=200)
    state = over_time(
        lambda e, s2, s1, phi: phi[0] * s1 + phi[1] * s2 + e,
        [sigma * innovation],
        [{"initial": pt.zeros(2), "taps": [-2, -1]}],
        phi,
    )
    pm.Normal("y", state, 0.4, observed=autoregression(rng, 0.5, 0.2, steps=200))


@in_gallery
def arma_1_1(rng):
    """ARMA(1, 1) by its errors (Stan User's Guide, time series)."""
    y = autoregression(rng, 0.6, steps=200)
    mu = pm.Normal("mu", 0, 10)
    phi = pm.Normal("phi", 0, 0.5)
    theta = pm.Normal("theta", 0, 0.5)
    sigma = pm.HalfCauchy("sigma", 2.5)

    def error(y, y_before, before, mu, phi, theta):
        return y - (mu + phi * y_before + theta * before)

    first = y[0] - (mu + phi * mu)
    rest = over_time(error, [pt.as_tensor(y[1:]), pt.as_tensor(y[:-1])], [first], mu, phi, theta)
    errors = pt.concatenate([first[None], rest])
    pm.Potential("errors", pm.logp(pm.Normal.dist(0, sigma), errors).sum())


@in_gallery
def garch_1_1(rng):
    """GARCH(1, 1) of 500 returns (Stan User's Guide, time series; Bollerslev 1986)."""
    y = rng.normal(0, np.exp(0.3 * autoregression(rng, 0.8, steps=500)))
    mu = pm.Normal("mu", 0, 1)
    omega = pm.HalfNormal("omega", 1)
    alpha = pm.Beta("alpha", 1, 3)
    beta = pm.Beta("beta", 3, 1)

    def variance(y, before, mu, omega, alpha, beta):
        return omega + alpha * (y - mu) ** 2 + beta * before

    first = pt.as_tensor(np.var(y))
    rest = over_time(variance, [pt.as_tensor(y[:-1])], [first], mu, omega, alpha, beta)
    scale = pt.sqrt(pt.concatenate([first[None], rest]))
    pm.Normal("y", mu, scale, observed=y)


@in_gallery
def holt_smoothing(rng):
    """Exponential smoothing with a trend (Hyndman and Athanasopoulos, Forecasting: Principles and Practice, chapter 8)."""
    y = np.cumsum(0.2 + 0.5 * rng.normal(size=150))
    alpha = pm.Beta("alpha", 2, 2)
    beta = pm.Beta("beta", 1, 3)
    level = pm.Normal("level", y[0], 1)
    trend = pm.Normal("trend", 0, 1)

    def step(y, level, trend, alpha, beta):
        forecast = level + trend
        new_level = alpha * y + (1 - alpha) * forecast
        return new_level, beta * (new_level - level) + (1 - beta) * trend, forecast

    *_, forecast = over_time(step, [pt.as_tensor(y)], [level, trend, None], alpha, beta)
    pm.Normal("y", forecast, pm.HalfNormal("sigma", 1), observed=y)


@in_gallery
def stochastic_volatility_by_scan(rng):
    """Log volatility as a first-order autoregression (Kim, Shephard and Chib 1998; Stan User's Guide)."""
    mu = pm.Cauchy("mu", 0, 10)
    phi = pm.Uniform("phi", -1, 1)
    sigma = pm.HalfCauchy("sigma", 5)
    z = pm.Normal("z", shape=500)
    first = mu + sigma * z[0] / pt.sqrt(1 - phi**2)
    rest = over_time(
        lambda e, h, mu, phi: mu + phi * (h - mu) + e, [sigma * z[1:]], [first], mu, phi
    )
    h = pt.concatenate([first[None], rest])
    y = rng.normal(0, np.exp(0.5 * autoregression(rng, 0.9, steps=500)))
    pm.Normal("y", 0, pt.exp(h / 2), observed=y)


def lotka_volterra(state, alpha, beta, gamma, delta):
    """Return the rates of change of prey and predators."""
    prey, predators = state
    return [prey * (alpha - beta * predators), predators * (delta * prey - gamma)]


@in_gallery
def lotka_volterra_by_runge_kutta(rng):
    """Hares and lynxes over 20 years, ten steps of fourth order a year (Carpenter 2018; Stan User's Guide, ODE)."""
    rates = [pm.LogNormal(name, np.log(m), 0.3) for name, m in RATES.items()]
    start = pm.LogNormal("start", np.log(10), 1, shape=2)
    sigma = pm.LogNormal("sigma", -1, 1, shape=2)
    h = 0.1

    def step(prey, predators, *rates):
        def after(time, slope):
            return [prey + time * slope[0], predators + time * slope[1]]

        k1 = lotka_volterra([prey, predators], *rates)
        k2 = lotka_volterra(after(h / 2, k1), *rates)
        k3 = lotka_volterra(after(h / 2, k2), *rates)
        k4 = lotka_volterra(after(h, k3), *rates)
        slope = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
        return after(h, slope)

    states = over_time(step, [], [start[0], start[1]], *rates, n_steps=200)
    yearly = pt.stack([state[9::10] for state in states], axis=1)
    seen = np.exp(np.log([30, 10]) + 0.5 * rng.normal(size=(20, 2)))
    pm.LogNormal("pelts", pt.log(yearly), sigma, observed=seen)


RATES = {"alpha": 0.55, "beta": 0.028, "gamma": 0.84, "delta": 0.026}


@in_gallery
def sir_by_euler(rng):
    """Follow an epidemic in daily steps (Kermack and McKendrick 1927; Grinsztajn et al. 2021)."""
    beta = pm.LogNormal("beta", np.log(0.4), 0.5)
    gamma = pm.LogNormal("gamma", np.log(0.125), 0.2)
    infected = pm.LogNormal("infected", np.log(10), 1)
    population = 10_000.0

    def step(s, i, beta, gamma):
        new, recovered = beta * s * i / population, gamma * i
        return s - new, i + new - recovered, new

    *_, new = over_time(step, [], [population - infected, infected, None], beta, gamma, n_steps=100)
    phi = pm.Exponential("phi", 5)
    pm.NegativeBinomial("cases", mu=new, alpha=1 / phi, observed=rng.poisson(40, size=100))


@in_gallery
def hidden_markov_forward(rng):
    """Three states and normal emissions by the forward algorithm (Stan User's Guide, hidden Markov models)."""
    y = rng.normal(rng.choice([-2.0, 0.0, 2.0], size=200), 0.6)
    transition = pm.Dirichlet("transition", np.ones((3, 3)) + 2 * np.eye(3))
    mu = pm.Normal("mu", np.array([-2.0, 0.0, 2.0]), 1)
    sigma = pm.HalfNormal("sigma", 1)
    emission = pm.logp(pm.Normal.dist(mu, sigma), y[:, None])

    def step(emission, before, log_transition):
        return pt.logsumexp(before[:, None] + log_transition, axis=0) + emission

    first = emission[0] - np.log(3)
    forward = over_time(step, [emission[1:]], [first], pt.log(transition))
    pm.Potential("y", pt.logsumexp(forward[-1]))


@in_gallery
def local_level_filter(rng):
    """Filter a random walk that is observed with error (Durbin and Koopman, chapter 2)."""
    y = np.cumsum(0.3 * rng.normal(size=200)) + rng.normal(size=200)
    noise = pm.HalfNormal("noise", 1)
    walk = pm.HalfNormal("walk", 1)

    def step(y, mean, variance, noise, walk):
        total = variance + noise
        surprise = y - mean
        gain = variance / total
        term = -0.5 * (pt.log(2 * np.pi * total) + surprise**2 / total)
        return mean + gain * surprise, variance * (1 - gain) + walk, term

    start = [pt.as_tensor(np.float64(0)), pt.as_tensor(np.float64(10)), None]
    *_, terms = over_time(step, [pt.as_tensor(y)], start, noise**2, walk**2)
    pm.Potential("y", terms.sum())


@in_gallery
def ar2_filter(rng):
    """AR(2) with measurement error by its Kalman filter in matrices (Hamilton, Time Series Analysis, chapter 13)."""
    y = autoregression(rng, 0.5, 0.2, steps=200) + 0.3 * rng.normal(size=200)
    phi = pm.Normal("phi", 0, 0.4, shape=2)
    sigma = pm.HalfNormal("sigma", 1)
    noise = pm.HalfNormal("noise", 1)
    shift = pt.stack([phi, pt.as_tensor([1.0, 0.0])])
    shock = pt.diag(pt.stack([sigma**2, 0.0]))

    def step(y, mean, cov, shift, shock, noise):
        mean, cov = shift @ mean, shift @ cov @ shift.T + shock
        total = cov[0, 0] + noise
        surprise = y - mean[0]
        gain = cov[:, 0] / total
        term = -0.5 * (pt.log(2 * np.pi * total) + surprise**2 / total)
        return mean + gain * surprise, cov - pt.outer(gain, cov[0]), term

    start = [pt.zeros(2), pt.as_tensor(4 * np.eye(2)), None]
    *_, terms = over_time(step, [pt.as_tensor(y)], start, shift, shock, noise**2)
    pm.Potential("y", terms.sum())


@in_gallery
def rescorla_wagner(rng):
    """Two-armed bandit learned by 100 subjects in 200 trials (Rescorla and Wagner 1972; PyMC's example gallery)."""
    trials, subjects = 200, 100
    choice = rng.integers(0, 2, size=(trials, subjects))
    reward = rng.random((trials, subjects)) < np.where(choice, 0.7, 0.3)
    mean = pm.Normal("mean", 0, 1, shape=2)
    sd = pm.HalfNormal("sd", 0.5, shape=2)
    z = pm.Normal("z", shape=(subjects, 2))
    alpha = pm.math.sigmoid(mean[0] + sd[0] * z[:, 0])
    beta = pt.exp(mean[1] + sd[1] * z[:, 1])

    def step(choice, reward, q0, q1, alpha):
        new0 = q0 + alpha * (1 - choice) * (reward - q0)
        new1 = q1 + alpha * choice * (reward - q1)
        return new0, new1, q1 - q0

    data = [pt.as_tensor(choice.astype(float)), pt.as_tensor(reward.astype(float))]
    start = [pt.as_tensor(np.full(subjects, 0.5)), pt.as_tensor(np.full(subjects, 0.5)), None]
    *_, difference = over_time(step, data, start, alpha)
    pm.Bernoulli("choice", logit_p=beta * difference, observed=choice)


@in_gallery
def adstock_by_scan(rng):
    """Sales on advertising that carries over geometrically (Jin et al. 2017, Bayesian Methods for Media Mix Modeling)."""
    weeks, channels = 104, 3
    spend = rng.gamma(1, 1, size=(weeks, channels))
    decay = pm.Beta("decay", 2, 2, shape=channels)
    effect = pm.HalfNormal("effect", 1, shape=channels)
    saturation = pm.HalfNormal("saturation", 1, shape=channels)
    stock = over_time(
        lambda spend, before, decay: spend + decay * before,
        [pt.as_tensor(spend)],
        [pt.zeros(channels)],
        decay,
    )
    mu = pm.Normal("intercept", 0, 2) + (effect * (1 - pt.exp(-saturation * stock))).sum(axis=1)
    pm.Normal("sales", mu, pm.HalfNormal("sigma", 1), observed=2 + rng.normal(size=weeks))
