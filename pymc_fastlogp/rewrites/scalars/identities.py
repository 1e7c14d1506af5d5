"""``sqr(abs(x)) -> sqr(x)`` and other identities that PyTensor lacks before the gradient, a row each.

``abs(x) ** 2 -> x ** 2`` and ``sqr(abs(x)) -> sqr(x)``, for real ``x``
    ``pt.linalg.norm`` writes it. The gradient of the left is ``2 * abs(x) * sign(x)``, two passes more than ``2 * x``, which it
    equals for every ``x``, zero, infinity and nan included.
``x ** 0.5 -> sqrt(x)``
    ``pt.linalg.norm`` writes it, too. Before the gradient, PyTensor then makes ``log(x) / 2`` of ``log(sqrt(x))``, whose gradient
    needs no root. PyTensor's own ``local_pow_specialize`` runs after it, and takes a root of integers in float32.
"""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import PatternNodeRewriter, SequentialNodeRewriter
from pytensor.tensor.math import abs as pt_abs
from pytensor.tensor.math import pow as pt_pow
from pytensor.tensor.math import sqr, sqrt
from pytensor.tensor.type import float_dtypes

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import scalar_op

Pattern = tuple[Any, ...]


class Identity(SequentialNodeRewriter):
    """The rewriter of each pattern into the other, whoever else reads its parts.

    Parameters
    ----------
    *rows : tuple of tuple
        A pattern, and the pattern that takes its place.
    """

    def __init__(self, *rows: tuple[Pattern, Pattern]):
        super().__init__(
            *(
                PatternNodeRewriter(before, after, allow_multiple_clients=True, allow_cast=False)
                for before, after in rows
            )
        )
        operands = [[x for x in before[1:] if isinstance(x, tuple)] for before, _ in rows]
        # Of each pattern the functions that make an operand; one that asks for none is always tried.
        self._inner = (
            {type(x[0].scalar_op) for xs in operands for x in xs} if all(operands) else None
        )

    def transform(self, fgraph: FunctionGraph, node: Apply, enforce_tracks: bool = True) -> Any:
        """Try the patterns, unless no operand is what any of them asks for: that is found out at once."""
        inner = self._inner
        if inner and not any(type(scalar_op(x)) in inner for x in node.inputs):
            return None
        return super().transform(fgraph, node, enforce_tracks=enforce_tracks)


REAL = {"pattern": "x", "constraint": lambda x: x.type.dtype in float_dtypes}
TWO = {"pattern": "two", "constraint": lambda x: fill_value(x) == 2}

square_of_abs = Identity(
    ((sqr, (pt_abs, REAL)), (sqr, "x")),
    ((pt_pow, (pt_abs, REAL), TWO), (pt_pow, "x", "two")),
)
pow_to_sqrt = Identity(((pt_pow, REAL, 0.5), (sqrt, "x")))
