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
# # Radon in Minnesota: a multilevel model, and what its sampler costs
#
# Radon is a radioactive gas that enters houses from the ground. A survey in Minnesota measured
# it in houses of many counties, in some counties many houses, in others few. How much does
# the level differ between counties, and how much lower is it on the ground floor than in
# the basement?
#
# This is the model of Gelman and Hill (2007), chapter 13. We sample it three ways: by PyMC and
# nutpie alone, with `pymc_fastlogp` switched on, and with nutpie's JAX backend. The posterior
# must be the same each time; the speed may differ. Every number below is computed by this
# notebook, on the machine that ran it.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display

import pymc_fastlogp
from benchmarks import data
from benchmarks.models.radon import make
from case_studies.comparison import against_jax, all_agree, compare_with, verdict
from case_studies.sampling import (
    compile_sides,
    is_rewritten,
    sample,
    silence_blas_warning,
    throughput,
    time_logp,
)

silence_blas_warning()

# %% [markdown]
# ## The data
#
# One row is a house: the logarithm of its radon level, its county, and the floor on which the
# measurement was taken. Most counties have few houses, which is why their estimates should lean
# on each other.

# %%
houses = data.radon()
frame = pd.DataFrame(
    {
        "log_radon": houses.log_radon,
        "floor": houses.floor,
        "county": pd.Categorical.from_codes(houses.county, houses.counties),
    }
)
display(frame.describe())
counts = frame.groupby("county", observed=True).size()
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
right.bar(range(len(counts)), counts.sort_values(), color="C0")
right.set_yscale("log")
right.set_yticks([1, 10, 100], labels=["1", "10", "100"])
right.set_xlabel("counties, from the fewest houses to the most")
right.set_ylabel("houses")
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
# funnel that $\sigma_a$ and $a_j$ would form otherwise. What matters for speed is
# $a_{j[i]} + b_{j[i]} x_i$: a gather over all houses, whose gradient is a scatter back into the
# counties, evaluated at each leapfrog step.

# %%
print(make().str_repr())

# %% [markdown]
# This is what the plugin makes of it. The residuals of a county are linear in its intercept and slope, so
# their sum of squares can be had from a few rows for each county.

# %%
pymc_fastlogp.explain(make())

# %% [markdown]
# ## Sampling, three ways
#
# "Compile" includes the first draw, because that is when JAX makes its machine code. The first
# compilation leaves machine code in the caches of PyTensor and Numba for the second.

# %%
compiled = compile_sides(make)
runs = {side: sample(*pair) for side, pair in compiled.items()}

# %%
throughput(runs).style.format("{:.4g}")

# %% [markdown]
# Sampling times of a small model are noisy, and contain the sampler's own work. The cost of one
# evaluation of logp and gradient is measured apart: the C function that nutpie calls, in a
# native loop on one core, both sides in turn.

# %%
timing = time_logp(compiled["off"][0], compiled["on"][0])
display(timing)

# %% [markdown]
# ## The posteriors
#
# The posterior means may differ by Monte Carlo error only. First the population-level
# parameters, then all scalars, each difference in units of its combined Monte Carlo standard
# error.

# %%
population = ["mu_a", "mu_b", "sigma_a", "sigma_b", "sigma"]
az.summary(runs["on"].idata, var_names=population)

# %%
forest = {side: run.idata for side, run in runs.items()}
az.plot_forest(forest, var_names=population, combined=True).add_legend("model")
plt.show()

# %%
comparisons = compare_with("off", runs)

# %% [markdown]
# ## What the model says
#
# The slope is the difference between a measurement on the ground floor and one in the basement,
# on the log scale.

# %%
slope = runs["on"].summary.loc["mu_b"]
spread = runs["on"].summary.loc["sigma_a", "mean"]
display(
    Markdown(
        f"On the ground floor, log radon is {slope['mean']:+.2f} (posterior sd {slope['sd']:.2f}) "
        f"relative to the basement, for the average county. Counties differ in their intercept by a "
        f"standard deviation of {spread:.2f}."
    )
)

# %% [markdown]
# Partial pooling draws the estimate of a county towards the mean of all, the more the fewer houses it has. Without pooling, the
# estimate is the mean of the county's houses, each brought to the basement by the slope of the county.

# %%
posterior = runs["on"].idata["posterior"].mean(("chain", "draw"))
intercept, slopes = (posterior[name].to_pandas() for name in ("a", "b"))
in_basement = frame["log_radon"] - slopes.to_numpy()[houses.county] * frame["floor"]
alone = in_basement.groupby(frame["county"], observed=True).mean()

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
rewritten = is_rewritten(compiled["off"][0], compiled["on"][0])
display(
    Markdown(
        f"Plugin off against on: {verdict(timing.ratio('off').median, rewritten)}.\n\n"
        f"{against_jax(runs['on'], runs['JAX'])}"
    )
)
agree = all_agree(comparisons)
assert agree, "the posteriors differ by more than Monte Carlo error"
