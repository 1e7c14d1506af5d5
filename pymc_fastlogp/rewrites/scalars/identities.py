r"""Simplify scalar functions before the gradient, by patterns that PyTensor lacks there.

.. code::

    abs(x) ** 2, sqr(abs(x))  ->  x ** 2, sqr(x)
    x ** 0.5                  ->  sqrt(x)
    gammaincc(1, x)           ->  exp(-x)                        x >= 0
    gammainc(1, x)            ->  -expm1(-x)                     x >= 0
    betainc(a, 1, x)          ->  exp(a * log(x))                a >= 0, 0 <= x <= 1
    betainc(1, a, x)          ->  -expm1(a * log1p(-x))          a >= 0, 0 <= x <= 1

``pt.linalg.norm`` writes the first two. The gradient of the first left side is ``2 * abs(x) * sign(x)``, which equals ``2 * x`` for
every ``x``. After the second rewrite PyTensor turns ``log(1 / sqrt(x))`` into ``-log(x) / 2``, whose gradient needs no root.
PyTensor's own ``local_pow_specialize`` runs after the gradient, and takes roots of integers in float32.

The incomplete gamma and beta functions are the probabilities that a count is zero, by which PyMC truncates and censors counts, as in
``pm.HurdlePoisson`` and ``pm.HurdleNegativeBinomial``:

.. math::

    Q(1, x) = \int_x^\infty e^{-t}\,dt = e^{-x}, \qquad
    I_x(a, 1) = a \int_0^x t^{a-1}\,dt = x^a .

PyTensor then takes ``log(1 - exp(-x))`` as ``log1mexp(-x)``, which keeps the digits of a small ``x``. The derivative of ``betainc`` by its
first argument is a loop without the rewrite.

When it applies
---------------
To real floating-point ``x``. Exponents, and the arguments that are one, are constants that do not broadcast ``x``.

When it refuses
---------------
- An incomplete function of an argument that is not known to be in the interval of the table. Outside of it PyTensor's function is NaN.
- Incomplete functions at other integers. They are polynomials times ``exp(-x)``, whose gradient cancels for small ``x``.

``betainc`` at ``a == x == 0``, or for an infinite ``a`` and ``x == 1``, is one before and NaN after the rewrite. PyMC's checks of
parameters exclude the first point, and PyMC's log density is NaN at the second one.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import PatternNodeRewriter, SequentialNodeRewriter
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import scalar_op
from pymc_fastlogp.analysis.ranges import is_nonnegative, range_of

Pattern = tuple[Any, ...]


class Identity(SequentialNodeRewriter):
    """Rewriter of patterns whose parts may have other readers.

    Parameters
    ----------
    *rows : tuple of tuple
        A pattern and its replacement.
    """

    def __init__(self, *rows: tuple[Pattern, Pattern]):
        super().__init__(
            *(
                PatternNodeRewriter(before, after, allow_multiple_clients=True, allow_cast=False)
                for before, after in rows
            )
        )
        operands = [[x for x in before[1:] if isinstance(x, tuple)] for before, _ in rows]
        # Scalar Ops of the patterns' operands. A pattern without such an operand is always tried.
        self._inner = (
            {type(x[0].scalar_op) for xs in operands for x in xs} if all(operands) else None
        )

    def transform(self, fgraph: FunctionGraph, node: Apply, enforce_tracks: bool = True) -> Any:
        """Try the patterns, unless no operand has a scalar Op of any pattern: the check is fast."""
        inner = self._inner
        if inner and not any(type(scalar_op(x)) in inner for x in node.inputs):
            return None
        return super().transform(fgraph, node, enforce_tracks=enforce_tracks)


REAL = {"pattern": "x", "constraint": lambda x: x.type.dtype in float_dtypes}
TWO = {"pattern": "two", "constraint": lambda x: fill_value(x) == 2}

square_of_abs = Identity(
    ((pt.sqr, (pt.abs, REAL)), (pt.sqr, "x")),
    ((pt.pow, (pt.abs, REAL), TWO), (pt.pow, "x", "two")),
)
pow_to_sqrt = Identity(((pt.pow, REAL, 0.5), (pt.sqrt, "x")))


def _is_probability(x: TensorVariable) -> bool:
    """Return whether each entry of a float ``x`` is between zero and one, or nan."""
    entries = range_of(x)
    return x.type.dtype in float_dtypes and entries.low >= 0 and entries.high <= 1


ONE = {
    "pattern": "one",
    "constraint": lambda x: fill_value(x) == 1 and None not in x.type.shape,
}
SHAPE = {"pattern": "a", "constraint": is_nonnegative}
NONNEGATIVE = {
    "pattern": "x",
    "constraint": lambda x: x.type.dtype in float_dtypes and is_nonnegative(x),
}
PROBABILITY = {"pattern": "x", "constraint": _is_probability}

elementary_incomplete = Identity(
    ((pt.gammaincc, ONE, NONNEGATIVE), (pt.exp, (pt.neg, "x"))),
    ((pt.gammainc, ONE, NONNEGATIVE), (pt.neg, (pt.expm1, (pt.neg, "x")))),
    ((pt.betainc, SHAPE, ONE, PROBABILITY), (pt.exp, (pt.mul, "a", (pt.log, "x")))),
    (
        (pt.betainc, ONE, SHAPE, PROBABILITY),
        (pt.neg, (pt.expm1, (pt.mul, "a", (pt.log1p, (pt.neg, "x"))))),
    ),
)
