"""Marks of pupils of schools and neighborhoods that depend on each other: most pupils go to a school nearby.

    y_i ~ Normal(mu + b x_i + s[school_i] + n[area_i], sigma)
    s ~ Normal(0, tau_s),  n ~ Normal(0, tau_n)

Source of the model: Raudenbush, "A crossed random effects model for unbalanced data", Journal of Educational Statistics 18 (1993). Data: simulated,
5 000 pupils in 40 schools and 150 areas.
"""

import numpy as np
import pymc as pm

from benchmarks import data

ROWS = 5_000
LEVELS = {"school": 40, "area": 150}
# Of pupils.
NEARBY = 0.9


def simulate() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return school and area, a covariate, and the mark of every pupil."""
    rng = np.random.default_rng(data.SEED)
    n_schools, n_areas = LEVELS.values()
    area = rng.integers(0, n_areas, ROWS)
    nearest = area * n_schools // n_areas
    school = np.where(rng.random(ROWS) < NEARBY, nearest, rng.integers(0, n_schools, ROWS))
    x = rng.normal(size=ROWS)
    effects = 0.4 * rng.normal(size=n_schools)[school] + 0.3 * rng.normal(size=n_areas)[area]
    return {"school": school, "area": area}, x, rng.normal(5 + 0.3 * x + effects, 1.0)


def make() -> pm.Model:
    indices, x, y = simulate()
    with pm.Model(coords={name: range(n) for name, n in LEVELS.items()}) as model:
        eta = pm.Normal("mu", 5, 2) + pm.Normal("b") * x
        for factor, index in indices.items():
            tau = pm.HalfNormal(f"tau_{factor}", 1)
            raw = pm.Normal(f"raw_{factor}", dims=factor)
            eta += pm.Deterministic(f"a_{factor}", tau * raw, dims=factor)[index]
        pm.Normal("y", eta, pm.HalfNormal("sigma", 1), observed=y)
    return model
