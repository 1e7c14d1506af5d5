r"""Take the logarithm of a difference of sigmoids without cancellation, and check cut points instead of their probabilities.

.. code::

    log(sigmoid(b) - sigmoid(a))        ->  log1mexp(a - b) - softplus(-b) - softplus(a)
    log(p)[i, k]                        ->  log1mexp(c[k - 1] - c[k]) - softplus(eta[i] - c[k]) - softplus(c[k - 1] - eta[i])
    all(p >= 0), all(sum(p) is near 1)  ->  all(~isnan(c - eta))       c sorted

with the probabilities ``p`` of an ordered logit, as ``pm.OrderedLogistic`` computes them:

.. code::

    s = join(1, zeros, sigmoid(c - eta), ones)
    p = s[:, 1:] - s[:, :-1]

The right side follows from

.. math::

    \frac{1}{1 + e^{-b}} - \frac{1}{1 + e^{-a}}
    = \frac{e^{-a} - e^{-b}}{(1 + e^{-b}) (1 + e^{-a})}
    = \frac{1 - e^{a - b}}{(1 + e^{-b}) (1 + e^{a})}.

The left side subtracts two numbers next to one if :math:`a` and :math:`b` are large: at 37 no digit is left. The right side keeps
all digits, and so does its gradient. Terms that :math:`a` and :math:`b` share cancel in :math:`a - b`. An ordered logit has
:math:`b = c_k - \eta` and :math:`a = c_{k-1} - \eta`, so one :math:`\log(1 - e^{a - b})` per category is left. The first category
has :math:`a = -\infty`, the last one :math:`b = \infty`, for every :math:`\eta`.

The sigmoid increases, so the probabilities of sorted cut points are nonnegative, and their sum telescopes to one. A cumulative sum
of nonnegative increments is sorted, since rounding is monotone.

Differences to the left side:

- Where the left side is rounded to zero, its logarithm is :math:`-\infty`. The right side is finite.
- Where :math:`b < a`, the right side is NaN. The left side is NaN, or :math:`-\infty` if both sigmoids are rounded to one number.
- Upstream compares computed sigmoids, and rejects a point where rounding swaps two of them.

When it applies
---------------
Before the gradient, to a difference of two sigmoids, and to entries selected from the table of an ordered logit. The checks are
rewritten if the cut points are known to be sorted: constants, cumulative sums of nonnegative increments, and rows of these.

When it refuses
---------------
- Categories that are not constant, the logarithm of a whole table, tables of unknown shape.
- A table of other ends than zeros and ones, or of another order.

References
----------
M. Maechler, "Accurately computing log(1 - exp(-\|a\|))", vignette of the R package Rmpfr (2012).
"""

from collections.abc import Callable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import (
    Join,
    MakeVector,
    as_tensor_variable,
    constant,
    full,
    join,
    stack,
    switch,
)
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Sum, invert, isnan, log, log1mexp, softplus
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import Signed
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import operand, operands
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.replacement import replacement
from pymc_fastlogp.rewrites.rows.gather_before_elemwise import Indices, indices_of, pick
from pymc_fastlogp.rewrites.scalars.structural_difference import difference, gap, terms_of, total

# Largest difference from one that a check of the sum may reject: far above the round-off of a sum of probabilities.
SMALLEST_TOLERANCE = 1e-8


@node_rewriter([log])
def local_log_of_sigmoid_difference(
    fgraph: FunctionGraph, node: Apply
) -> list[TensorVariable] | None:
    """Rewrite ``log(sigmoid(b) - sigmoid(a)) -> log1mexp(a - b) - softplus(-b) - softplus(a)``, and of selected entries of a table."""
    [x], [out] = node.inputs, node.outputs
    if x.type.dtype != out.type.dtype or x.type.dtype not in float_dtypes:
        return None
    arguments = [operand(side, Sigmoid) for side in operands(x, ps.Sub)]
    if arguments and None not in arguments:
        return replacement(out, log_of_sigmoid_difference(*arguments))
    moves = []
    while isinstance(x.owner_op, DimShuffle):
        moves.append(x.owner_op)
        [x] = x.owner.inputs
    indices = indices_of(x.owner) if isinstance(x.owner_op, AdvancedSubtensor) else None
    if indices is None or len(indices) < x.owner.inputs[0].type.ndim:
        return None
    if not _are_inside(x.owner.inputs[0], indices):
        return None
    if (argument := sigmoid_argument(x.owner.inputs[0])) is None:
        return None
    # The rules about rows expect an index without axes of length one.
    for move in reversed(moves):
        indices = {axis: _moved(index, move) for axis, index in indices.items()}
    return replacement(out, _log_of_entries(argument, indices))


def _are_inside(table: TensorVariable, indices: Indices) -> bool:
    """Return whether indices are constant and select entries that the table is known to have."""
    return all(
        isinstance(index, Constant)
        and n is not None
        and ((-n <= index.data) & (index.data < n)).all()
        for index, n in zip(indices.values(), table.type.shape, strict=True)
    )


def _moved(x: Constant, move: DimShuffle) -> TensorVariable:
    """Return a constant with its axes rearranged."""
    kept = [axis for axis in move.new_order if axis != "x"]
    dropped = [axis for axis in range(x.type.ndim) if axis not in kept]
    shape = [1 if axis == "x" else x.data.shape[axis] for axis in move.new_order]
    return constant(x.data.transpose([*kept, *dropped]).reshape(shape))


def log_of_sigmoid_difference(b: TensorVariable, a: TensorVariable) -> TensorVariable:
    """Return ``log(sigmoid(b) - sigmoid(a))``."""
    return log1mexp(-difference(b, a)) - softplus(-b) - softplus(a)


def _log_of_entries(argument: TensorVariable, indices: Indices) -> TensorVariable:
    """Return the logarithms of entries of the table of probabilities."""
    terms = terms_of(argument)
    by_row = [term for term in terms if term.x.type.shape[-1] == 1]
    if argument.type.shape[-1] == 1:
        terms, by_row = [Signed(argument, False)], []
    cuts = total([term for term in terms if term not in by_row], argument)
    n, infinity = cuts.type.shape[-1], constant(np.array(np.inf, dtype=cuts.type.dtype))
    is_last, is_first = (
        pick(constant(np.arange(n + 1) == end)[(None,) * (cuts.type.ndim - 1)], indices)
        for end in (n, 0)
    )
    predictor = pick(-total(by_row, argument), indices)
    upper = _pick_of(cuts, indices, lambda c: _join(c, infinity))
    lower = _pick_of(cuts, indices, lambda c: _join(-infinity, c))
    gaps = _pick_of(
        cuts, indices, lambda c: _join(infinity, gap(c[..., 1:], c[..., :-1]), infinity)
    )
    # Constant for an infinite predictor, too: `inf - inf` is NaN.
    above = switch(is_last, -infinity, predictor - upper)
    below = switch(is_first, -infinity, lower - predictor)
    return log1mexp(-gaps) - softplus(above) - softplus(below)


def _join(*parts: TensorVariable) -> TensorVariable:
    """Join arrays along their last axis; a scalar is one entry of it."""
    shape = next(x.shape for x in parts if x.type.ndim)
    return join(-1, *(x if x.type.ndim else full((*shape[:-1], 1), x) for x in parts))


def _pick_of(
    x: TensorVariable, indices: Indices, function: Callable[[TensorVariable], TensorVariable]
) -> TensorVariable:
    """Return entries of a function of the last axis, which is computed before the rows of ``x`` are selected."""
    match x.owner_op_and_inputs:
        case (DimShuffle(new_order=[*_, last]), y) if last == y.type.ndim - 1:
            # As many axes as `x`, of which `pick` drops those of length one.
            return pick(function(y).dimshuffle(*x.owner.op.new_order), indices)
        case (AdvancedSubtensor(idx_list=[0]), y, rows) if rows.type.ndim == 1 and 0 in indices:
            of_row = rows.data[indices[0].data] if isinstance(rows, Constant) else rows[indices[0]]
            return _pick_of(y, {**indices, 0: as_tensor_variable(of_row)}, function)
    return _pick_flat(function(x), indices)


def _pick_flat(table: TensorVariable, indices: Indices) -> TensorVariable:
    """Return entries of a table by one index if possible, which the rules about rows sort and count."""
    shape, arrays = table.type.shape, indices.values()
    if 1 in shape or not _are_inside(table, indices):
        return pick(table, indices)
    places = [index.data % n for index, n in zip(arrays, shape, strict=True)]
    # PyTensor would iterate over the entries of a NumPy array.
    return table.flatten()[constant(np.ravel_multi_index(np.broadcast_arrays(*places), shape))]


@node_rewriter([All])
def local_check_of_ordered(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``all([all(p >= 0), all(sum(p) is near 1)]) -> all(~isnan(c - eta))``."""
    [x], [out] = node.inputs, node.outputs
    if not isinstance(x.owner_op, MakeVector):
        return None
    found = {condition: _argument_if_implied(condition) for condition in x.owner.inputs}
    arguments = dict.fromkeys(argument for argument in found.values() if argument is not None)
    if not arguments:
        return None
    kept = [condition for condition, argument in found.items() if argument is None]
    # Between the ends, a sorted array without NaN has no other infinities.
    ends = [argument[..., i] for argument in arguments for i in (0, -1)]
    checks = [All()(invert(isnan(end))) for end in ends]
    return replacement(out, All()(stack([*checks, *kept])))


def sigmoid_argument(p: TensorVariable) -> TensorVariable | None:
    """Return ``c - eta`` if ``p`` is the table of probabilities of an ordered logit, else None."""
    sides = operands(p, ps.Sub)
    if len(sides) != 2 or None in p.type.shape or p.type.dtype not in float_dtypes:
        return None
    if not all(isinstance(side.owner_op, Subtensor) for side in sides):
        return None
    joined, n = sides[0].owner.inputs[0], p.type.shape[-1]
    if sides[1].owner.inputs[0] is not joined or not isinstance(joined.owner_op, Join):
        return None
    if joined.owner_op.axis % joined.type.ndim != p.type.ndim - 1 or len(joined.owner.inputs) != 3:
        return None
    if [_entries(side) for side in sides] != [range(1, n + 1), range(n)]:
        return None
    first, sigmoids, last = joined.owner.inputs
    argument = operand(sigmoids, Sigmoid)
    if argument is None or (fill_value(first), fill_value(last)) != (0, 1):
        return None
    is_complete = argument.type.shape == (*p.type.shape[:-1], n - 1)
    return argument if is_complete and argument.type.dtype == p.type.dtype else None


def _entries(x: TensorVariable) -> range | None:
    """Return the positions that a slice of the last axis selects, None if other axes are sliced or the bounds are unknown."""
    [whole, *bounds], n = x.owner.inputs, x.owner.inputs[0].type.shape[-1]
    *others, last = indices_from_subtensor(bounds, x.owner_op.idx_list)
    if len(others) != whole.ndim - 1 or any(other != slice(None) for other in others):
        return None
    limits = [None if b is None else fill_value(b) for b in (last.start, last.stop, last.step)]
    if n is None or (limits.count(None) != [last.start, last.stop, last.step].count(None)):
        return None
    return range(n)[slice(*(None if b is None else int(b) for b in limits))]


def _argument_if_implied(condition: TensorVariable) -> TensorVariable | None:
    """Return ``c - eta`` if a condition on the probabilities holds unless ``c - eta`` has NaN, else None."""
    if not isinstance(condition.owner_op, All) or condition.type.ndim:
        return None
    [holds] = condition.owner.inputs
    for p in (_bounded(holds), _near_one(holds)):
        argument = None if p is None else sigmoid_argument(p)
        if argument is not None and _is_sorted_up_to_rows(argument):
            return argument
    return None


def _bounded(x: TensorVariable) -> TensorVariable | None:
    """Return ``p`` if ``x`` is ``p >= 0``, ``p <= 1`` or ``~isnan(p)``."""
    for comparison, bound in ((ps.GE, 0), (ps.LE, 1)):
        if (sides := operands(x, comparison)) and fill_value(sides[1]) == bound:
            return sides[0]
    return _not_nan(x)


def _near_one(x: TensorVariable) -> TensorVariable | None:
    """Return ``p`` if ``x`` is ``(abs(sum(p, axis=-1) - 1) <= tolerance) & ~isnan(sum(p, axis=-1))``."""
    sides = operands(x, ps.AND)
    sums = {x for side in sides for x in (_sum_near_one(side), _not_nan(side)) if x is not None}
    if len(sides) != 2 or len(sums) != 1:
        return None
    [total] = sums
    if not isinstance(total.owner_op, Sum):
        return None
    [p] = total.owner.inputs
    return p if total.owner.op.axis == (p.ndim - 1,) else None


def _sum_near_one(x: TensorVariable) -> TensorVariable | None:
    """Return a sum if ``x`` is ``abs(sum - 1) <= tolerance``."""
    if len(sides := operands(x, ps.LE)) != 2:
        return None
    tolerance, difference = fill_value(sides[1]), operand(sides[0], ps.Abs)
    if tolerance is None or tolerance < SMALLEST_TOLERANCE or difference is None:
        return None
    terms = operands(difference, ps.Add)
    sums = [term for term in terms if isinstance(term.owner_op, Sum)]
    is_of_one = [fill_value(term) for term in terms if term not in sums] == [-1]
    return sums[0] if is_of_one and len(sums) == 1 else None


def _not_nan(x: TensorVariable) -> TensorVariable | None:
    """Return ``p`` if ``x`` is ``~isnan(p)``."""
    is_nan = operand(x, ps.Invert)
    return None if is_nan is None else operand(is_nan, ps.IsNan)


def _is_sorted_up_to_rows(x: TensorVariable) -> bool:
    """Return whether each term of a sum is constant along the last axis, or sorted."""
    by_category = [term for term in terms_of(x) if term.x.type.shape[-1] != 1]
    return all(_is_sorted(x) and not is_negative for x, is_negative in by_category)


def _is_sorted(x: TensorVariable) -> bool:
    """Return whether entries along the last axis never decrease."""
    while True:
        match x.owner_op_and_inputs:
            case (DimShuffle(new_order=[*_, last]), y) if last == y.type.ndim - 1:
                x = y
            case (AdvancedSubtensor(idx_list=indices), y, *_) if len(indices) < y.type.ndim:
                x = y
            case _:
                break
    if isinstance(x, Constant):
        return bool((np.diff(x.data) >= 0).all())
    if not isinstance(x.owner_op, CumOp) or x.owner_op.mode != "add":
        return False
    [increments] = x.owner.inputs
    if None in increments.type.shape or x.owner_op.axis not in (increments.ndim - 1, -1):
        return False
    positions = np.arange(np.prod(increments.type.shape)).reshape(increments.type.shape)
    return is_nonnegative(increments, positions[..., 1:].ravel())
