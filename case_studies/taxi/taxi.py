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
# # Twenty million taxi trips: a model of a table on disk
#
# Who gives a tip? Each row of a table is a trip: its zone, its hour, the weather, and whether there was a tip. The table is a folder of Parquet files
# that we never load. The likelihood of a trip depends on the trip's columns alone, and many trips have equal columns, so the posterior needs to know how many
# trips there are of each kind. DuckDB counts them by one `GROUP BY`, and the posterior is that of all trips.
#
# The trips are simulated, so we know the answer. Zones are the squares of a town of 8 by 8, and zones in the middle have most trips. Every number
# below is computed by this notebook, on the machine that ran it. It needs `pip install "pymc-fastlogp[tables]"` and 100 MB of disk.

# %%
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import arviz as az
import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from IPython.display import Markdown, display
from scipy import stats

import pymc_fastlogp

N_MONTHS, PER_MONTH, SIDE = 4, 5_000_000, 8
N_ZONES = SIDE**2
WEATHER = {
    "dry": (0.70, 0.0),
    "rain": (0.25, 0.35),
    "snow": (0.05, 0.8),
}  # share, effect on the logit


def say(text: str) -> None:
    """Show a sentence."""
    display(Markdown(text))


# %% [markdown]
# ## The trips
#
# The logit of the probability of a tip is a sum of an effect of the zone, of the hour and of the weather. DuckDB draws the trips, a file a month.

# %%
rng = np.random.default_rng(20)
row, column = np.divmod(np.arange(N_ZONES), SIDE)
distance = np.hypot(row - 3.5, column - 3.5)
hours = np.arange(24)
true_zone = 0.4 - 0.2 * distance + rng.normal(0, 0.25, N_ZONES)
true_hour = 0.5 * np.cos(2 * np.pi * (hours - 20) / 24) + 0.2 * np.cos(4 * np.pi * (hours - 9) / 24)
true_hour -= true_hour.mean()
busy = np.exp(-distance)
busy_until = np.cumsum(busy / busy.sum())

town = duckdb.connect()
town.register("zones", pd.DataFrame({"zone": np.arange(N_ZONES), "by_zone": true_zone}))
town.register("times", pd.DataFrame({"hour": hours, "by_hour": true_hour}))
# Zones by a table of 4096 entries, so that a draw is one lookup.
lookup = np.searchsorted(busy_until, (np.arange(4096) + 0.5) / 4096)
town.register("draws", pd.DataFrame({"draw": np.arange(4096), "zone": lookup}))
town.register(
    "skies",
    pd.DataFrame(
        {
            "sky": np.arange(100),
            "weather": np.repeat([*WEATHER], [round(100 * share) for share, _ in WEATHER.values()]),
            "by_weather": np.repeat(
                [effect for _, effect in WEATHER.values()],
                [round(100 * share) for share, _ in WEATHER.values()],
            ),
        }
    ),
)


def write_month(folder: Path, month: int) -> None:
    """Write the trips of a month to a Parquet file."""
    town.execute(
        f"""
        COPY (
            SELECT CAST(zone AS TINYINT) AS zone, CAST(hour AS TINYINT) AS hour, weather,
                   CAST(hash(4 * i + 3) / 18446744073709551616 < 1 / (1 + exp(-by_zone - by_hour - by_weather)) AS TINYINT) AS tip
            FROM (
                SELECT i, hash(4 * i) % 4096 AS draw, hash(4 * i + 1) % 24 AS hour, hash(4 * i + 2) % 100 AS sky
                FROM range({month * PER_MONTH}, {(month + 1) * PER_MONTH}) t(i)
            ) JOIN draws USING (draw) JOIN zones USING (zone) JOIN times USING (hour) JOIN skies USING (sky)
        ) TO '{folder}/{month:02d}.parquet'
        """
    )


temporary = TemporaryDirectory()
folder = Path(temporary.name)
begin = time.perf_counter()
for month in range(N_MONTHS):
    write_month(folder, month)
size = sum(file.stat().st_size for file in folder.iterdir())
say(f"{N_MONTHS} files, {size / 1e6:.0f} MB, written in {time.perf_counter() - begin:.0f} s.")

# %% [markdown]
# ## The model
#
# For trip $i$ in zone $z$, hour $h$ and weather $w$,
#
# $$
# \operatorname{logit} P(\mathrm{tip}_i = 1) = a_{z} + u_h + b_w, \qquad a_z \sim \mathrm{Normal}(\mu, \tau), \quad
# \sum_h u_h = 0, \quad b_{\mathrm{dry}} = 0 .
# $$
#
# `trips["zone"]` is a placeholder that holds the first rows, so the model is written as for arrays. A column of strings, as the weather, holds codes of its
# sorted levels.


# %%
def make(trips: pymc_fastlogp.Table) -> pm.Model:
    """Return the model of the trips."""
    coords = {"zone": range(N_ZONES), "hour": hours, "weather": trips.levels("weather")}
    with pm.Model(coords=coords) as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau")
        by_zone = pm.Normal("by_zone", mu, tau, dims="zone")
        by_hour = pm.ZeroSumNormal("by_hour", 1, dims="hour")
        wet = pm.Normal("wet", shape=len(coords["weather"]) - 1)
        weather = pm.math.concatenate([[0.0], wet])
        eta = by_zone[trips["zone"]] + by_hour[trips["hour"]] + weather[trips["weather"]]
        pm.Bernoulli("tip", logit_p=eta, observed=trips["tip"])
    return model


trips = pymc_fastlogp.table(folder / "*.parquet")
model = make(trips)
say(f"Levels of the weather: {', '.join(trips.levels('weather'))}.")
display(trips)

# %% [markdown]
# `explain` reads a sample of the trips, and says what DuckDB will be asked for.

# %%
pymc_fastlogp.explain(model)

# %% [markdown]
# ## The posterior of all trips

# %%
begin = time.perf_counter()
idata = pymc_fastlogp.sample(
    500, tune=500, chains=4, random_seed=1, model=model, progressbar=False, quiet=True
)
seconds = time.perf_counter() - begin
n_trips = int(idata.constant_data["tip_n_rows"].sum())
n_kinds = idata.constant_data["tip_n_rows"].size
worst = max(float(x.max()) for x in az.rhat(idata).data_vars.values())
say(
    f"{n_trips} trips of {n_kinds} kinds, {seconds:.0f} s from the table to the posterior. The largest R-hat is {worst:.3f}."
)

# %% [markdown]
# The effects of zones on a map of the town, and where the truth is among the draws. Zones at the border have fewest trips, so their effects are known least.

# %%
posterior = idata.posterior.to_dataset().stack(draw_of_all=("chain", "draw"))
by_zone = posterior["by_zone"].transpose("zone", ...)
score = (by_zone.mean("draw_of_all") - true_zone) / by_zone.std("draw_of_all")
maps = {
    "effect of the zone, posterior mean": (by_zone.mean("draw_of_all"), "viridis"),
    "posterior standard deviation": (by_zone.std("draw_of_all"), "magma"),
    "(mean - truth) / standard deviation": (score, "coolwarm"),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for ax, (title, (values, colors)) in zip(axes, maps.items(), strict=True):
    limits = {"vmin": -4, "vmax": 4} if colors == "coolwarm" else {}
    image = ax.imshow(values.to_numpy().reshape(SIDE, SIDE), cmap=colors, **limits)
    figure.colorbar(image, ax=ax, shrink=0.8)
    [center] = ax.plot(3.5, 3.5, "w+", label="center of the town")
    ax.set(title=title, xticks=[], yticks=[])
    ax.title.set_fontsize("medium")
figure.legend(handles=[center], loc="outside lower center", facecolor="0.5")
plt.show()

# %%
by_hour = posterior["by_hour"].transpose("hour", ...)
low, high = by_hour.quantile([0.005, 0.995], "draw_of_all").to_numpy()
figure, (ax, right) = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
ax.fill_between(hours, low, high, alpha=0.5, label="posterior, 99 %")
ax.plot(hours, true_hour, "k.", label="truth")
ax.set(xlabel="hour", ylabel="effect on the logit", title="hours")
ax.legend()
right.fill_between(hours, low - true_hour, high - true_hour, alpha=0.5, label="posterior, 99 %")
right.axhline(0, color="k", linewidth=1, label="truth")
right.set(xlabel="hour", ylabel="effect minus truth", title="hours, enlarged")
right.margins(y=0.3)
right.legend(loc="upper left", ncols=2)
plt.show()

# %%
wet = posterior["wet"].transpose(..., "draw_of_all")
levels = trips.levels("weather")[1:]
pd.DataFrame(
    {
        "mean": wet.mean("draw_of_all"),
        "sd": wet.std("draw_of_all"),
        "truth": [WEATHER[level][1] for level in levels],
    },
    index=levels,
).round(4)

# %% [markdown]
# ## Does the model fit?
#
# DuckDB counts trips and tips by zone, hour and weather. Summed over the weather, these are 1536 numbers. The expected number of tips, at the posterior mean, is compared with
# the number that was counted, in units of the binomial standard deviation.

# %%
counted = duckdb.sql(
    f"SELECT zone, hour, weather, count(*) AS n, sum(tip) AS tips FROM '{folder}/*.parquet' GROUP BY ALL ORDER BY ALL"
).df()
mean = idata.posterior.mean(("chain", "draw"))
codes = pd.Categorical(counted["weather"], categories=trips.levels("weather")).codes
eta = (
    mean["by_zone"].to_numpy()[counted["zone"]]
    + mean["by_hour"].to_numpy()[counted["hour"]]
    + np.append(0, mean["wet"])[codes]
)
probability = 1 / (1 + np.exp(-eta))
counted["expected"] = counted["n"] * probability
counted["variance"] = counted["expected"] * (1 - probability)
sums = counted.groupby(["zone", "hour"])[["tips", "expected", "variance"]].sum()
z = (sums["tips"] - sums["expected"]) / np.sqrt(sums["variance"])
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.hist(z, bins=40, density=True, alpha=0.5, label="1536 cells")
grid = np.linspace(-4, 4, 200)
ax.plot(grid, stats.norm.pdf(grid), label="standard normal density")
ax.set(xlabel="(tips - expected) / standard deviation")
ax.legend()
plt.show()
say(f"Mean square of the {len(z)} numbers: {np.mean(z**2):.3f}.")

# %% [markdown]
# ## Next month
#
# `update` adds the trips of a new month. Only these are read, and the next posterior is that of all trips.

# %%
write_month(folder, N_MONTHS)
begin = time.perf_counter()
trips.update(folder / f"{N_MONTHS:02d}.parquet")
more = pymc_fastlogp.sample(
    500, tune=500, chains=4, random_seed=1, model=model, progressbar=False, quiet=True
)
say(
    f"{int(more.constant_data['tip_n_rows'].sum())} trips; {time.perf_counter() - begin:.0f} s for the new posterior."
)

# %% [markdown]
# Another process finds the counts of files that it has read before on disk, and doesn't read the files.

# %%
again = make(pymc_fastlogp.table(folder / f"0[0-{N_MONTHS - 1}].parquet"))
say(pymc_fastlogp.explain(again).sentences()[0])

# %% [markdown]
# ## Checks
#
# The notebook stops if the posterior misses the truth, or if a trip was lost.

# %%
temporary.cleanup()
assert n_trips == N_MONTHS * PER_MONTH
assert worst < 1.01
assert np.abs(score).max() < 4.5
assert ((low < true_hour) & (true_hour < high)).mean() > 0.8
assert 0.85 < np.mean(z**2) < 1.15
