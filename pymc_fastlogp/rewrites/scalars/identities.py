"""Simplify powers before the gradient, by patterns that PyTensor lacks there.

.. code::

    abs(x) ** 2, sqr(abs(x))  ->  x ** 2, sqr(x)      x real
    x ** 0.5                  ->  sqrt(x)

``pt.linalg.norm`` writes both. The gradient of the first left side is ``2 * abs(x) * sign(x)``, which equals ``2 * x`` for
every ``x``. After the second rewrite PyTensor turns ``log(1 / sqrt(x))`` into ``-log(x) / 2``, whose gradient needs no root.
PyTensor's own ``local_pow_specialize`` runs after the gradient, and takes roots of integers in float32.

When it applies
---------------
To real floating-point ``x`` and a constant exponent that does not broadcast ``x``.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import PatternNodeRewriter, SequentialNodeRewriter
from pytensor.tensor.type import float_dtypes

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import scalar_op

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
