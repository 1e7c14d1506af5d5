"""A latent second-order autoregression, its recursion written with ``pytensor.scan``.

    y_t ~ Normal(mu + s_t, 0.4),  s_t = phi_1 * s_{t-1} + phi_2 * s_{t-2} + sigma * e_t
    e_t ~ Normal(0, 1),  phi = (r_1 * (1 - r_2), r_2),  r_1, r_2 ~ Uniform(-1, 1)

The partial autocorrelations r keep the process stationary; s_{-1} = s_{-2} = 0. The measurement
error 0.4 is known: so short a series hardly tells it from sigma.

Source of the model: A. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter
(1989), chapter 2; of the parameters: J. Monahan, "A note on enforcing stationarity in
autoregressive-moving average models", Biometrika 71 (1984). Data: simulated, 200 points in time.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from benchmarks import data

STEPS = 200
MEASUREMENT_ERROR = 0.4


def simulate() -> np.ndarray:
    """Return the series, shape (200,); the true phi is (0.6, 0.2)."""
    rng = np.random.default_rng(data.SEED)
    state = np.zeros(STEPS + 2)
    for t in range(2, STEPS + 2):
        state[t] = 0.6 * state[t - 1] + 0.2 * state[t - 2] + rng.normal(0, 0.4)
    return rng.normal(1 + state[2:], MEASUREMENT_ERROR)


def make() -> pm.Model:
    return model_of(simulate(), np.arange(STEPS), MEASUREMENT_ERROR)


def model_of(series: np.ndarray, times: np.ndarray, measurement_error: float) -> pm.Model:
    """Return the model of a series with an error of measurement that is known."""
    with pm.Model(coords={"time": times}) as model:
        observed = pm.Data("observed", series)
        mu = pm.Normal("mu", 0, 2)
        r = pm.Uniform("r", -1, 1, shape=2)
        phi = pm.Deterministic("phi", pt.stack([r[0] * (1 - r[1]), r[1]]))
        sigma = pm.HalfNormal("sigma", 1)
        innovation = pm.Normal("innovation", dims="time")
        state = pytensor.scan(
            lambda e, s2, s1, phi: phi[0] * s1 + phi[1] * s2 + e,
            sequences=[sigma * innovation],
            outputs_info=[{"initial": pt.zeros(2), "taps": [-2, -1]}],
            non_sequences=[phi],
            strict=True,
            return_updates=False,
        )
        pm.Normal("y", mu + state, measurement_error, observed=observed)
    return model
