"""Comparison of two runs of one model for the demo, plugin off and on; :mod:`case_studies.sampling` runs the sampler."""

import arviz as az
import numpy as np
import pandas as pd
from xarray import DataTree

# In combined Monte Carlo standard errors. Hundreds of means are compared at once, so the two
# or three that suit a single comparison would raise false alarms.
MCSE_LIMIT = 5.0

# Means of quantities that are constant up to round-off (the diagonal of a correlation matrix)
# have a standard error near zero; for these, equality to this relative tolerance will do.
ROUND_OFF = 1e-12

# Two timings of the same machine code differ by this much from run to run.
TIMING_NOISE = 0.05


def summarize(idata: DataTree) -> pd.DataFrame:
    """Return ArviZ's summary of the posterior, unrounded, one row a scalar."""
    with np.errstate(invalid="ignore"):  # the R-hat of a constant is 0 / 0
        return az.summary(idata, round_to="none")


def compare_posteriors(off: pd.DataFrame, on: pd.DataFrame) -> pd.DataFrame:
    """Compare the posterior means of two summaries.

    Parameters
    ----------
    off, on
        What :func:`summarize` returned for the two runs.

    Returns
    -------
    pandas.DataFrame
        One row a scalar, with the columns ``mean_off``, ``mean_on``, ``mcse_off``,
        ``mcse_on``, ``distance`` (of the means, in combined standard errors) and ``agrees``.

    Raises
    ------
    ValueError
        If the runs do not have the same variables.
    """
    if not off.index.equals(on.index):
        raise ValueError("the runs have different variables: sample the same model twice")
    difference = (off["mean"] - on["mean"]).abs()
    mcse = np.hypot(off["mcse_mean"], on["mcse_mean"])
    same = np.isclose(off["mean"], on["mean"], rtol=ROUND_OFF, atol=0.0)
    return pd.DataFrame(
        {
            "mean_off": off["mean"],
            "mean_on": on["mean"],
            "mcse_off": off["mcse_mean"],
            "mcse_on": on["mcse_mean"],
            "distance": (difference / mcse).mask(same, 0.0),
            "agrees": same | (difference <= MCSE_LIMIT * mcse),
        }
    )


def agreement(comparison: pd.DataFrame) -> str:
    """Say how many posterior means agree, and which one is furthest apart."""
    count = f"{comparison['agrees'].sum()} of {len(comparison)} posterior means agree"
    distance = comparison["distance"].fillna(np.inf)
    if not distance.any():
        return f"{count}; all are equal up to round-off"
    return (
        f"{count}; {distance.idxmax()} differs most, by {distance.max():.1f} MCSE"
        f" of {MCSE_LIMIT:g} allowed"
    )


def verdict(ratio: float, rewritten: bool) -> str:
    """Say in one sentence what the plugin did for the time of logp and gradient.

    Parameters
    ----------
    ratio
        Time with the plugin off over time with the plugin on.
    rewritten
        Whether the compiled graphs differ.
    """
    measured = f"the measured ratio is {ratio:.2f}"
    if not rewritten:
        return (
            "no rewrite applies to this model: about the same, as both sides compile the same "
            f"graph ({measured}; what is not 1 is noise)"
        )
    if abs(ratio - 1.0) <= TIMING_NOISE:
        return f"the graph was rewritten, at about the same speed ({measured})"
    if ratio < 1.0:
        return f"the rewritten graph is slower: {measured}"
    return f"logp and gradient are {ratio:.2f} times as fast with the plugin on"
