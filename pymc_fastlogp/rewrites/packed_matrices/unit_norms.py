r"""Replace norms of rows that were divided by their norms by one.

.. code::

    s = sum(sqr(x), axis=1);  sum(sqr(x / sqrt(s)[:, None]), axis=1)  ->  switch(isnan(s), nan, switch(isinf(s), 0, 1))

.. math:: \sum_c (x_{rc} / \sqrt{s_r})^2 = s_r / s_r = 1

holds to round-off for finite :math:`s_r` whose squares have not underflowed. A triangle with ones on its diagonal has
:math:`s_r \ge 1` (:mod:`~pymc_fastlogp.analysis.ranges`). ``LKJCorr`` checks the norms of rows that ``CholeskyCorrTransform``
has just normalized. The check must still fail where :math:`s_r` overflows or is NaN:

- An entry of ``x`` is NaN: both sides are NaN.
- The squares overflow: both sides are zero, since ``x / inf`` is zero.
- An entry of ``x`` is infinite: PyTensor has NaN, since ``inf / inf`` is NaN, and the rule has zero.

Neither zero nor NaN passes the check.

When it applies
---------------
The same ``x`` and axes in both places, and sums known to be at least one. All readers of the norms must end in truth values
that agree for zero and NaN. Truth values have no gradient. ``pt.linalg.norm`` is recognized.

When it refuses
---------------
Sums that may be small, whose terms may have lost digits, and norms that are used as numbers.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum, isinf, isnan, switch
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import has_shape_of, is_made_by, operand, operands, squared
from pymc_fastlogp.analysis.ranges import range_of
from pymc_fastlogp.rewrites.replacement import replacement

# NumPy scalars, because Python numbers raise on a division by zero.
type Values = dict[TensorVariable, np.generic | None]


@node_rewriter([Sum])
def local_unit_norms(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(sqr(x / sqrt(s)[:, None]), axis=1) -> 1`` (zero or NaN if ``s`` is not finite), with ``s = sum(sqr(x), axis=1)``."""
    [out] = node.outputs
    quotient = squared(node.inputs[0])
    if quotient is None or not is_made_by(quotient, ps.TrueDiv):
        return None
    x, norms = quotient.owner.inputs
    axes = tuple(range(x.type.ndim)) if node.op.axis is None else node.op.axis
    sums = _under_root(norms, axes)
    if sums is None or sums.owner_op != node.op or not _is_square_of(sums.owner.inputs[0], x):
        return None
    if range_of(sums).low < 1 or not _zero_and_nan_agree(fgraph, out):
        return None
    unit = switch(isnan(sums), np.nan, switch(isinf(sums), 0.0, 1.0)).astype(out.type.dtype)
    return replacement(out, unit)


def _under_root(x: TensorVariable, axes: tuple[int, ...]) -> TensorVariable | None:
    """Return ``s`` if ``x`` is ``sqrt(s)`` with these axes added before or after the root."""
    root = _without_axes(x, axes)
    of = root if root is not None else x
    power = operands(of, ps.Pow)
    if power and not (_is_half(power[1]) and has_shape_of(of, *power)):
        return None
    square = power[0] if power else operand(of, ps.Sqrt)
    return square if square is None or root is not None else _without_axes(square, axes)


def _without_axes(x: TensorVariable, axes: tuple[int, ...]) -> TensorVariable | None:
    """Return ``y`` if ``x`` is ``y`` with exactly these axes added."""
    op = x.owner_op
    is_added = isinstance(op, DimShuffle) and op.is_expand_dims and op.augment == axes
    return x.owner.inputs[0] if is_added else None


def _is_half(x: TensorVariable) -> bool:
    """Return whether ``x`` is 1/2, also in the form of ``pt.linalg.norm``."""
    half = x.owner.inputs[0] if isinstance(x.owner_op, DimShuffle) else x
    two = operand(half, ps.Reciprocal)
    return fill_value(half) == 0.5 or (two is not None and fill_value(two) == 2)


def _is_square_of(square: TensorVariable, x: TensorVariable) -> bool:
    root = squared(square)
    return root is x or (root is not None and operand(root, ps.Abs) is x)


def _zero_and_nan_agree(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether every path from ``x`` ends in a truth value that is equal for ``x = 0`` and for NaN."""
    at_zero: Values = {x: np.float64(0.0)}
    at_nan: Values = {x: np.float64(np.nan)}

    def is_decided(y: TensorVariable) -> bool:
        of_zero, of_nan = _at(y, at_zero), _at(y, at_nan)
        return y.type.dtype == "bool" and of_zero is not None and of_zero == of_nan

    def readers(y: TensorVariable) -> list[Apply]:
        return [] if is_decided(y) else [client for client, _ in fgraph.clients[y]]

    def further(node: Apply) -> list[Apply]:
        return readers(node.outputs[0]) if isinstance(node.op, Elemwise) else []

    with np.errstate(all="ignore"):
        return all(isinstance(node.op, Elemwise) for node in walk(readers(x), further))


def _at(y: TensorVariable, values: Values) -> np.generic | None:
    """Return the value of ``y`` at given values of other variables; None if ``y`` depends on anything else but numbers.

    Results are cached in ``values``.
    """
    if y not in values:
        values[y] = _evaluated(y, values)
    return values[y]


def _evaluated(y: TensorVariable, values: Values) -> np.generic | None:
    if isinstance(y.owner_op, DimShuffle):
        return _at(y.owner.inputs[0], values)
    if (number := fill_value(y)) is not None:
        return number.dtype.type(number)
    if not isinstance(y.owner_op, Elemwise):
        return None
    entries = [_at(z, values) for z in y.owner.inputs]
    return None if None in entries else y.owner.op.scalar_op.impl(*entries)
