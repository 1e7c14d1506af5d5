"""A script of a user, who neither imports nor names the plugin, except in the environment."""

import sys

import numpy as np
import pymc as pm

with pm.Model():
    pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.ones(10))
    idata = pm.sample(100, tune=100, chains=1, cores=1, progressbar=False, random_seed=1)
print(hasattr(pm.sample, "_pymc_fastlogp_original"), idata["posterior"].sizes["draw"], sys.argv[1:])
