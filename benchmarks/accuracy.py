"""Densities that are more accurate with the plugin: ``python -m benchmarks.accuracy``.

Relative errors of the log density and of its gradient, plugin off and on, against mpmath with 60 digits, at points where PyMC subtracts log-gamma functions
of large, nearly equal arguments. Writes the table of ``docs/reliability.md``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from mpmath import mp

from benchmarks.report import ROOT, markdown_table, write_table
from pymc_fastlogp.config import switched

PAGE = ROOT / "docs" / "reliability.md"
MARKER = "table of accuracy"
DIGITS = 60

# Ten observations, exact in double precision.
MEASURED = np.array([-2.5, -1.25, -0.5, -0.25, 0.0, 0.125, 0.5, 0.75, 1.5, 3.0])
TRIALS, SUCCESSES = 10, np.array([0, 1, 3, 4, 5, 5, 6, 7, 9, 10])


class Density(NamedTuple):
    """A likelihood of one parameter at one point.

    Attributes
    ----------
    title : str
        Name in the table.
    point : float
        The logarithm of the parameter.
    likelihood : callable
        Adds the likelihood of a parameter to the model.
    exact : callable
        Sum of the terms that depend on the parameter, and of the others, by mpmath.
    """

    title: str
    point: float
    likelihood: Callable[[Any], Any]
    exact: Callable[[Any], Any]


def _student_t(nu: Any) -> Any:
    constant = mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2) - mp.log(nu * mp.pi) / 2
    terms = ((nu + 1) / 2 * mp.log1p(mp.mpf(float(x)) ** 2 / nu) for x in MEASURED)
    return len(MEASURED) * constant - mp.fsum(terms)


def _beta_binomial(alpha: Any) -> Any:
    def log_beta(a: Any, b: Any) -> Any:
        return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)

    return mp.fsum(
        mp.log(mp.binomial(TRIALS, k))
        + log_beta(alpha + k, alpha + TRIALS - k)
        - log_beta(alpha, alpha)
        for k in map(int, SUCCESSES)
    )


DENSITIES = (
    Density(
        "Student-t, `nu` = e^20",
        20.0,
        lambda nu: pm.StudentT("y", nu=nu, mu=0.0, sigma=1.0, observed=MEASURED),
        _student_t,
    ),
    Density(
        "beta-binomial, `alpha` = `beta` = e^30",
        30.0,
        lambda alpha: pm.BetaBinomial("y", n=TRIALS, alpha=alpha, beta=alpha, observed=SUCCESSES),
        _beta_binomial,
    ),
)


def errors(density: Density, side: str) -> tuple[float, float]:
    """Return the relative errors of the log density and of its derivative by the logarithm of the parameter."""
    with pm.Model() as model, switched(side == "on"):
        x = pm.Flat("x")
        density.likelihood(pm.math.exp(x))
        function = model.compile_fn([model.logp(), model.dlogp()], mode="NUMBA")
    value, gradient = function({"x": density.point})
    with mp.workdps(DIGITS):

        def exact(log_parameter: Any) -> Any:
            return density.exact(mp.exp(log_parameter))

        expected = exact(density.point), mp.diff(exact, density.point)
        found = float(value), float(np.squeeze(gradient))
        value_error, gradient_error = (
            float(abs(x / y - 1)) for x, y in zip(found, expected, strict=True)
        )
        return value_error, gradient_error


def table() -> str:
    """Return a row for each density."""
    header = ["density", "logp, off", "logp, on", "gradient, off", "gradient, on"]
    rows = []
    for density in DENSITIES:
        off, on = errors(density, "off"), errors(density, "on")
        cells = (_power(x) for pair in zip(off, on, strict=True) for x in pair)
        rows.append([density.title, *cells])
    return markdown_table(header, rows)


def _power(x: float) -> str:
    digit, _, exponent = f"{x:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


def main() -> None:
    """Print the table, and write it into the page."""
    text = table()
    print(text)
    write_table(PAGE, text, MARKER)


if __name__ == "__main__":
    main()
