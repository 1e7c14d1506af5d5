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

Duplicates in ``i`` are refused: which of them wins then matters, and upstream sends a
gradient to all of them.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import (
    Alloc,
    alloc,
    cast,
    constant,
    zeros_like,
)
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.subtensor import _advanced_indices_jointly_unique
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.rewrites.constants import fill_value

# Derivatives that do not depend on the operands: finite even where an operand is inf or nan.
CONSTANT_DERIVATIVE = (
    *(ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Cast),
    *(ps.LT, ps.GT, ps.LE, ps.GE, ps.EQ, ps.NEQ, ps.IsNan, ps.IsInf),
    *(ps.AND, ps.OR, ps.XOR, ps.Invert),
    *(ps.Sign, ps.Ceil, ps.Floor, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero),
)

# f(constant, w) whose derivative by w is finite wherever f itself is.
FINITE_DERIVATIVE_BY_OTHERS = (ps.Mul, ps.ScalarMaximum, ps.ScalarMinimum)


class Filled(NamedTuple):
    """A tensor that is ``root`` with ``writes``, the innermost first, set into it one by one."""

    root: TensorVariable
    writes: tuple[Apply, ...]


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift before the gradient: ``f(x[i].set(c)) -> f(x)[i].set(f(c))``."""
    operand = _lone_full_operand(node)
    if operand is None or (filled := _unwind(fgraph, operand)) is None:
        return None
    if not _gradient_is_the_same(node, operand, filled):
        return None
    return _lift(fgraph, node, operand, filled)


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set_after_grad(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift after the gradient, where only the value has to be the same."""
    operand = _lone_full_operand(node)
    if operand is None or (filled := _unwind(fgraph, operand)) is None:
        return None
    return _lift(fgraph, node, operand, filled)


def _lone_full_operand(node: Apply) -> TensorVariable | None:
    """Return the one operand as large as the output, if the others are broadcast and it was set."""
    if (
        len(node.outputs) != 1
        or node.op.inplace_pattern
        or isinstance(node.op.scalar_op, ps.Second)
    ):
        return None
    out = node.outputs[0].type.broadcastable
    if all(out):  # one entry: nothing to save
        return None
    full = {x for x in node.inputs if x.type.broadcastable == out}
    return full.pop() if len(full) == 1 else None


def _is_set(x: TensorVariable) -> bool:
    return isinstance(x.owner_op, IncSubtensor | AdvancedIncSubtensor)


def _unwind(fgraph: FunctionGraph, x: TensorVariable) -> Filled | None:
    """Follow the sets that made ``x`` down to the tensor that they were set into."""
    writes: list[Apply] = []
    while _is_set(x) and _writes_as_set(fgraph, x.owner) and _is_free_of(x.owner, writes):
        writes.insert(0, x.owner)
        x = x.owner.inputs[0]
    return Filled(x, tuple(writes)) if writes else None


def _writes_as_set(fgraph: FunctionGraph, write: Apply) -> bool:
    """Whether each entry is written once, so that a set, or an inc of zeros, can be lifted."""
    op, base = write.op, write.inputs[0]
    if op.inplace:
        return False
    if isinstance(op, AdvancedIncSubtensor) and not _advanced_indices_jointly_unique(
        _indices(write), fgraph
    ):
        return False
    return op.set_instead_of_inc or fill_value(base) == 0


def _is_free_of(write: Apply, later: Sequence[Apply]) -> bool:
    """Whether nothing that ``write`` stores is overwritten, or what it stores is constant."""
    if not later or isinstance(write.inputs[1], Constant):
        return True
    stored = _positions(write)
    if stored is None:
        return False
    overwriting = [_positions(w) for w in later]
    return all(p is not None and not np.isin(stored, p).any() for p in overwriting)


def _gradient_is_the_same(node: Apply, operand: TensorVariable, filled: Filled) -> bool:
    """Whether no overwritten entry can turn a zero gradient into nan; see the module docstring."""
    scalar_op = node.op.scalar_op
    dtypes = {operand.type.dtype, node.outputs[0].type.dtype}
    if len(dtypes) > 1 and dtypes.issubset(
        float_dtypes
    ):  # the set rounds the gradient to its own type
        return False
    if isinstance(scalar_op, CONSTANT_DERIVATIVE):
        return True
    if not all(_is_surely_stored(write) for write in filled.writes):
        return False
    if fill_value(filled.root) is None and not isinstance(filled.root, Constant):
        return False
    if all(x is operand or isinstance(x, Constant) for x in node.inputs):
        return True
    is_numerator = isinstance(scalar_op, ps.TrueDiv) and operand is node.inputs[0]
    return is_numerator or isinstance(scalar_op, FINITE_DERIVATIVE_BY_OTHERS)


def _is_surely_stored(write: Apply) -> bool:
    """Whether each entry of the value ends up somewhere: a scalar set into no entry does not."""
    base, value = write.inputs[:2]
    if isinstance(value, Constant):
        return True
    target = base[_indices(write)].type
    return value.type.broadcastable == target.broadcastable or all(target.shape)


def _lift(
    fgraph: FunctionGraph, node: Apply, operand: TensorVariable, filled: Filled
) -> list[TensorVariable] | None:
    """Apply the Elemwise to the root and to each value written, where that is less work."""
    lifted = _on_root(node, operand, filled.root)
    if lifted is None:
        if not _is_only_use(fgraph, node, operand, filled):
            return None
        lifted = _call(node, operand, filled.root, [x for x in node.inputs if x is not operand])
    copy_stack_trace(node.outputs[0], lifted)
    for write in filled.writes:
        others = [_others_at(x, write) for x in node.inputs if x is not operand]
        if any(x is None for x in others):
            return None
        # The set casts what it stores, and f comes after that.
        stored = cast(write.inputs[1], operand.type.dtype)
        value = _call(node, operand, stored, others)
        lifted = _set_op(write.op)(lifted, value, *write.inputs[2:])
        copy_stack_trace(node.outputs[0], [value, lifted])
    if not node.outputs[0].type.is_super(lifted.type):
        return None
    return [lifted]


def _call(
    node: Apply, operand: TensorVariable, x: TensorVariable, others: Sequence[TensorVariable]
) -> TensorVariable:
    """Apply the Elemwise of ``node`` to ``x`` in place of ``operand``, and to ``others``."""
    remaining: Iterator[TensorVariable] = iter(others)
    return node.op(*(x if i is operand else next(remaining) for i in node.inputs))


def _on_root(node: Apply, operand: TensorVariable, root: TensorVariable) -> TensorVariable | None:
    """Apply the Elemwise to a root that is cheaper than its size, or return None."""
    others = [x for x in node.inputs if x is not operand]
    if isinstance(root.owner_op, Alloc):
        fill, *shape = root.owner.inputs
    elif (value := fill_value(root)) is not None:
        fill, shape = constant(value.astype(root.type.dtype)), root.shape
    elif isinstance(root, Constant) and all(isinstance(x, Constant) for x in others):
        return _call(node, operand, root, others)
    else:
        return None
    on_fill = _call(node, operand, fill, others)
    missing = root.type.ndim - on_fill.type.ndim
    fill_broadcastable = (True,) * missing + on_fill.type.broadcastable
    if fill_broadcastable == root.type.broadcastable:
        return None
    return alloc(on_fill, *shape)


def _is_only_use(
    fgraph: FunctionGraph, node: Apply, operand: TensorVariable, filled: Filled
) -> bool:
    """Whether one-entry values are set and nothing else needs the tensor as it was before ``f``."""
    if not all(all(write.inputs[1].type.broadcastable) for write in filled.writes):
        return False
    clients = [client for client, _ in fgraph.clients[operand]]
    if any(client is not node for client in clients):
        return False
    between = [write.outputs[0] for write, _ in pairwise(filled.writes)]
    return all(len(fgraph.clients[x]) == 1 for x in between)


def _others_at(x: TensorVariable, write: Apply) -> TensorVariable | None:
    """Return ``x``, which broadcasts against the written tensor, at the written positions."""
    if all(x.type.broadcastable):
        return x.dimshuffle()
    indices = _indices(write)
    if any(not isinstance(i, slice) and i.type.dtype == "bool" for i in indices):
        return None
    broadcast = x.type.broadcastable
    if len(indices) == x.type.ndim and all(_is_vector(i) for i in indices):
        axes = [axis for axis in range(x.type.ndim) if not broadcast[axis]]
        return x.dimshuffle(axes)[tuple(indices[axis] for axis in axes)]
    at = [
        _first_of(index) if is_one else index
        for index, is_one in zip(indices, broadcast, strict=False)
    ]
    return x[tuple(at)]


def _is_vector(index: slice | TensorVariable) -> bool:
    return getattr(index, "ndim", 0) == 1


def _first_of(index: slice | TensorVariable) -> slice | int | TensorVariable:
    """Return an index of the same kind and shape into an axis of length one."""
    if isinstance(index, slice):
        return slice(None)
    return zeros_like(index) if getattr(index, "ndim", 0) else 0


def _set_op(op: IncSubtensor | AdvancedIncSubtensor) -> IncSubtensor | AdvancedIncSubtensor:
    return op if op.set_instead_of_inc else type(op)(op.idx_list, set_instead_of_inc=True)


def _indices(write: Apply) -> tuple:
    return tuple(indices_from_subtensor(write.inputs[2:], write.op.idx_list))


def _positions(write: Apply) -> np.ndarray | None:
    """Return the flat positions that a write with constant indices into a known shape touches."""
    shape = write.inputs[0].type.shape
    if None in shape or not all(isinstance(i, Constant) for i in write.inputs[2:]):
        return None
    indices = indices_from_subtensor([i.data for i in write.inputs[2:]], write.op.idx_list)
    try:
        return np.arange(np.prod(shape)).reshape(shape)[tuple(indices)].ravel()
    except IndexError:  # upstream raises it when the function is called
        return None
