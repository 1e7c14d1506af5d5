"""simuk: its loop of simulation-based calibration refits the model by ``pm.sample`` for each simulated data set."""

import numpy as np
import pymc as pm
import simuk
from counting import patched_and_counted

with pm.Model() as model:
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 1.0, observed=np.zeros(8))

SIMULATIONS = 6
options = {"draws": 100, "tune": 200, "chains": 2, "cores": 1}
with patched_and_counted() as calls:
    sbc = simuk.SBC(model, num_simulations=SIMULATIONS, sample_kwargs=options, seed=1)
    sbc.run_simulations()
assert calls == [True] * SIMULATIONS
ranks = np.asarray(sbc.simulations["prior_sbc"]["mu"]).ravel()
assert len(ranks) == SIMULATIONS
