"""Bound the entries of an expression, and find whether they may be nan.

:func:`range_of` walks from an expression to its inputs:

- Elementwise functions take their interval function from :mod:`~pymc_fastlogp.analysis.scalar_facts`;
  :mod:`~pymc_fastlogp.analysis.intervals` describes the arithmetic.
- Ops that move, set, join and reduce entries have a rule in this module.
- A constant has the interval of its data. An Op without a rule has the interval of its dtype.

Inputs may hold nan and infinities, because samplers visit such points, and the plugin must then do the same as PyTensor, raising
included. So the interval of ``exp(x)`` is ``[0, inf]`` *or nan*. Only constants, integers, and functions of these that cannot
form ``inf - inf`` and the like, exclude nan.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Max, Min, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import is_elemwise, operands
from pymc_fastlogp.analysis.intervals import (
    HUGE,
    Interval,
    hull,
    range_of_data,
    range_of_dtype,
    stored_as,
)
from pymc_fastlogp.analysis.scalar_facts import facts_of
from pymc_fastlogp.analysis.writes import is_set, positions

# Deeper expressions count as unknown: the walk is recursive, and distant inputs rarely prove anything.
DEEPEST = 100
# After so many intervals, further expressions count as unknown. Nested writes ask for a new subset of entries at each write.
MAX_INTERVALS = 2_000

# Up to this number of terms the rounding errors of a sum are smaller than the sum of magnitudes.
MOST_TERMS = 1_000_000

# Flat positions of entries; None means all entries.
type Chosen = np.ndarray | None


def range_of(x: TensorVariable, where: Chosen = None) -> Interval:
    """Return the interval of the entries of ``x``.

    Parameters
    ----------
    x : TensorVariable
        Any expression.
    where : numpy.ndarray of int, optional
        Flat positions of the entries to bound, default all.
    """
    with np.errstate(all="ignore"):
        return _Walk().of(x, where)


def is_nonnegative(x: TensorVariable, where: Chosen = None) -> bool:
    """Return whether no entry of ``x`` is negative; entries may be nan."""
    return (where is not None and not where.size) or range_of(x, where).low >= 0


def is_positive(x: TensorVariable) -> bool:
    """Return whether each entry of ``x`` is positive or nan."""
    return range_of(x).low > 0


def of_full_shape(node: Apply) -> list[TensorVariable]:
    """Return the operands of an Elemwise that are known to have the shape of its output."""
    for lengths in zip(*(x.type.shape for x in node.inputs), strict=True):
        if None in lengths and sum(n != 1 for n in lengths) > 1:
            return []
    of_output = node.outputs[0].type.broadcastable
    return [x for x in node.inputs if x.type.broadcastable == of_output]


class _Walk:
    """State of one query: intervals found so far, and the depth of the walk."""

    def __init__(self) -> None:
        # The entry holds a reference to the positions, so that their id is not reused.
        self.found: dict[tuple[TensorVariable, int], tuple[Chosen, Interval]] = {}
        self.depth = 0

    def of(self, x: TensorVariable, where: Chosen = None) -> Interval:
        """Return the interval of all or some entries of ``x``."""
        key = x, id(where)
        if key not in self.found:
            self.depth += 1
            self.found[key] = where, self._of(x, where)
            self.depth -= 1
        return self.found[key][1]

    def _of(self, x: TensorVariable, where: Chosen) -> Interval:
        if isinstance(x, Constant):
            return _of_constant(x) if where is None else range_of_data(x.data.ravel()[where])
        if x.owner is None or self.depth > DEEPEST or len(self.found) > MAX_INTERVALS:
            return range_of_dtype(x.type.dtype)
        op = x.owner.op
        rule = _of_first_input if isinstance(op, CheckAndRaise) else RULES.get(type(op))
        interval = None if rule is None else rule(self, x.owner, where)
        return (
            range_of_dtype(x.type.dtype) if interval is None else stored_as(interval, x.type.dtype)
        )


# Cached because data may be large and take part in many comparisons.
_constants: WeakKeyDictionary[Constant, Interval] = WeakKeyDictionary()


def _of_constant(x: Constant) -> Interval:
    found = _constants.get(x)
    if found is None:
        found = _constants[x] = range_of_data(x.data)
    return found


RangeRule = Callable[[_Walk, Apply, Chosen], Interval | None]


def _elemwise(walk: _Walk, node: Apply, where: Chosen) -> Interval | None:
    interval = facts_of(node.op.scalar_op).range
    if interval is None:
        return None
    whole = of_full_shape(node)
    xs = [walk.of(x, where if x in whole else None) for x in node.inputs]
    if (bound := _bound_of_guarded(node)) is not None and not (least := walk.of(bound)).nan:
        xs[2] = replace(xs[2], low=max(xs[2].low, least.low))
    result = interval(xs)
    return replace(result, nan=result.nan or any(x.nan for x in xs))


def _bound_of_guarded(node: Apply) -> TensorVariable | None:
    """Return ``c`` if a node computes ``switch(x < c, u, x)``, None for other nodes."""
    if not is_elemwise(node.op, ps.Switch):
        return None
    match operands(node.inputs[0], ps.LT):
        case [x, bound] if x is node.inputs[2]:
            return bound
    return None


def _of_first_input(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    """Return the interval for an Op that moves or selects entries of its first input."""
    return walk.of(node.inputs[0])


def _of_all_inputs(walk: _Walk, node: Apply, where: Chosen) -> Interval | None:
    """Return the interval for an Op that joins its inputs."""
    return hull([walk.of(x) for x in node.inputs]) if node.inputs else None


def _write(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    base, value = node.inputs[:2]
    if not node.op.set_instead_of_inc:
        return _increment(walk.of(base, where), walk.of(value))
    written = None if where is None else positions(node)
    if where is None or written is None:
        return hull([walk.of(base), walk.of(value)])
    is_written = np.isin(where, written)
    parts = [walk.of(value)] if is_written.any() else []
    if not is_written.all():
        parts.append(walk.of(base, where[~is_written]))
    return hull(parts)


def _increment(base: Interval, value: Interval) -> Interval:
    """Return the range of an entry of ``base`` after entries of ``value`` were added any number of times."""
    rises, falls = value.high > 0, value.low < 0
    makes_nan = (rises or base.high > HUGE) and (falls or base.low < -HUGE)
    return Interval(
        -math.inf if falls else base.low,
        math.inf if rises else base.high,
        makes_nan or base.nan or value.nan,
    )


def _sum(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    [x] = node.inputs
    term, n = walk.of(x), _n_terms(node)
    low, high = _sum_of(term.low, n), -_sum_of(-term.high, n)
    if low == 0:
        low = _positive_term(walk, node)
    return Interval(low, high, term.nan or (low < -HUGE and high > HUGE))


def _n_terms(node: Apply) -> int | None:
    """Return the number of terms of each sum, None if it is unknown."""
    shape = node.inputs[0].type.shape
    axes = range(len(shape)) if node.op.axis is None else node.op.axis
    lengths = [length for axis in axes if (length := shape[axis]) is not None]
    return math.prod(lengths) if len(lengths) == len(axes) else None


def _sum_of(low: float, n: int | None) -> float:
    """Return a lower bound of a sum of ``n`` terms that are at least ``low``."""
    if n == 0:
        return 0.0
    if low >= 0:
        return low if n else 0.0
    return 2 * n * low if n is not None and n <= MOST_TERMS else -math.inf


def _positive_term(walk: _Walk, node: Apply) -> float:
    """Return a lower bound of each sum of nonnegative terms, from an entry that ``set_subtensor`` wrote into each sum."""
    [x], last = node.inputs, _last_set(node.inputs[0])
    where = None if last is None else positions(last)
    if last is None or where is None or not _is_in_each_sum(node, where, last):
        return 0.0
    return max(walk.of(x, where).low, 0.0)


def _last_set(x: TensorVariable) -> Apply | None:
    """Return the last ``set_subtensor`` before ``x``, with elementwise functions of one operand in between."""
    while isinstance(x.owner_op, Elemwise) and len(whole := of_full_shape(x.owner)) == 1:
        [x] = whole
    return x.owner if is_set(x) and x.owner.op.set_instead_of_inc else None


def _is_in_each_sum(node: Apply, where: np.ndarray, write: Apply) -> bool:
    """Return whether each sum contains at least one of the flat positions of a write."""
    # The shape of the base, because a write keeps its old type when a rewrite makes the shape of the base static.
    shape = write.inputs[0].type.shape
    axes = range(len(shape)) if node.op.axis is None else node.op.axis
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    indices = np.unravel_index(where, shape)
    covered = np.unique(np.array([indices[axis] for axis in kept]), axis=-1)
    return where.size > 0 and (not kept or covered.shape[1] == math.prod(shape[a] for a in kept))


def _softmax(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    x = walk.of(node.inputs[0])
    may_overflow = node.inputs[0].type.dtype not in float_dtypes  # the maximum is subtracted first
    return Interval(0.0, 1.0, x.nan or not x.is_bounded or may_overflow)


RULES: dict[type, RangeRule] = {
    Elemwise: _elemwise,
    **dict.fromkeys(
        (DimShuffle, Reshape, SpecifyShape, TensorFromScalar, ScalarFromTensor), _of_first_input
    ),
    **dict.fromkeys((Alloc, Subtensor, AdvancedSubtensor, Max, Min), _of_first_input),
    **dict.fromkeys((Join, MakeVector), _of_all_inputs),
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _write),
    Sum: _sum,
    Softmax: _softmax,
}
