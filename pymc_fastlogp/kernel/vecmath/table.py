"""The table of vector functions: the one place where a function is added."""

from collections.abc import Callable
from dataclasses import dataclass

from pymc_fastlogp.kernel.vecmath import (
    error,
    error_inverse,
    exponential,
    gamma,
    hyperbolic,
    inverse,
    logarithm,
    logistic,
    normal,
    power,
    trigonometric,
)
from pymc_fastlogp.kernel.vecmath.vector import Floats

LARGEST = 1.7976931348623157e308
# The largest argument whose hyperbolic sine and cosine are finite.
SINH_HIGH = 710.4758600739439


@dataclass(frozen=True)
class Function:
    """A row of the table.

    Attributes
    ----------
    name : str
        As in NumPy and ``scipy.special``, where they have it.
    emit : callable
        Takes ``n_arguments`` Floats, appends instructions, returns one Floats.
    domain : tuple of float
        Where the result is finite and not constant; accuracy is measured here.
    ulp : float
        The largest error, in units in the last place of the larger of ``abs(result)`` and ``unit``.
    unit : float
        0, or the magnitude below which the error is absolute, for a function with zeros that cannot
        be hit exactly.
    monotone : bool
        Whether a larger argument never gives a smaller result.
    n_arguments : int
        Number of arguments.
    """

    name: str
    emit: Callable[..., Floats]
    domain: tuple[float, float]
    ulp: float = 2.0
    unit: float = 0.0
    monotone: bool = False
    n_arguments: int = 1


@dataclass(frozen=True)
class Shared:
    """Functions of one argument that are computed together, with the same bits as alone.

    Attributes
    ----------
    name : str
        Its name.
    emit : callable
        Takes one Floats, appends instructions, returns one Floats for each of ``results``.
    results : tuple of str
        The names of the functions in :data:`FUNCTIONS`.
    """

    name: str
    emit: Callable[[Floats], tuple[Floats, ...]]
    results: tuple[str, ...]


FUNCTIONS = {
    row.name: row
    for row in (
        Function("exp", exponential.exp, (-745.2, 709.79), monotone=True),
        Function("exp2", exponential.exp2, (-1075.0, 1024.0)),
        Function("expm1", exponential.expm1, (-40.0, 709.79)),
        Function("log", logarithm.log, (0.0, LARGEST), monotone=True),
        Function("log1p", logarithm.log1p, (-1.0, LARGEST)),
        Function("log2", logarithm.log2, (0.0, LARGEST)),
        Function("log10", logarithm.log10, (0.0, LARGEST)),
        Function("sigmoid", logistic.sigmoid, (-745.2, 40.0), monotone=True),
        Function("softplus", logistic.softplus, (-745.2, LARGEST)),
        Function("log_sigmoid", logistic.log_sigmoid, (-LARGEST, 745.2)),
        Function("log1mexp", logistic.log1mexp, (-745.2, 0.0)),
        Function("tanh", logistic.tanh, (-20.0, 20.0)),
        Function("reciprocal", Floats.reciprocal, (-LARGEST, LARGEST), ulp=0.5),
        Function("sqrt", Floats.sqrt, (0.0, LARGEST), ulp=0.5, monotone=True),
        Function("sin", trigonometric.sin, (-LARGEST, LARGEST)),
        Function("cos", trigonometric.cos, (-LARGEST, LARGEST)),
        Function("tan", trigonometric.tan, (-LARGEST, LARGEST)),
        Function("arcsin", inverse.arcsin, (-1.0, 1.0)),
        Function("arccos", inverse.arccos, (-1.0, 1.0)),
        Function("arctan", inverse.arctan, (-LARGEST, LARGEST)),
        Function("arctan2", inverse.arctan2, (-LARGEST, LARGEST), n_arguments=2),
        Function("sinh", hyperbolic.sinh, (-SINH_HIGH, SINH_HIGH)),
        Function("cosh", hyperbolic.cosh, (-SINH_HIGH, SINH_HIGH)),
        Function("arcsinh", hyperbolic.arcsinh, (-LARGEST, LARGEST)),
        Function("arccosh", hyperbolic.arccosh, (1.0, LARGEST)),
        Function("arctanh", hyperbolic.arctanh, (-1.0, 1.0)),
        Function("gammaln", gamma.gammaln, (-1e6, 2.55e305), ulp=4.0, unit=0.5),
        Function("psi", gamma.psi, (-1e6, LARGEST), ulp=4.0, unit=0.5),
        Function("trigamma", gamma.trigamma, (-1e6, LARGEST)),
        Function("erf", error.erf, (-6.0, 6.0)),
        Function("erfc", error.erfc, (-6.0, 27.3)),
        Function("erfcx", error.erfcx, (-26.7, LARGEST)),
        Function("erfinv", error_inverse.erfinv, (-1.0, 1.0)),
        Function("erfcinv", error_inverse.erfcinv, (0.0, 2.0)),
        Function("ndtr", normal.ndtr, (-38.6, 8.4)),
        Function("log_ndtr", normal.log_ndtr, (-1.9e154, 38.6)),
        Function("pow", power.power, (-LARGEST, LARGEST), n_arguments=2),
        Function("logaddexp", power.logaddexp, (-LARGEST, LARGEST), unit=1.0, n_arguments=2),
    )
}

SHARED = {
    row.name: row
    for row in (
        Shared("sigmoid_softplus", logistic.sigmoid_softplus, ("sigmoid", "softplus")),
        Shared("log_reciprocal", logarithm.log_reciprocal, ("log", "reciprocal")),
        Shared("sin_cos", trigonometric.sin_cos, ("sin", "cos")),
        Shared("gammaln_psi", gamma.gammaln_psi, ("gammaln", "psi")),
    )
}
