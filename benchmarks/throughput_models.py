"""Models of :mod:`benchmarks.throughput`: the models of the suite with a posterior of several parameters, and models with a difficult geometry."""

from benchmarks.suite import Case, case

FROM_SUITE = (
    "eight_schools",
    "radon",
    "radon_10k",
    "radon_100k",
    "radon_1m",
    "varying_slope",
    "varying_slope_100k",
    "sleepstudy",
    "lkj_slopes",
    "lkj_slopes_100k",
    "poisson",
    "negative_binomial",
    "student_t",
    "ordered_logit",
    "epilepsy",
    "contraception",
    "mrp_10k",
    "mrp_200k",
    "irt_2pl",
    "verbal_aggression",
    "insteval",
)
OTHERS = (
    Case("frailty", "survival with frailties (simulated), 1 500 rows", "frailty"),
    Case("zero_sum", "Poisson, two ZeroSumNormal (simulated), 4 000 rows", "zero_sum"),
    Case(
        "calendar_year", "regression, columns not centered (simulated), 1 000 rows", "calendar_year"
    ),
    Case("schools_and_areas", "dependent factors (simulated), 5 000 rows", "schools_and_areas"),
)
MODELS = {x.name: x for x in (*map(case, FROM_SUITE), *OTHERS)}


def model_named(name: str) -> Case:
    """Return a model by its name."""
    return MODELS[name]
