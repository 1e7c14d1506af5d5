"""``exp(x) >= 0 -> ~isnan(x)``: fold comparisons by the ranges of what is compared, to what can still fail.

.. code::

    exp(k) + 1 > 0                      ->  True          k of integers
    exp(x) >= 0                         ->  ~isnan(x)
    sigmoid(x) <= 1                     ->  ~isnan(x)
    sigmoid(x) > 1                      ->  False
    exp(x) + 1e-10 == 0                 ->  False
    isnan(exp(x)), isnan(2 * x + 1)     ->  isnan(x)
    isinf(sigmoid(x))                   ->  False
    all([all(p >= 0), all(~isnan(p))])  ->  all(p >= 0)

A comparison with nan is false, so a check that no number fails still fails for nan, and raises. It is left
to do just that, by asking whether there is a nan: once for both bounds of a probability. If a function is read for
that alone, and returns nan for nan only, its argument is asked instead. What may be nan, and what infinite, is in :mod:`~pymc_fastlogp.analysis.ranges`; no value
variable is assumed to be finite.

These are equalities of truth values, entry by entry, for any input. Of what may have no entries, PyTensor takes
``all`` for false if they are known to be false, and ``any`` for true if they are true: comparisons that are read so, or may be, are left. The derivative of a truth value is
zero. Where ``switch`` is left with one branch, the other does not take part in the gradient any more, where an
infinite derivative times zero would be nan.
"""

from collections.abc import Callable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.basic import MakeVector, constant, full_like, stack
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Any, Sum, eq, ge, gt, invert, isinf_, isnan, isnan_, le, lt
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise, is_made_by, operand, scalar_op
from pymc_fastlogp.analysis.intervals import Interval
from pymc_fastlogp.analysis.ranges import of_full_shape, range_of
from pymc_fastlogp.analysis.scalar_facts import Trait, facts_of

Test = Callable[[Interval, Interval], bool]

# For each comparison, when it holds for all numbers in two intervals, and when for none.
COMPARISONS: dict[type[ps.ScalarOp], tuple[Test, Test]] = {
    ps.GE: (lambda x, y: x.low >= y.high, lambda x, y: x.high < y.low),
    ps.GT: (lambda x, y: x.low > y.high, lambda x, y: x.high <= y.low),
    ps.LE: (lambda x, y: x.high <= y.low, lambda x, y: x.low > y.high),
    ps.LT: (lambda x, y: x.high < y.low, lambda x, y: x.low >= y.high),
    ps.EQ: (lambda x, y: False, lambda x, y: x.high < y.low or x.low > y.high),
}

# How truth values are combined, entry by entry, of which it is known whether they are turned over.
LOGICAL = (ps.AND, ps.OR, ps.Invert, ps.Mul)


def _sure_comparison(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``x >= c -> True``, ``False`` or ``~isnan(x)``, as the ranges of both sides allow."""
    whole = of_full_shape(node)
    if not whole:
        return None
    x, y = map(range_of, node.inputs)
    holds, fails = COMPARISONS[type(node.op.scalar_op)]
    if fails(x, y):
        return _decided(fgraph, node, whole[0], False)
    if not holds(x, y):
        return None
    may_be_nan = [operand for operand, r in zip(node.inputs, (x, y), strict=True) if r.nan]
    if not may_be_nan:
        return _decided(fgraph, node, whole[0], True)
    if len(may_be_nan) > 1 or may_be_nan[0] not in whole:
        return None
    return invert(isnan(may_be_nan[0]))


def _isnan_of_argument(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``isnan(f(x, c)) -> isnan(x)`` where ``f`` is nan for nan only, and ``c`` never.

    A function that is needed anyway is left: its argument may then not be at hand any longer.
    """
    [x] = node.inputs
    if not range_of(x).nan:
        return _decided(fgraph, node, x, False)
    rule = facts_of(scalar_op(x)).range
    if rule is None or not _is_nan_of_nan(x) or not _is_read_for_nan_alone(fgraph, x):
        return None
    operands = [range_of(operand) for operand in x.owner.inputs]
    may_be_nan = [i for i, operand in enumerate(operands) if operand.nan]
    as_numbers = [Interval(operand.low, operand.high) for operand in operands]
    if len(may_be_nan) != 1 or rule(as_numbers).nan:
        return None
    argument = x.owner.inputs[may_be_nan[0]]
    return isnan(argument) if argument in of_full_shape(x.owner) else None


def _isinf_of_bounded(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``isinf(x) -> False`` where ``x`` is bounded."""
    [x] = node.inputs
    return _decided(fgraph, node, x, False) if range_of(x).is_bounded else None


def _conjunction(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``all([c, all(~isnan(x))]) -> c`` where ``c`` is false for any nan in ``x``."""
    [x], [out] = node.inputs, node.outputs
    if out.type.ndim or x.type.dtype != "bool":
        return None
    if not isinstance(x.owner_op, MakeVector):
        return constant(np.array(True)) if _is_true(x) else None
    kept = [condition for condition in dict.fromkeys(x.owner.inputs) if not _is_true(condition)]
    for condition in [*kept]:
        others = [other for other in kept if other is not condition]
        if _is_implied(condition, others):
            kept = others
    if len(kept) == len(x.owner.inputs) or not kept:
        return None
    return kept[0] if len(kept) == 1 else node.op(stack(kept))


RULES: dict[type, Callable[[FunctionGraph, Apply], TensorVariable | None]] = {
    **dict.fromkeys(COMPARISONS, _sure_comparison),
    ps.IsNan: _isnan_of_argument,
    ps.IsInf: _isinf_of_bounded,
    All: _conjunction,
}


@node_rewriter([eq, ge, gt, le, lt, isnan_, isinf_, All])
def local_fold_checks_by_range(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite a comparison, or a conjunction of them, into what of it is not sure."""
    [out] = node.outputs
    rule = RULES[type(scalar_op(out) or node.op)]
    replacement = rule(fgraph, node)
    if replacement is None or not out.type.is_super(replacement.type) or _is_constant(node):
        return None
    copy_stack_trace(out, replacement)
    return [replacement]


def _is_read_for_nan_alone(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether ``x`` is not needed any more once it is known to be nan or not."""
    readers = [client.op for client, _ in fgraph.clients[x]]
    return all(is_elemwise(op, ps.IsNan) for op in readers)


def _is_constant(node: Apply) -> bool:
    """Return whether nothing but constants is read, which PyTensor folds."""
    return next(explicit_graph_inputs(node.inputs), None) is None


def _decided(
    fgraph: FunctionGraph, node: Apply, like: TensorVariable, value: bool
) -> TensorVariable | None:
    """Return what all entries of a comparison are; None if there may be no entries, and that would be misread."""
    may_be_empty = not all(like.type.shape)
    if may_be_empty and _is_misread(fgraph, node.outputs[0], value):
        return None
    return full_like(like, np.array(value), dtype="bool")


def _is_misread(fgraph: FunctionGraph, x: TensorVariable, value: bool) -> bool:
    """Return whether a reader asks for ``all`` of what is known to be false, or for ``any`` of what is true, or may do so."""
    seen, to_see = set(), [(x, value)]
    while to_see:
        at = to_see.pop()
        if at in seen:
            continue
        seen.add(at)
        x, value = at
        asks = Any if value else All
        readers = [client for client, _ in fgraph.clients[x]]
        if any(isinstance(reader.op, asks) or _may_turn_over(reader) for reader in readers):
            return True
        to_see += [
            (reader.outputs[0], value != is_elemwise(reader.op, ps.Invert))
            for reader in readers
            if is_elemwise(reader.op, *LOGICAL)
        ]
    return False


def _may_turn_over(reader: Apply) -> bool:
    """Return whether it makes other truth values, and it is not known which: an exclusive or, a comparison with true, a choice."""
    is_known = not isinstance(reader.op, Elemwise) or is_elemwise(reader.op, *LOGICAL)
    return not is_known and reader.outputs[0].type.dtype == "bool"


def _is_true(condition: TensorVariable) -> bool:
    return bool(fill_value(condition))


def _is_implied(condition: TensorVariable, others: list[TensorVariable]) -> bool:
    """Return whether a condition says that something is not nan, and one of the others says it too."""
    x = _not_nan(condition)
    return x is not None and any(x in _read_by(other) for other in others)


def _not_nan(condition: TensorVariable) -> TensorVariable | None:
    """Return ``x`` if the condition is ``all(~isnan(x))``."""
    is_nan = operand(_below_all(condition), ps.Invert)
    return None if is_nan is None else operand(is_nan, ps.IsNan)


def _below_all(condition: TensorVariable) -> TensorVariable:
    """Return what has to hold for each entry."""
    return condition.owner.inputs[0] if isinstance(condition.owner_op, All) else condition


def _read_by(condition: TensorVariable) -> set[TensorVariable]:
    """Return expressions of which an entry that is nan makes a condition false."""
    x = _below_all(condition)
    not_nan = _not_nan(condition)
    if not_nan is not None:
        to_see = [not_nan]
    elif is_made_by(x, *COMPARISONS):
        to_see = of_full_shape(x.owner)
    else:
        return set()
    found: set[TensorVariable] = set()
    while to_see:
        if (x := to_see.pop()) not in found:
            found.add(x)
            to_see += _passing_nan_on(x)
    return found


def _passing_nan_on(x: TensorVariable) -> list[TensorVariable]:
    """Return the operands of which each entry that is nan makes one of ``x`` nan."""
    if isinstance(x.owner_op, Sum | DimShuffle):
        return x.owner.inputs
    return of_full_shape(x.owner) if _is_nan_of_nan(x) else []


def _is_nan_of_nan(x: TensorVariable) -> bool:
    """Return whether ``x`` is an elementwise function that returns nan for each operand that is nan."""
    return Trait.NAN_OF_NAN in facts_of(scalar_op(x)).traits
