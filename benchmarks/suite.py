"""The suite: names, sizes and modules of the models that are timed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pymc as pm


@dataclass(frozen=True)
class Case:
    """One model of the suite at one size.

    Parameters
    ----------
    name : str
        Name on the command line and in the JSON.
    title : str
        Name in tables, with the number of observed rows if there are any.
    module : str
        Name of the module in ``benchmarks.models``.
    kwargs : mapping
        Arguments of the module's ``make`` and ``stan_data``.
    quick : bool
        Whether the quick mode runs it.
    target : bool
        False for a model that the plugin does not aim at and must not slow down.
    """

    name: str
    title: str
    module: str
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    quick: bool = False
    target: bool = True

    def make(self) -> "pm.Model":
        """Build the PyMC model."""
        return self._module().make(**self.kwargs)

    def stan_code(self) -> str | None:
        """Return the Stan program for the same posterior, None where there is none."""
        return getattr(self._module(), "STAN", None)

    def stan_data(self) -> dict[str, Any]:
        """Return the data block of the Stan program."""
        return self._module().stan_data(**self.kwargs)

    def _module(self) -> ModuleType:
        return import_module(f"benchmarks.models.{self.module}")


SUITE: tuple[Case, ...] = (
    Case("eight_schools", "eight schools (real), 8 rows", "eight_schools", quick=True),
    Case("radon", "radon (real), 919 rows", "radon", quick=True),
    Case("radon_10k", "radon (simulated), 10 000 rows", "radon", {"rows": 10_000}),
    Case("radon_100k", "radon (simulated), 100 000 rows", "radon", {"rows": 100_000}),
    Case("radon_1m", "radon (simulated), 1 000 000 rows", "radon", {"rows": 1_000_000}),
    Case("varying_slope", "varying slope (simulated), 919 rows", "varying_slope", {"rows": 919}),
    Case(
        "varying_slope_100k",
        "varying slope (simulated), 100 000 rows",
        "varying_slope",
        {"rows": 100_000},
    ),
    Case("sleepstudy", "LKJCholeskyCov, sleepstudy (real), 180 rows", "sleepstudy"),
    Case(
        "lkj_slopes", "LKJCholeskyCov slopes (simulated), 2 000 rows", "lkj_slopes", {"rows": 2_000}
    ),
    Case(
        "lkj_slopes_100k",
        "LKJCholeskyCov slopes (simulated), 100 000 rows",
        "lkj_slopes",
        {"rows": 100_000},
    ),
    Case("lkj_corr_10", "LKJCorr prior, n = 10", "lkj_corr", {"n": 10}, quick=True),
    Case("lkj_corr_30", "LKJCorr prior, n = 30", "lkj_corr", {"n": 30}),
    Case("lkj_corr_mvnormal", "LKJCorr with MvNormal (simulated), 200 rows", "lkj_corr_mvnormal"),
    Case("verbal_aggression", "2PL, verbal aggression (real), 7 584 rows", "verbal_aggression"),
    Case("irt_2pl", "2PL item response (simulated), 20 000 rows", "irt_2pl"),
    Case("contraception", "logit, contraception (real), 1 934 rows", "contraception"),
    Case("mrp_10k", "MRP logit (simulated), 10 000 rows", "mrp", {"rows": 10_000}),
    Case("mrp_200k", "MRP logit (simulated), 200 000 rows", "mrp", {"rows": 200_000}),
    Case("negative_binomial", "negative binomial (simulated), 5 000 rows", "negative_binomial"),
    Case("poisson", "Poisson (simulated), 5 000 rows", "poisson", quick=True),
    Case("epilepsy", "Poisson, epilepsy (real), 236 rows", "epilepsy"),
    Case("student_t", "Student-t (simulated), 5 000 rows", "student_t"),
    Case("ordered_logit", "ordered logit (simulated), 5 000 rows", "ordered_logit"),
    Case("insteval", "InstEval (real), 73 421 rows", "insteval"),
    Case(
        "dense_logistic",
        "dense logistic (simulated), 2 000 rows",
        "dense_logistic",
        quick=True,
        target=False,
    ),
    Case("motorcycle", "marginal GP, motorcycle (real), 133 rows", "motorcycle", target=False),
    Case("marginal_gp", "marginal GP (simulated), 200 rows", "marginal_gp", target=False),
    Case("lynx", "AR(2) by scan, lynx (real), 114 rows", "lynx", target=False),
    Case("ar2_scan", "AR(2) by scan (simulated), 200 rows", "ar2_scan", target=False),
)


def case(name: str) -> Case:
    """Return the model of the suite that has this name.

    Raises
    ------
    ValueError
        If there is none; the message lists the names.
    """
    cases = {case.name: case for case in SUITE}
    if name not in cases:
        raise ValueError(f"no model named {name!r} in the suite; it has {', '.join(cases)}")
    return cases[name]
