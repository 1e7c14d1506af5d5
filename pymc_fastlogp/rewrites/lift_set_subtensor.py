r"""Lift an ``Elemwise`` through the sets that filled its input.

.. code::

    f(x[i].set(c))                 ->  f(x)[i].set(f(c))
    f(x[i].set(c)[j].set(d))       ->  f(x)[i].set(f(c))[j].set(f(d))
    f(x[i].set(c), w)              ->  f(x, w)[i].set(f(c, w[i]))     w scalar or broadcast
    f(zeros[i].inc(c))             ->  f(zeros)[i].set(f(c))          i without duplicates

The identity holds for every elementwise :math:`f`: each entry of the left side is :math:`f` of
one entry of ``x`` or of ``c``, and the right side applies :math:`f` before instead of after
choosing. It pays where ``x`` is one repeated value, as in a triangular matrix filled from a
vector: :math:`f` then costs as much as the entries written, and ``f(0)`` folds to a constant.
(PyTensor issue "Lift Elemwise through SetSubtensor"; ``LKJCorr`` is its motivating case.)

**Why the gradient needs more care than the value.** Let :math:`s = x[i].\mathrm{set}(c)` and
:math:`g` the gradient of the result. Without the lift :math:`x` receives
:math:`(g\,f'(s))[i].\mathrm{set}(0)`, with it :math:`(g[i].\mathrm{set}(0))\,f'(x)`. At an entry
that was overwritten the second is :math:`0 \cdot f'(x_k)`, which is nan where
:math:`f'(x_k)` is not finite, as with ``log(x[x_is_zero].set(1))``. The same happens to a
value overwritten by a later set or stored nowhere, and to ``w`` at overwritten entries of ``x``.
Before a gradient is taken the lift therefore fires only where no gradient flows into an overwritten entry
(it is constant), or where :math:`f'` there is finite whatever the entry holds (the tables below).
After the gradient it fires on the value's conditions alone.

**What it costs.** The lift stores an array of the size of ``x`` where one was stored before, so it
pays by the entries on which :math:`f` is not evaluated any more. Where :math:`f` is arithmetic, PyTensor
would have fused it into the loop that reads the result, and there is little to save; where other
Ops read ``x[i].set(c)`` as well, it has to be stored all the same. Where ``x`` is as large as it looks nothing is
saved but a copy, and a reduction that would have been fused with :math:`f` no longer is.
``benchmarks/lift_cost.py`` measures the cases, and the limits below follow from it.

Duplicates in ``i`` are refused: which of them wins then matters, and upstream sends a
gradient to all of them.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import Alloc, alloc, cast, constant, zeros_like
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value
from pymc_fastlogp.rewrites.set_chains import (
    Filled,
    indices_of,
    is_surely_stored,
    set_op,
    unwind,
)

# Derivatives that do not depend on the operands: finite even where an operand is inf or nan.
CONSTANT_DERIVATIVE = (
    *(ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Cast),
    *(ps.LT, ps.GT, ps.LE, ps.GE, ps.EQ, ps.NEQ, ps.IsNan, ps.IsInf),
    *(ps.AND, ps.OR, ps.XOR, ps.Invert),
    *(ps.Sign, ps.Ceil, ps.Floor, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero),
)

# f(constant, w) whose derivative by w is finite wherever f itself is.
FINITE_DERIVATIVE_BY_OTHERS = (ps.Mul, ps.ScalarMaximum, ps.ScalarMinimum)

# Next to free in the loop that reads the result.
ARITHMETIC = (
    *CONSTANT_DERIVATIVE,
    *(ps.Mul, ps.TrueDiv, ps.Sqr, ps.Abs, ps.ScalarMaximum, ps.ScalarMinimum),
)

# Up to so many entries the number of Ops counts, and not how many entries each of them visits.
FEW_ENTRIES = 1024
# Beyond so many entries one more array costs more than most functions of its entries.
MANY_ENTRIES = 100_000


class Lift(NamedTuple):
    """An Elemwise, its operand that was filled by sets, and those that broadcast against it."""

    node: Apply
    operand: TensorVariable
    others: list[TensorVariable]
    filled: Filled

    def apply(self, x: TensorVariable, others: Sequence[TensorVariable]) -> TensorVariable:
        """Apply the Elemwise to ``x`` in place of the operand, and to ``others``."""
        remaining: Iterator[TensorVariable] = iter(others)
        return self.node.op(
            *(x if i is self.operand else next(remaining) for i in self.node.inputs)
        )


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift before the gradient: ``f(x[i].set(c)) -> f(x)[i].set(f(c))``."""
    lift = _match(fgraph, node)
    if lift is None or not _gradient_is_the_same(lift):
        return None
    return _replacement(fgraph, lift)


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set_after_grad(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift after the gradient, where only the value has to be the same."""
    lift = _match(fgraph, node)
    return None if lift is None else _replacement(fgraph, lift)


def _match(fgraph: FunctionGraph, node: Apply) -> Lift | None:
    """Match an Elemwise of which one operand is as large as the output, and was filled by sets."""
    op, outputs = node.op, node.outputs
    if len(outputs) != 1 or op.inplace_pattern or isinstance(op.scalar_op, ps.Second):
        return None
    shape = outputs[0].type.broadcastable
    full = {x for x in node.inputs if x.type.broadcastable == shape}
    if all(shape) or len(full) != 1:
        return None
    operand = full.pop()
    filled = unwind(fgraph, operand)
    if filled is None:
        return None
    return Lift(node, operand, [x for x in node.inputs if x is not operand], filled)


def _gradient_is_the_same(lift: Lift) -> bool:
    """Whether no overwritten entry can turn a zero gradient into nan; see the module docstring."""
    node, operand, others, filled = lift
    scalar_op = node.op.scalar_op
    dtypes = {operand.type.dtype, node.outputs[0].type.dtype}
    # Between two floats the set rounds the gradient to its own type.
    if len(dtypes) > 1 and dtypes.issubset(float_dtypes):
        return False
    if isinstance(scalar_op, CONSTANT_DERIVATIVE):
        return True
    if not all(is_surely_stored(write) for write in filled.writes):
        return False
    if fill_value(filled.root) is None and not isinstance(filled.root, Constant):
        return False
    if all(isinstance(x, Constant) for x in others):
        return True
    is_numerator = isinstance(scalar_op, ps.TrueDiv) and operand is node.inputs[0]
    return is_numerator or isinstance(scalar_op, FINITE_DERIVATIVE_BY_OTHERS)


def _replacement(fgraph: FunctionGraph, lift: Lift) -> list[TensorVariable] | None:
    """Apply the Elemwise to the root and to each value written, where that is less work."""
    out = lift.node.outputs[0]
    lifted = _on_cheap_root(lift)
    if lifted is not None and not _pays(fgraph, lift):
        return None
    if lifted is None:
        if not _pays_on_full_root(fgraph, lift):
            return None
        lifted = lift.apply(lift.filled.root, lift.others)
    copy_stack_trace(out, lifted)
    for write in lift.filled.writes:
        others = [_at(x, write) for x in lift.others]
        if any(x is None for x in others):
            return None
        # The set casts what it stores, and f comes after that.
        value = lift.apply(cast(write.inputs[1], lift.operand.type.dtype), others)
        lifted = set_op(write.op)(lifted, value, *write.inputs[2:])
        copy_stack_trace(out, [value, lifted])
    return [lifted] if out.type.is_super(lifted.type) else None


def _on_cheap_root(lift: Lift) -> TensorVariable | None:
    """Apply the Elemwise to a root that is one value repeated, or constant; else return None."""
    root = lift.filled.root
    if isinstance(root.owner_op, Alloc):
        fill, *shape = root.owner.inputs
    elif (value := fill_value(root)) is not None:
        fill, shape = constant(value.astype(root.type.dtype)), root.shape
    elif all(isinstance(x, Constant) for x in (root, *lift.others)):
        return lift.apply(root, lift.others)
    else:
        return None
    on_fill = lift.apply(fill, lift.others)
    missing = root.type.ndim - on_fill.type.ndim
    if (True,) * missing + on_fill.type.broadcastable == root.type.broadcastable:
        return None
    return alloc(on_fill, *shape)


def _pays(fgraph: FunctionGraph, lift: Lift) -> bool:
    """Whether evaluating ``f`` on what was written, and not on all, is worth the change."""
    entries = _size(lift.operand)
    written = sum(_size(write.inputs[1]) for write in lift.filled.writes)
    if _has_other_clients(fgraph, lift) and entries > MANY_ENTRIES:
        return False
    if entries <= FEW_ENTRIES:
        return True
    if isinstance(lift.node.op.scalar_op, ARITHMETIC):
        return written < math.inf and 4 * written <= entries
    return written == math.inf or 4 * written <= 3 * entries


def _size(x: TensorVariable) -> float:
    """Return the number of entries, infinite where it is not known before the call."""
    return math.inf if None in x.type.shape else math.prod(x.type.shape)


def _pays_on_full_root(fgraph: FunctionGraph, lift: Lift) -> bool:
    """Whether scalars are set, into a copy that can be spared, and no reduction loses its fusion."""
    writes = lift.filled.writes
    if not all(all(write.inputs[1].type.broadcastable) for write in writes):
        return False
    if _has_other_clients(fgraph, lift):
        return False
    if any(len(fgraph.clients[write.outputs[0]]) > 1 for write, _ in pairwise(writes)):
        return False
    readers = [client.op for client, _ in fgraph.clients[lift.node.outputs[0]]]
    return not any(isinstance(op, CAReduce) for op in readers)


def _has_other_clients(fgraph: FunctionGraph, lift: Lift) -> bool:
    return any(client is not lift.node for client, _ in fgraph.clients[lift.operand])


def _at(x: TensorVariable, write: Apply) -> TensorVariable | None:
    """Return ``x``, which broadcasts against the written tensor, at the written positions."""
    broadcast = x.type.broadcastable
    if all(broadcast):
        return x.dimshuffle()
    indices = indices_of(write)
    if any(not isinstance(i, slice) and i.type.dtype == "bool" for i in indices):
        return None
    if len(indices) == x.type.ndim and all(_ndim(i) == 1 for i in indices):
        axes = [axis for axis in range(x.type.ndim) if not broadcast[axis]]
        return x.dimshuffle(axes)[tuple(indices[axis] for axis in axes)]
    of_one = zip(indices, broadcast, strict=False)
    return x[tuple(_first(index) if is_one else index for index, is_one in of_one)]


def _first(index: slice | TensorVariable) -> slice | int | TensorVariable:
    """Return an index of the same kind and shape into an axis of length one."""
    if isinstance(index, slice):
        return slice(None)
    return zeros_like(index) if _ndim(index) else 0


def _ndim(index: slice | TensorVariable) -> int:
    return getattr(index, "ndim", 0)  # slices and scalar types of indices have none
