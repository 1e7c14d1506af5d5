"""The table of vector functions. A new function is one row here."""

from collections.abc import Callable
from dataclasses import dataclass

from pytensor import scalar as ps
from pytensor.scalar import math as psm
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp._upstream.pymc import I0e, I1e
from pymc_fastlogp.kernel.vecmath import (
    bessel,
    erf,
    erfinv,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    logistic,
    ndtr,
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
        Name of the function, as in NumPy and ``scipy.special`` if they have it.
    emit : callable
        Takes ``n_arguments`` Floats, appends instructions, returns one Floats.
    op : type, optional
        Class of the scalar Op that the function computes.
    domain : tuple of float
        Interval in which the result is finite and not constant, where accuracy is measured.
    ulp : float
        Bound on the error, in units in the last place of the larger of ``abs(result)`` and ``unit``.
    unit : float
        Magnitude of the result below which the error is absolute, for a function whose zeros are not doubles; else 0.
    monotone : bool
        Whether a larger argument never gives a smaller result.
    n_arguments : int
        Number of arguments.
    """

    name: str
    emit: Callable[..., Floats]
    op: type[ScalarOp] | None
    domain: tuple[float, float]
    ulp: float = 2.0
    unit: float = 0.0
    monotone: bool = False
    n_arguments: int = 1


@dataclass(frozen=True)
class Shared:
    """Functions of one argument that share work; each result has the same bits as from a separate call.

    ``results`` are names in :data:`FUNCTIONS`, in the order in which ``emit`` returns the results.
    """

    name: str
    emit: Callable[[Floats], tuple[Floats, ...]]
    results: tuple[str, ...]


FUNCTIONS = {
    row.name: row
    for row in (
        Function("exp", exponential.exp, ps.Exp, (-745.2, 709.79), monotone=True),
        Function("exp2", exponential.exp2, ps.Exp2, (-1075.0, 1024.0)),
        Function("expm1", exponential.expm1, ps.Expm1, (-40.0, 709.79)),
        Function("log", logarithm.log, ps.Log, (0.0, LARGEST), monotone=True),
        Function("log1p", logarithm.log1p, ps.Log1p, (-1.0, LARGEST)),
        Function("log2", logarithm.log2, ps.Log2, (0.0, LARGEST)),
        Function("log10", logarithm.log10, ps.Log10, (0.0, LARGEST)),
        Function("sigmoid", logistic.sigmoid, psm.Sigmoid, (-745.2, 40.0), monotone=True),
        Function("softplus", logistic.softplus, psm.Softplus, (-745.2, LARGEST)),
        Function("softplus_sum", logistic.softplus_sum, None, (-745.2, LARGEST), n_arguments=2),
        Function("log_sigmoid", logistic.log_sigmoid, None, (-LARGEST, 745.2)),
        Function("log1mexp", logistic.log1mexp, psm.Log1mexp, (-745.2, 0.0)),
        Function("tanh", logistic.tanh, ps.Tanh, (-20.0, 20.0)),
        Function("reciprocal", Floats.reciprocal, None, (-LARGEST, LARGEST), ulp=0.5),
        Function("sqrt", Floats.sqrt, ps.Sqrt, (0.0, LARGEST), ulp=0.5, monotone=True),
        Function("sin", trigonometric.sin, ps.Sin, (-LARGEST, LARGEST)),
        Function("cos", trigonometric.cos, ps.Cos, (-LARGEST, LARGEST)),
        Function("tan", trigonometric.tan, ps.Tan, (-LARGEST, LARGEST)),
        Function("arcsin", inverse_trigonometric.arcsin, ps.ArcSin, (-1.0, 1.0)),
        Function("arccos", inverse_trigonometric.arccos, ps.ArcCos, (-1.0, 1.0)),
        Function("arctan", inverse_trigonometric.arctan, ps.ArcTan, (-LARGEST, LARGEST)),
        Function(
            "arctan2", inverse_trigonometric.arctan2, ps.ArcTan2, (-LARGEST, LARGEST), n_arguments=2
        ),
        Function("sinh", hyperbolic.sinh, ps.Sinh, (-SINH_HIGH, SINH_HIGH)),
        Function("cosh", hyperbolic.cosh, ps.Cosh, (-SINH_HIGH, SINH_HIGH)),
        Function("arcsinh", hyperbolic.arcsinh, ps.ArcSinh, (-LARGEST, LARGEST)),
        Function("arccosh", hyperbolic.arccosh, ps.ArcCosh, (1.0, LARGEST)),
        Function("arctanh", hyperbolic.arctanh, ps.ArcTanh, (-1.0, 1.0)),
        Function("gammaln", gamma.gammaln, psm.GammaLn, (-1e6, 2.55e305), ulp=4.0, unit=0.5),
        Function("psi", gamma.psi, psm.Psi, (-1e6, LARGEST), ulp=4.0, unit=0.5),
        Function("trigamma", gamma.trigamma, psm.TriGamma, (-1e6, LARGEST)),
        Function("erf", erf.erf, psm.Erf, (-6.0, 6.0)),
        Function("erfc", erf.erfc, psm.Erfc, (-6.0, 27.3)),
        Function("erfcx", erf.erfcx, psm.Erfcx, (-26.7, LARGEST)),
        Function("erfinv", erfinv.erfinv, psm.Erfinv, (-1.0, 1.0)),
        Function("erfcinv", erfinv.erfcinv, psm.Erfcinv, (0.0, 2.0)),
        Function("ndtr", ndtr.ndtr, None, (-38.6, 8.4)),
        Function("log_ndtr", ndtr.log_ndtr, None, (-1.9e154, 38.6)),
        Function("i0e", bessel.i0e, I0e, (-LARGEST, LARGEST)),
        Function("i1e", bessel.i1e, I1e, (-LARGEST, LARGEST)),
        Function("pow", power.power, ps.Pow, (-LARGEST, LARGEST), n_arguments=2),
        Function("logaddexp", power.logaddexp, None, (-LARGEST, LARGEST), unit=1.0, n_arguments=2),
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
