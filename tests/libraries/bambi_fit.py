"""Bambi: ``model.fit()`` under the patch, whose intercept and predictions are those without the patch."""

import bambi as bmb
import numpy as np
import pandas as pd
from counting import patched_and_counted

import pymc_fastlogp

rng = np.random.default_rng(0)
# Bambi centers x, which moves the intercept by 200.
data = pd.DataFrame({"x": rng.normal(100, 5, 400), "group": rng.choice(list("abcde"), 400)})
data["y"] = (
    3 + 2 * data["x"] + data["group"].map(dict(zip("abcde", range(5)))) + rng.normal(size=400)
)
new = pd.DataFrame({"x": [90.0, 110.0], "group": ["a", "e"]})
OPTIONS = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}


def summary() -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of intercept, slope and predictions."""
    model = bmb.Model("y ~ x + group", data)
    idata = model.fit(**OPTIONS)
    predicted = model.predict(idata, data=new, inplace=False)
    columns = [idata["posterior"][name].values.reshape(-1, 1) for name in ("Intercept", "x")]
    columns.append(predicted["posterior"]["mu"].values.reshape(-1, 2))
    draws = np.concatenate(columns, 1)
    return draws.mean(0), draws.std(0)


with patched_and_counted() as calls:
    mean, sd = summary()
assert calls == [True]
expected, _ = summary()
# Five standard errors at an effective sample size of 400 of 2000 draws.
assert np.all(abs(mean - expected) < 5 * sd * np.sqrt(2 / 400)), (mean, expected, sd)
assert abs(mean[1] - 2) < 0.1

model = bmb.Model("y ~ x + group", data)
refusals = {}
for function in (pymc_fastlogp.verify, pymc_fastlogp.sample):
    try:
        function(model)
    except TypeError as error:
        refusals[function.__name__] = str(error)
assert "pass model.backend.model after model.build()" in refusals["verify"]
assert "with pymc_fastlogp.patched_pymc(): model.fit()" in refusals["sample"]
model.build()
assert pymc_fastlogp.verify(model.backend.model)
