"""ArviZ: ``reloo`` refits by a ``SamplingWrapper`` that calls ``pm.sample`` without the left-out rows."""

import numpy as np
import pymc as pm
from arviz_stats import loo, reloo
from arviz_stats.loo import SamplingWrapper
from counting import patched_and_counted
from scipy.stats import norm
from xarray import DataArray

OPTIONS = {"draws": 500, "tune": 500, "chains": 2, "cores": 1, "random_seed": 1}
OPTIONS |= {"progressbar": False}
y = DataArray(np.r_[np.random.default_rng(0).normal(size=9), 8.0], dims="row")


def fit(observed: np.ndarray):
    """Return draws of a mean with known variance, as a library does."""
    with pm.Model(coords={"row": range(len(observed))}):
        pm.Normal("y", pm.Normal("mu", 0, 10), 1.0, observed=observed, dims="row")
        idata = pm.sample(**OPTIONS)
        return pm.compute_log_likelihood(idata, progressbar=False)


class Refit(SamplingWrapper):
    """Refit without some rows."""

    def sel_observations(self, idx):
        left_out = np.isin(np.arange(len(y)), idx)
        return y.values[~left_out], y.values[left_out]

    def sample(self, modified_observed_data):
        return fit(modified_observed_data)

    def get_inference_data(self, fitted_model):
        return fitted_model

    def log_likelihood__i(self, excluded_obs, idata__i):
        mu = idata__i["posterior"]["mu"]
        return DataArray(norm.logpdf(excluded_obs[0], mu, 1.0), dims=mu.dims)


with patched_and_counted() as calls:
    idata = fit(y.values)
    refitted = reloo(
        Refit(None, idata_orig=idata), loo_orig=loo(idata, pointwise=True), k_threshold=0.2
    )
n_refits = len(calls) - 1
assert calls == [True] * len(calls)
assert n_refits >= 1
# The density of the outlier without it is known: normal with the mean and variance of the others.
rest = y.values[:-1]
variance = 1 / (len(rest) + 0.01)
exact = norm.logpdf(8.0, rest.sum() * variance, np.sqrt(1 + variance))
assert abs(float(refitted.elpd_i[-1]) - exact) < 0.5, (refitted.elpd_i, exact)
