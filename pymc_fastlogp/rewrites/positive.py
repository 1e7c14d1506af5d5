"""Sums of squares that cannot be zero: the norms of rows that each hold a constant other than zero.

The rows of a triangle with a unit diagonal have norms of at least one. That is what a division
by them needs to know, since ``0 / w`` is zero for every ``w`` but zero and nan.
"""

import math

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value
from pymc_fastlogp.rewrites.set_chains import positions, unwind


def is_positive(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Whether each entry of ``x`` is provably above zero, or nan."""
    if isinstance(x, Constant):
        return bool((x.data > 0).all())
    op = x.owner_op
    if isinstance(op, DimShuffle):
        return is_positive(fgraph, x.owner.inputs[0])
    if isinstance(op, Sum):
        return _sums_something_positive(fgraph, x.owner)
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Sqrt):
        return is_positive(fgraph, x.owner.inputs[0])
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Pow):
        base, exponent = x.owner.inputs
        return fill_value(exponent) == 0.5 and is_positive(fgraph, base)
    return False


def _sums_something_positive(fgraph: FunctionGraph, node: Apply) -> bool:
    """Whether squares are summed, and each sum has that of a constant other than zero."""
    x = node.inputs[0]
    while (squared := _squared(x)) is not None:
        x = squared
    filled = unwind(fgraph, x)
    if filled is None:
        return False
    values = [write.inputs[1] for write in filled.writes]
    if x is node.inputs[0] and not all(map(_is_square, (filled.root, *values))):
        return False
    last = fill_value(values[-1])
    return last is not None and last * last > 0 and _covers_all(node, filled.writes[-1])


def _covers_all(node: Apply, write: Apply) -> bool:
    """Whether a write puts at least one entry into each sum of ``node``."""
    where, shape = positions(write), write.inputs[0].type.shape
    if where is None:
        return False
    axes = range(len(shape)) if node.op.axis is None else node.op.axis
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    indices = np.unravel_index(where, shape)
    covered = np.unique(np.array([indices[axis] for axis in kept]), axis=-1)
    return where.size > 0 and (not kept or covered.shape[1] == math.prod(shape[a] for a in kept))


def _is_square(x: TensorVariable) -> bool:
    """Whether each entry of ``x`` is at least zero, or nan."""
    value = fill_value(x)
    return _squared(x) is not None if value is None else bool(value >= 0)


def _squared(x: TensorVariable) -> TensorVariable | None:
    """Return what ``x`` is the square, or the absolute value, of."""
    if not isinstance(x.owner_op, Elemwise):
        return None
    scalar_op = x.owner.op.scalar_op
    if isinstance(scalar_op, ps.Pow) and fill_value(x.owner.inputs[1]) != 2:
        return None
    return x.owner.inputs[0] if isinstance(scalar_op, ps.Sqr | ps.Abs | ps.Pow) else None
