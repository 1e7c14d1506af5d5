"""Counts of sales by region and product, whose effects sum to zero.

    y_i ~ Poisson(exp(mu + r[region_i] + p[product_i]))
    r ~ ZeroSumNormal(tau_r),  p ~ ZeroSumNormal(tau_p)

Source of the model: PyMC's documentation of ZeroSumNormal. Data: simulated, 4 000 rows, 12 regions and 80 products of different frequency.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS = 4_000
LEVELS = {"region": 12, "product": 80}


def simulate() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the region and product, and the count, of every row."""
    rng = np.random.default_rng(data.SEED)
    indices = {x: rng.choice(n, size=ROWS, p=rng.dirichlet(np.ones(n))) for x, n in LEVELS.items()}
    eta = 0.5 + sum(0.4 * rng.normal(size=n)[indices[x]] for x, n in LEVELS.items())
    return indices, rng.poisson(np.exp(eta))


def make() -> pm.Model:
    indices, y = simulate()
    with pm.Model(coords={x: range(n) for x, n in LEVELS.items()}) as model:
        eta = pm.Normal("mu", 0, 2)
        for factor, index in indices.items():
            tau = pm.HalfNormal(f"tau_{factor}", 1)
            eta += pm.ZeroSumNormal(f"a_{factor}", tau, dims=factor)[index]
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    return model
