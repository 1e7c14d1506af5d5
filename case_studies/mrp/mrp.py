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
# # Multilevel regression and post-stratification of a large survey
#
# Who answers a survey is not who lives in the country. If older people answer more often, and more
# often say yes, then the share of yes among the respondents is too high. Multilevel regression
# and post-stratification (MRP; Gelman and Little 1997, Survey Methodology 23) repairs that in
# two steps. A multilevel regression estimates the probability of yes in every cell, that is for each
# combination of state, age, education, ethnicity and sex, partially pooled, as many cells have few
# respondents or none. Then the cells are weighted by how many people of each kind the census counts.
#
# **The respondents here are simulated**, and so are the census and the truth, which makes it
# possible to see how far the estimates are off. The model is sampled twice: "off" is `pm.sample` with
# nutpie and without the plugin, "sample" is `pymc_fastlogp.sample`. The posterior
# must be the same each time; the speed may differ. Every number below is computed by this notebook,
# on the machine that ran it.

# %%
import time
from functools import partial
from math import prod

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from IPython.display import Markdown, display
from scipy.special import expit

import pymc_fastlogp

# %% [markdown]
# ## The population
#
# The truth is a logit with one effect for each level of each factor. The effects of age and
# education are sorted: the older and the better educated, the more often the answer is yes. Levels
# of a factor are not equally common, so some states are small.

# %%
SEED = 20_261_121
LEVELS = {"state": 51, "age": 6, "education": 5, "ethnicity": 4}
FACTORS = LEVELS | {"sex": 2}
PEOPLE = 20_000_000
RESPONDENTS = 50_000
rng = np.random.default_rng(SEED)

effects = {f: xr.DataArray(rng.normal(0, 0.4, n), dims=f) for f, n in FACTORS.items()}
for factor in ("age", "education"):
    effects[factor].values.sort()
truth = expit(sum(effects.values()))

shares = {f: xr.DataArray(rng.dirichlet(np.full(n, 5.0)), dims=f) for f, n in FACTORS.items()}
weights = prod(shares.values()) * rng.lognormal(0, 0.5, truth.shape)
census = (PEOPLE * weights / weights.sum()).round()

# %% [markdown]
# ## The survey
#
# Those who answer are older and better educated than the population.

# %%
willing = prod(xr.DataArray(np.linspace(1, 4, LEVELS[f]), dims=f) for f in ("age", "education"))
respondents = census * willing
chances = (respondents / respondents.sum()).to_numpy().ravel()
cell = rng.choice(truth.size, size=RESPONDENTS, p=chances)

survey = pd.DataFrame(dict(zip(FACTORS, np.unravel_index(cell, truth.shape))))
survey["yes"] = rng.binomial(1, truth.to_numpy().ravel()[cell])
display(survey.describe())

per_cell = census.copy(data=np.bincount(cell, minlength=truth.size).reshape(truth.shape))
raw = survey["yes"].mean()
true_share = float(truth.weighted(census).mean())
display(
    Markdown(
        f"{len(survey)} simulated respondents, in {int((per_cell > 0).sum())} of {truth.size} cells; "
        f"{int(((per_cell > 0) & (per_cell < 5)).sum())} cells have fewer than 5 of them. "
        f"{raw:.1%} of the respondents say yes, {true_share:.1%} of the population would."
    )
)

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, factor in zip(axes, ("age", "education", "ethnicity")):
    others = [name for name in FACTORS if name != factor]
    asked_share = survey[factor].value_counts(normalize=True).sort_index()
    census_share = census.sum(others) / census.sum()
    ax.bar(np.arange(FACTORS[factor]) - 0.2, census_share, 0.4, label="population")
    ax.bar(np.arange(FACTORS[factor]) + 0.2, asked_share, 0.4, label="respondents")
    ax.set_xlabel(factor)
    ax.legend()
axes[0].set_ylabel("share")
plt.show()

# %% [markdown]
# ## The model
#
# $$
# y_i \sim \mathrm{Bernoulli}\Bigl(\operatorname{logit}^{-1}\bigl(\alpha + \beta_{s[i]} +
# \sum_f \gamma^f_{f[i]}\bigr)\Bigr), \qquad
# \gamma^f \sim \mathrm{ZeroSumNormal}(\sigma_f), \quad \sigma_f \sim \mathrm{HalfNormal}(1),
# $$
#
# for the factors $f$: state, age, education and ethnicity; $s$ is sex. The effects of a factor sum to
# zero: otherwise a constant could move from the intercept to all of them without a change in the
# likelihood, along a ridge on which a sampler is slow. There are so many respondents for each
# level that the centered form samples well.


# %%
def make() -> pm.Model:
    """Return the model, with the survey as constants."""
    with pm.Model(coords={factor: range(n) for factor, n in FACTORS.items()}) as model:
        by_sex = pm.ZeroSumNormal("by_sex", 1.0, dims="sex")
        logit = pm.Normal("intercept", 0.0, 1.5) + by_sex[survey["sex"].to_numpy()]
        for factor in LEVELS:
            sigma = pm.HalfNormal(f"sigma_{factor}", 1.0)
            effect = pm.ZeroSumNormal(f"by_{factor}", sigma, dims=factor)
            logit += effect[survey[factor].to_numpy()]
        pm.Bernoulli("yes", logit_p=logit, observed=survey["yes"].to_numpy())
    return model


# %% [markdown]
# Respondents of the same cell have the same probability, so logp needs it once a cell,
# with the number of those who said yes and no. The plugin finds that out from the data.

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
# Off, each evaluation goes through all respondents, so that this way gets
# a short run only: few chains, of few draws after little tuning. It is there for the draws per second and for the comparison of posteriors.
# The estimates below come from the run with the plugin. The chains of a run follow each other, on one core. The wait is compilation and draws.

# %%
SHORT = {"draws": 100, "tune": 120, "chains": 2, "cores": 1, "random_seed": SEED}
LONG = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 1, "random_seed": SEED}


def sample_off(**settings):
    """Sample by nutpie, without the plugin."""
    with pymc_fastlogp.disabled():
        return pm.sample(nuts_sampler="nutpie", progressbar=False, **settings)


def run(sampler, **settings):
    """Return the draws of a sampler, their summary, and the wait in seconds."""
    model = make()
    begin = time.perf_counter()
    idata = sampler(model=model, **settings)
    seconds = time.perf_counter() - begin
    return idata, az.summary(idata, round_to="none"), seconds


runs = {
    "off": run(sample_off, **SHORT),
    "sample": run(partial(pymc_fastlogp.sample, progressbar=False), **LONG),
}

# %%
table = pd.DataFrame(
    {
        way: {
            "chains": idata["posterior"].sizes["chain"],
            "draws of a chain": idata["posterior"].sizes["draw"],
            "wait, s": seconds,
            "draws per second": idata["posterior"].sizes["chain"]
            * idata["posterior"].sizes["draw"]
            / seconds,
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
# The posterior means may differ by Monte Carlo error only, which is larger for a short run. Each
# difference is measured in units of its combined Monte Carlo standard error.

# %%
idata, summary, wait = runs["sample"]
population = ["intercept", *(f"sigma_{factor}" for factor in LEVELS)]
az.summary(idata, var_names=population)

# %%
forest = {way: draws for way, (draws, _, _) in runs.items()}
az.plot_forest(forest, var_names=population, combined=True).add_legend("model")
plt.show()

# %%
short = runs["off"][1]
mcse = np.hypot(summary["mcse_mean"], short["mcse_mean"])
distance = (summary["mean"] - short["mean"]).abs() / mcse
print(f"{distance.idxmax()} differs most, by {distance.max():.1f} MCSE")

# %% [markdown]
# ## Post-stratification
#
# Each draw of the posterior gives a probability for each cell. Their mean, weighted by the census,
# is a draw of the share of yes in a state, or in the whole country.

# %%
draws = az.extract(idata, num_samples=500, random_seed=SEED)
probability = expit(draws["intercept"] + sum(draws[f"by_{factor}"] for factor in FACTORS))
others = [factor for factor in FACTORS if factor != "state"]
national = probability.weighted(census).mean(list(FACTORS))
by_state = probability.weighted(census).mean(others)


def interval(estimate: xr.DataArray) -> xr.DataArray:
    """Return the ends of the 90% interval of each estimate."""
    return estimate.quantile([0.05, 0.95], dim="sample")


def covered(estimate: xr.DataArray, true: xr.DataArray) -> float:
    """Return the fraction of the estimates whose 90% interval contains the truth."""
    lower, upper = interval(estimate)
    return float(((lower <= true) & (true <= upper)).mean())


# %%
states = pd.DataFrame(
    {
        "respondents": survey.groupby("state").size(),
        "truth": truth.weighted(census).mean(others),
        "raw": survey.groupby("state")["yes"].mean(),
        "MRP": by_state.mean("sample"),
    }
).sort_values("respondents")
lower, upper = interval(by_state).to_numpy()[:, states.index]

figure, ax = plt.subplots(figsize=(10, 4), layout="constrained")
x = range(len(states))
ax.vlines(x, lower, upper, "C0", linewidth=3, alpha=0.4, label="MRP, 90% interval")
ax.plot(x, states["MRP"], "C0.", label="MRP, posterior mean")
ax.plot(x, states["raw"], "C1o", fillstyle="none", label="share among the respondents")
ax.plot(x, states["truth"], "k_", markersize=9, label="truth (simulated)")
ax.set_xlabel("states, from the fewest respondents to the most")
ax.set_ylabel("share of yes")
figure.legend(loc="outside upper center", ncols=4)
plt.show()

# %% [markdown]
# The same for single cells, from the one with the fewest respondents to the one with the most.

# %%
order = per_cell.to_numpy().ravel().argsort()
chosen = order[np.linspace(0, truth.size - 1, 7).astype(int)]
index = dict(zip(FACTORS, np.unravel_index(chosen, truth.shape)))
pick = {factor: xr.DataArray(levels, dims="cell") for factor, levels in index.items()}
asked = per_cell.isel(pick)
yes = np.bincount(cell, weights=survey["yes"], minlength=truth.size)[chosen]
cell_lower, cell_upper = interval(probability.isel(pick)).to_numpy()
few_cells = pd.DataFrame(
    {
        **index,
        "people": census.isel(pick),
        "respondents": asked,
        "raw": yes / asked.where(asked > 0),
        "MRP": probability.isel(pick).mean("sample"),
        "5%": cell_lower,
        "95%": cell_upper,
        "truth": truth.isel(pick),
    }
)
few_cells.round(3)

# %%
error = states[["raw", "MRP"]].sub(states["truth"], axis=0).pow(2).mean().pow(0.5)
low, high = interval(national).to_numpy()
display(
    Markdown(
        f"In the whole country {true_share:.2%} would say yes. The share among the respondents is "
        f"{raw:.2%}; the post-stratified estimate is {float(national.mean()):.2%}, with a 90% interval "
        f"from {low:.2%} to {high:.2%}.\n\n"
        f"By state, the root mean square error is {error['raw'] * 100:.2f} percentage points for the "
        f"share among the respondents and {error['MRP'] * 100:.2f} for MRP. The 90% intervals contain "
        f"the truth in {covered(by_state, truth.weighted(census).mean(others)):.0%} of the states and "
        f"{covered(probability, truth):.0%} of the cells. All that is simulated with the model "
        f"that is fitted; a real survey will not be as kind."
    )
)

# %% [markdown]
# ## Conclusion

# %%
rate = table.loc["draws per second"]
display(
    Markdown(
        f"One evaluation of logp and gradient takes {timing.ratio('off').median:.0f} times as long with the plugin off. "
        f"`pymc_fastlogp.sample` made {rate['sample'] / rate['off']:.0f} times as many draws per second of waiting as the short run off. "
        f"Its run of the usual length took {wait:.1f} s on one core."
    )
)
# Many means are compared at once, so that a limit of 2 would raise false alarms.
assert distance.max() < 5, "the posteriors differ"
