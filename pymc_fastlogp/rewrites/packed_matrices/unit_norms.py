r"""Prove that rows which were divided by their norms have norm one.

.. code::

    s = sum(sqr(x), axis=1);  sum(sqr(x / sqrt(s)[:, None]), axis=1)  ->  1 where s is finite

.. math:: \sum_c (x_{rc} / \sqrt{s_r})^2 = s_r / s_r = 1,

to round-off, as long as :math:`s_r` is finite, and not so small that squares that count have lost digits. Of a triangle with ones on
the diagonal it is at least one, and that is what the rule asks for (:mod:`~pymc_fastlogp.analysis.ranges`). The check of ``LKJCorr``,
that the rows of what ``CholeskyCorrTransform`` has just made have norm one, is left to fail only where :math:`s_r` overflows or is
nan. There PyTensor finds

- nan where an entry of ``x`` is nan, and so does the rule, through :math:`s_r`;
- zero where the squares overflow, since ``x / inf`` is zero, and so does the rule;
- nan where an entry of ``x`` is infinite, since ``inf / inf`` is nan; the rule finds zero.

Neither zero nor nan is close to one. So that the last does not get further, the rule fires only where
nothing becomes of the norms but truth values that are the same for zero and nan; they also have no gradient.
"""

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import walk
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum, isinf, isnan, switch
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import has_shape_of, is_made_by, operand, operands, squared
from pymc_fastlogp.analysis.ranges import range_of

# As NumPy has them, which divides by zero.
type Values = dict[TensorVariable, np.generic | None]


@node_rewriter([Sum])
def local_unit_norms(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(sqr(x / sqrt(s)[:, None]), axis=1) -> 1``, or zero or nan, with ``s = sum(sqr(x), axis=1)``."""
    [out] = node.outputs
    quotient = squared(node.inputs[0])
    if quotient is None or not is_made_by(quotient, ps.TrueDiv):
        return None
    x, norms = quotient.owner.inputs
    axes = tuple(range(x.type.ndim)) if node.op.axis is None else node.op.axis
    sums = _under_root(norms, axes)
    if sums is None or sums.owner_op != node.op or not _is_square_of(sums.owner.inputs[0], x):
        return None
    if range_of(sums).low < 1 or not _is_no_matter(fgraph, out):
        return None
    unit = switch(isnan(sums), np.nan, switch(isinf(sums), 0.0, 1.0)).astype(out.type.dtype)
    copy_stack_trace(out, unit)
    return [unit] if out.type.is_super(unit.type) else None


def _under_root(x: TensorVariable, axes: tuple[int, ...]) -> TensorVariable | None:
    """Return what ``x`` is the square root of, with these axes added before or after."""
    root = _without(x, axes)
    of = root if root is not None else x
    power = operands(of, ps.Pow)
    if power and not (_is_half(power[1]) and has_shape_of(of, *power)):
        return None
    square = power[0] if power else operand(of, ps.Sqrt)
    return square if square is None or root is not None else _without(square, axes)


def _without(x: TensorVariable, axes: tuple[int, ...]) -> TensorVariable | None:
    """Return ``x`` without these axes if they were added to it, and nothing else was done."""
    op = x.owner_op
    is_added = isinstance(op, DimShuffle) and op.is_expand_dims and op.augment == axes
    return x.owner.inputs[0] if is_added else None


def _is_half(x: TensorVariable) -> bool:
    """Return whether ``x`` is one half, also as ``pt.linalg.norm`` writes it."""
    half = x.owner.inputs[0] if isinstance(x.owner_op, DimShuffle) else x
    two = operand(half, ps.Reciprocal)
    return fill_value(half) == 0.5 or (two is not None and fill_value(two) == 2)


def _is_square_of(square: TensorVariable, x: TensorVariable) -> bool:
    root = squared(square)
    return root is x or (root is not None and operand(root, ps.Abs) is x)


def _is_no_matter(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether all that becomes of ``x`` are truth values that are the same for zero and nan."""
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
    """Return an entry of ``y`` at an entry of what it is made of, None if it is made of anything else but numbers.

    What was found is added to the values.
    """
    if y not in values:
        values[y] = _computed(y, values)
    return values[y]


def _computed(y: TensorVariable, values: Values) -> np.generic | None:
    if isinstance(y.owner_op, DimShuffle):
        return _at(y.owner.inputs[0], values)
    if (number := fill_value(y)) is not None:
        return number.dtype.type(number)
    if not isinstance(y.owner_op, Elemwise):
        return None
    entries = [_at(z, values) for z in y.owner.inputs]
    return None if None in entries else y.owner.op.scalar_op.impl(*entries)
