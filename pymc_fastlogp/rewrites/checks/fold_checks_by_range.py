"""Decide comparisons by interval analysis, and reduce checks to the part that can fail.

.. code::

    exp(k) + 1 > 0                      ->  True          k of integers
    exp(x) >= 0                         ->  ~isnan(x)
    sigmoid(x) <= 1                     ->  ~isnan(x)
    sigmoid(x) > 1                      ->  False
    exp(x) + 1e-10 == 0                 ->  False
    isnan(exp(x)), isnan(2 * x + 1)     ->  isnan(x)
    isinf(sigmoid(x))                   ->  False
    all([all(p >= 0), all(~isnan(p))])  ->  all(p >= 0)

A comparison with NaN is false, so a check that holds for every number still fails for NaN, and raises. The rule keeps this
failure as a check for NaN, one for both bounds of a probability. If a function has no other reader and is NaN for NaN only, its
argument is checked instead. The check of a Bernoulli variable, ``0 <= sigmoid(eta) <= 1``, becomes ``all(~isnan(eta))``.

Intervals come from :mod:`~pymc_fastlogp.analysis.ranges`:

- Constants have their smallest and largest entry, integers and truth values the bounds of their dtype. Other variables may be
  anything, NaN included: samplers do step on NaN.
- The bounds hold for computed values. They allow for any order of additions, contracted products, errors of some units in the
  last place, underflow and overflow.
- Operands vary independently, so ``x - x`` has no bounds.

Each rewrite is an equality of truth values for every input, so values are bitwise equal. A truth value has a zero derivative.
Where a switch is left with one branch, the other branch leaves the gradient. PyTensor multiplies its derivative by zero, which
is NaN for an infinite derivative. An unused operand no longer raises, for example for an index out of range.

When it applies
---------------
To ``>=``, ``>``, ``<=``, ``<``, ``==``, ``isnan``, ``isinf`` and conjunctions of them, before rows are compacted. The rule runs
again in ``stabilize``, where quotients of exponentials become a sigmoid.

When it refuses
---------------
- Comparisons that a number can fail: ``exp(x) > 0``, since ``exp`` underflows, or a probability that is a sum, whose round-off
  may exceed one.
- Both sides may be NaN, or the comparison broadcasts the operand that may be NaN.
- Arrays that may be empty, below ``all`` or ``any``: PyTensor takes ``all`` of an empty array as false if its entries are known
  to be false. Exclusive or, comparisons and switches of truth values, which may negate them, count as such readers.
- Integers that may overflow, complex numbers, float16.
"""

from collections.abc import Callable

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
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
from pymc_fastlogp.rewrites.replacement import replacement

Test = Callable[[Interval, Interval], bool]

# For each comparison: whether it holds for all numbers of two intervals, and whether for none.
COMPARISONS: dict[type[ps.ScalarOp], tuple[Test, Test]] = {
    ps.GE: (lambda x, y: x.low >= y.high, lambda x, y: x.high < y.low),
    ps.GT: (lambda x, y: x.low > y.high, lambda x, y: x.high <= y.low),
    ps.LE: (lambda x, y: x.high <= y.low, lambda x, y: x.low > y.high),
    ps.LT: (lambda x, y: x.high < y.low, lambda x, y: x.low >= y.high),
    ps.EQ: (lambda x, y: False, lambda x, y: x.high < y.low or x.low > y.high),
}

# Elementwise functions of truth values that negate them always or never.
LOGICAL = (ps.AND, ps.OR, ps.Invert, ps.Mul)


def _decided_comparison(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``x >= c`` to ``True``, ``False`` or ``~isnan(x)``, by the ranges of both sides."""
    whole = of_full_shape(node)
    if not whole:
        return None
    x, y = map(range_of, node.inputs)
    holds, fails = COMPARISONS[type(node.op.scalar_op)]
    if fails(x, y):
        return _filled_with(fgraph, node, whole[0], False)
    if not holds(x, y):
        return None
    may_be_nan = [operand for operand, r in zip(node.inputs, (x, y), strict=True) if r.nan]
    if not may_be_nan:
        return _filled_with(fgraph, node, whole[0], True)
    if len(may_be_nan) > 1 or may_be_nan[0] not in whole:
        return None
    return invert(isnan(may_be_nan[0]))


def _isnan_of_argument(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``isnan(f(x, c)) -> isnan(x)`` where ``f`` is NaN for NaN only, and ``c`` is never NaN.

    A function with another reader is left: its argument may then be overwritten.
    """
    [x] = node.inputs
    if not range_of(x).nan:
        return _filled_with(fgraph, node, x, False)
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
    return _filled_with(fgraph, node, x, False) if range_of(x).is_bounded else None


def _conjunction(fgraph: FunctionGraph, node: Apply) -> TensorVariable | None:
    """Rewrite ``all([c, all(~isnan(x))]) -> c`` where ``c`` is false for any NaN in ``x``."""
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
    **dict.fromkeys(COMPARISONS, _decided_comparison),
    ps.IsNan: _isnan_of_argument,
    ps.IsInf: _isinf_of_bounded,
    All: _conjunction,
}


@node_rewriter([eq, ge, gt, le, lt, isnan_, isinf_, All])
def local_fold_checks_by_range(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite a comparison, or a conjunction of comparisons, to the part that is undecided."""
    [out] = node.outputs
    rule = RULES[type(scalar_op(out) or node.op)]
    undecided = rule(fgraph, node)
    return None if undecided is None or _is_constant(node) else replacement(out, undecided)


def _is_read_for_nan_alone(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Return whether every reader of ``x`` is an ``isnan``."""
    readers = [client.op for client, _ in fgraph.clients[x]]
    return all(is_elemwise(op, ps.IsNan) for op in readers)


def _is_constant(node: Apply) -> bool:
    """Return whether a node depends on constants alone, so that PyTensor folds it."""
    return next(explicit_graph_inputs(node.inputs), None) is None


def _filled_with(
    fgraph: FunctionGraph, node: Apply, like: TensorVariable, value: bool
) -> TensorVariable | None:
    """Return a comparison with all entries equal to ``value``; None if it may be empty and have a reader that PyTensor misfolds."""
    may_be_empty = not all(like.type.shape)
    if may_be_empty and _is_misfolded(fgraph, node.outputs[0], value):
        return None
    return full_like(like, np.array(value), dtype="bool")


def _is_misfolded(fgraph: FunctionGraph, x: TensorVariable, value: bool) -> bool:
    """Return whether a reader takes, or may take, ``all`` of entries known to be false, or ``any`` of entries known to be true."""
    seen, pending = set(), [(x, value)]
    while pending:
        known = pending.pop()
        if known in seen:
            continue
        seen.add(known)
        x, value = known
        misfolded = Any if value else All
        readers = [client for client, _ in fgraph.clients[x]]
        if any(isinstance(reader.op, misfolded) or _may_negate(reader) for reader in readers):
            return True
        pending += [
            (reader.outputs[0], value != is_elemwise(reader.op, ps.Invert))
            for reader in readers
            if is_elemwise(reader.op, *LOGICAL)
        ]
    return False


def _may_negate(reader: Apply) -> bool:
    """Return whether a reader may negate truth values, as an exclusive or, a comparison with true, or a switch."""
    is_known = not isinstance(reader.op, Elemwise) or is_elemwise(reader.op, *LOGICAL)
    return not is_known and reader.outputs[0].type.dtype == "bool"


def _is_true(condition: TensorVariable) -> bool:
    return bool(fill_value(condition))


def _is_implied(condition: TensorVariable, others: list[TensorVariable]) -> bool:
    """Return whether a condition is ``~isnan(x)``, and one of the others implies it."""
    x = _not_nan(condition)
    return x is not None and any(x in _checked_for_nan(other) for other in others)


def _not_nan(condition: TensorVariable) -> TensorVariable | None:
    """Return ``x`` if the condition is ``all(~isnan(x))``."""
    is_nan = operand(_elementwise_condition(condition), ps.Invert)
    return None if is_nan is None else operand(is_nan, ps.IsNan)


def _elementwise_condition(condition: TensorVariable) -> TensorVariable:
    """Return the elementwise condition below ``all``."""
    return condition.owner.inputs[0] if isinstance(condition.owner_op, All) else condition


def _checked_for_nan(condition: TensorVariable) -> set[TensorVariable]:
    """Return the variables for which a NaN entry makes a condition false."""
    x = _elementwise_condition(condition)
    not_nan = _not_nan(condition)
    if not_nan is not None:
        pending = [not_nan]
    elif is_made_by(x, *COMPARISONS):
        pending = of_full_shape(x.owner)
    else:
        return set()
    found: set[TensorVariable] = set()
    while pending:
        if (x := pending.pop()) not in found:
            found.add(x)
            pending += _propagating_nan(x)
    return found


def _propagating_nan(x: TensorVariable) -> list[TensorVariable]:
    """Return the operands for which each NaN entry makes an entry of ``x`` NaN."""
    if isinstance(x.owner_op, Sum | DimShuffle):
        return x.owner.inputs
    return of_full_shape(x.owner) if _is_nan_of_nan(x) else []


def _is_nan_of_nan(x: TensorVariable) -> bool:
    """Return whether ``x`` is an elementwise function that is NaN if any operand is."""
    return Trait.NAN_OF_NAN in facts_of(scalar_op(x)).traits
