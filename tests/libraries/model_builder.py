"""A model class as pymc-marketing and pymc-extras write them: configuration, ``build_model``, ``fit`` that calls ``pm.sample``, and predictions."""

import numpy as np
import pandas as pd
import pymc as pm
from counting import patched_and_counted

SAMPLER_CONFIG = {"draws": 500, "tune": 500, "chains": 2, "cores": 1, "progressbar": False}


class ModelBuilder:
    """Linear regression."""

    def __init__(self, sampler_config: dict | None = None) -> None:
        self.sampler_config = {**SAMPLER_CONFIG, **(sampler_config or {})}

    def build_model(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Build the model with shared data, which predictions replace."""
        coords = {"feature": list(X.columns), "date": X.index}
        with pm.Model(coords=coords) as self.model:
            data = pm.Data("X", X.to_numpy(), dims=("date", "feature"))
            observed = pm.Data("target", y.to_numpy(), dims="date")
            beta = pm.Normal("beta", dims="feature")
            sigma = pm.HalfNormal("sigma")
            mu = pm.Deterministic("mu", data @ beta, dims="date")
            pm.Normal("y", mu, sigma, observed=observed, dims="date")

    def fit(self, X: pd.DataFrame, y: pd.Series, **options):
        """Sample the posterior, and add prior and training data to the result."""
        self.build_model(X, y)
        with self.model:
            self.idata = pm.sample(**{**self.sampler_config, **options})
            self.idata["prior"] = pm.sample_prior_predictive(10)["prior"]
        self.idata.attrs["model_type"] = type(self).__name__
        self.idata["fit_data"] = X.assign(y=y).to_xarray()
        return self.idata

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return means of the posterior predictive."""
        with self.model:
            pm.set_data({"X": X.to_numpy(), "target": np.zeros(len(X))}, coords={"date": X.index})
            drawn = pm.sample_posterior_predictive(
                self.idata, predictions=True, progressbar=False, random_seed=1
            )
        return drawn["predictions"]["y"].mean(("chain", "draw")).to_numpy()


rng = np.random.default_rng(0)
X = pd.DataFrame(
    rng.normal(size=(120, 2)), pd.date_range("2024-01-01", periods=120), ["tv", "radio"]
)
y = X["tv"] - 2 * X["radio"] + rng.normal(scale=0.1, size=120)
new = pd.DataFrame([[1.0, 0.0], [0.0, 1.0]], pd.date_range("2025-01-01", periods=2), X.columns)

with patched_and_counted() as calls:
    ours = ModelBuilder()
    idata = ours.fit(X, y, random_seed=1)
assert calls == [True]
theirs = ModelBuilder()
expected = theirs.fit(X, y, random_seed=1)
assert set(idata.children) == set(expected.children)
assert idata["posterior"].indexes["date"].equals(X.index)
assert np.allclose(ours.predict(new), [1, -2], atol=0.1)
assert np.allclose(ours.predict(new), theirs.predict(new), atol=0.03)
