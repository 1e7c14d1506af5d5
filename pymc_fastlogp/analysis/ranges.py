"""Between which numbers the entries of an expression lie, and whether they may be nan.

:func:`range_of` walks from an expression to its inputs. What an elementwise function makes of intervals is in
:mod:`~pymc_fastlogp.analysis.scalar_facts`, what arithmetic on intervals has to be careful about in
:mod:`~pymc_fastlogp.analysis.intervals`; here are the Ops that move, set, join and reduce entries. Of constants the
smallest and largest entry count, of anything that has no rule all that its dtype holds.

Nothing is assumed of inputs. A value variable, a parameter without bounds, shared data may hold nan and
infinities: samplers do step there, and what upstream then does, which may be to raise, is what the plugin
does. So ``exp(x)`` is zero or more *or nan*, and ``nan`` is ruled out only for constants, integers, and
what is computed of them without ``inf - inf`` and the like.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
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

from pymc_fastlogp.analysis.intervals import HUGE, Interval, all_of, fitted, hull, of_data
from pymc_fastlogp.analysis.scalar_facts import facts_of
from pymc_fastlogp.analysis.writes import is_set, positions

# Deeper expressions count as unknown: the walk is recursive, and far inputs rarely prove anything.
DEEPEST = 100
# So do others, after so many of them: what is written to is asked for the entries that are left, other ones after each write.
MOST_FOUND = 2_000

# As long as rounding errors of all the terms add up to less than the sum.
MOST_TERMS = 1_000_000

# Flat positions of entries; None for all of them.
type Chosen = np.ndarray | None


def range_of(x: TensorVariable, where: Chosen = None) -> Interval:
    """Return the interval of the entries of ``x``.

    Parameters
    ----------
    x : TensorVariable
        Any expression.
    where : numpy.ndarray of int, optional
        Only of the entries at these flat positions.
    """
    with np.errstate(all="ignore"):
        return _Walk().of(x, where)


def is_nonnegative(x: TensorVariable, where: Chosen = None) -> bool:
    """Return whether no entry of ``x`` is below zero; some may be nan."""
    return (where is not None and not where.size) or range_of(x, where).low >= 0


def is_positive(x: TensorVariable) -> bool:
    """Return whether each entry of ``x`` is above zero, or nan."""
    return range_of(x).low > 0


def of_full_shape(node: Apply) -> list[TensorVariable]:
    """Return the operands of an Elemwise that surely have the shape of its output."""
    for lengths in zip(*(x.type.shape for x in node.inputs), strict=True):
        if None in lengths and sum(n != 1 for n in lengths) > 1:
            return []
    of_output = node.outputs[0].type.broadcastable
    return [x for x in node.inputs if x.type.broadcastable == of_output]


class _Walk:
    """One query: what was found, and how deep the walk is."""

    def __init__(self) -> None:
        # With the positions, so that no other array gets their id.
        self.found: dict[tuple[TensorVariable, int], tuple[Chosen, Interval]] = {}
        self.depth = 0

    def of(self, x: TensorVariable, where: Chosen = None) -> Interval:
        """Return the interval of the entries of ``x``, or of some of them."""
        key = x, id(where)
        if key not in self.found:
            self.depth += 1
            self.found[key] = where, self._of(x, where)
            self.depth -= 1
        return self.found[key][1]

    def _of(self, x: TensorVariable, where: Chosen) -> Interval:
        if isinstance(x, Constant):
            return _of_constant(x) if where is None else of_data(x.data.ravel()[where])
        if x.owner is None or self.depth > DEEPEST or len(self.found) > MOST_FOUND:
            return all_of(x.type.dtype)
        op = x.owner.op
        rule = _first if isinstance(op, CheckAndRaise) else RULES.get(type(op))
        interval = None if rule is None else rule(self, x.owner, where)
        return all_of(x.type.dtype) if interval is None else fitted(interval, x.type.dtype)


# Data may be large, and are asked for each time that something is compared with them.
_constants: WeakKeyDictionary[Constant, Interval] = WeakKeyDictionary()


def _of_constant(x: Constant) -> Interval:
    found = _constants.get(x)
    if found is None:
        found = _constants[x] = of_data(x.data)
    return found


Rule = Callable[[_Walk, Apply, Chosen], Interval | None]


def _elemwise(walk: _Walk, node: Apply, where: Chosen) -> Interval | None:
    rule = facts_of(node.op.scalar_op).range
    if rule is None:
        return None
    whole = of_full_shape(node)
    xs = [walk.of(x, where if x in whole else None) for x in node.inputs]
    made = rule(xs)
    return replace(made, nan=made.nan or any(x.nan for x in xs))


def _first(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    """Return the interval of what an Op moves about, or takes some of."""
    return walk.of(node.inputs[0])


def _any(walk: _Walk, node: Apply, where: Chosen) -> Interval | None:
    """Return the interval of all that an Op puts together."""
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
    """Return what an entry is to which values were added, any number of times."""
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
    """Return how many terms each sum has, if that is known."""
    shape = node.inputs[0].type.shape
    axes = range(len(shape)) if node.op.axis is None else node.op.axis
    lengths = [length for axis in axes if (length := shape[axis]) is not None]
    return math.prod(lengths) if len(lengths) == len(axes) else None


def _sum_of(low: float, n: int | None) -> float:
    """Return a lower bound of a sum of ``n`` terms that are no less than ``low``."""
    if n == 0:
        return 0.0
    if low >= 0:
        return low if n else 0.0
    return 2 * n * low if n is not None and n <= MOST_TERMS else -math.inf


def _positive_term(walk: _Walk, node: Apply) -> float:
    """Return what each sum of terms that are not negative has at least in it, because it was set."""
    [x], last = node.inputs, _last_set(node.inputs[0])
    where = None if last is None else positions(last)
    if last is None or where is None or not _is_in_each_sum(node, where, last):
        return 0.0
    return max(walk.of(x, where).low, 0.0)


def _last_set(x: TensorVariable) -> Apply | None:
    """Return the last set that made ``x``, or what an elementwise function of one operand read."""
    while isinstance(x.owner_op, Elemwise) and len(whole := of_full_shape(x.owner)) == 1:
        [x] = whole
    return x.owner if is_set(x) and x.owner.op.set_instead_of_inc else None


def _is_in_each_sum(node: Apply, where: np.ndarray, write: Apply) -> bool:
    """Return whether each sum has at least one of the entries at these flat positions of a write."""
    # A write keeps its type when what it writes to is replaced by something of known shape.
    shape = write.inputs[0].type.shape
    axes = range(len(shape)) if node.op.axis is None else node.op.axis
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    indices = np.unravel_index(where, shape)
    covered = np.unique(np.array([indices[axis] for axis in kept]), axis=-1)
    return where.size > 0 and (not kept or covered.shape[1] == math.prod(shape[a] for a in kept))


def _softmax(walk: _Walk, node: Apply, where: Chosen) -> Interval:
    x = walk.of(node.inputs[0])
    goes_round = node.inputs[0].type.dtype not in float_dtypes  # the largest is subtracted first
    return Interval(0.0, 1.0, x.nan or not x.is_bounded or goes_round)


RULES: dict[type, Rule] = {
    Elemwise: _elemwise,
    **dict.fromkeys(
        (DimShuffle, Reshape, SpecifyShape, TensorFromScalar, ScalarFromTensor), _first
    ),
    **dict.fromkeys((Alloc, Subtensor, AdvancedSubtensor, Max, Min), _first),
    **dict.fromkeys((Join, MakeVector), _any),
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _write),
    Sum: _sum,
    Softmax: _softmax,
}
