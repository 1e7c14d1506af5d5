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

The gradient needs more care than the value (:mod:`~pymc_fastlogp.rewrites.filled.lift_gradient`), and
so does the cost (:mod:`~pymc_fastlogp.rewrites.filled.lift_cost`).

Duplicates in ``i`` are refused: which of them wins then matters, and upstream sends a
gradient to all of them.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.basic import Alloc, alloc, cast, constant, switch, zeros_like
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import eq, isinf, isnan
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.ranges import is_positive
from pymc_fastlogp.analysis.writes import Filled, indices_of, set_op, unwind
from pymc_fastlogp.rewrites.filled.lift_cost import pays, pays_on_full_root
from pymc_fastlogp.rewrites.filled.lift_gradient import gradient_is_the_same
from pymc_fastlogp.rewrites.filled.moves_to_set import with_fewer_moves

# Of integers these can raise, also for an entry that is overwritten later.
RAISES_FOR_INTEGERS = (ps.Pow, ps.IntDiv, ps.Mod)


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
    if lift is None or not gradient_is_the_same(*lift):
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
    if isinstance(op.scalar_op, RAISES_FOR_INTEGERS) and outputs[0].dtype in discrete_dtypes:
        return None
    shape = outputs[0].type.broadcastable
    full = {x for x in node.inputs if x.type.broadcastable == shape}
    if all(shape) or len(full) != 1:
        return None
    operand = full.pop()
    filled = unwind(fgraph, operand)
    # What is written with fewer moves first is lifted in the order of its vectors.
    if filled is None or with_fewer_moves(operand) is not None:
        return None
    return Lift(node, operand, [x for x in node.inputs if x is not operand], filled)


def _replacement(fgraph: FunctionGraph, lift: Lift) -> list[TensorVariable] | None:
    """Apply the Elemwise to the root and to each value written, where that is less work."""
    node, operand, others, filled = lift
    out = node.outputs[0]
    if not all(_fits(others, write) for write in filled.writes):
        return None
    lifted = _on_cheap_root(lift)
    if lifted is None:
        if not pays_on_full_root(fgraph, node, operand, filled):
            return None
        lifted = lift.apply(filled.root, others)
    elif not pays(fgraph, node, operand, filled):
        return None
    copy_stack_trace(out, lifted)
    for write in filled.writes:
        # The set casts what it stores, and f comes after that.
        stored = cast(write.inputs[1], operand.type.dtype)
        value = lift.apply(stored, [_at(x, write) for x in others])
        lifted = set_op(write.op)(lifted, value, *write.inputs[2:])
        copy_stack_trace(out, [value, lifted])
    return [lifted] if out.type.is_super(lifted.type) else None


def _on_cheap_root(lift: Lift) -> TensorVariable | None:
    """Apply the Elemwise to a root that is one value repeated, or constant; else return None."""
    root, others = lift.filled.root, lift.others
    if isinstance(root.owner_op, Alloc):
        fill, *shape = root.owner.inputs
    elif (value := fill_value(root)) is not None:
        fill, shape = constant(value.astype(root.type.dtype)), root.shape
    elif all(isinstance(x, Constant) for x in (root, *others)):
        return lift.apply(root, others)
    else:
        return None
    on_fill = _of_zero(lift) if fill_value(fill) == 0 else None
    if on_fill is None:
        on_fill = lift.apply(fill, others)
    missing = root.type.ndim - on_fill.type.ndim
    if (True,) * missing + on_fill.type.broadcastable == root.type.broadcastable:
        return None
    return alloc(on_fill, *shape)


def _of_zero(lift: Lift) -> TensorVariable | None:
    """Return ``0 * w`` or ``0 / w`` as a switch, which is nan where they are; else return None.

    PyTensor folds the two to zero for every ``w``, as soon as it sees that the zero is constant.
    """
    out = lift.node.outputs[0]
    is_division = isinstance(lift.node.op.scalar_op, ps.TrueDiv)
    if not (is_division or isinstance(lift.node.op.scalar_op, ps.Mul)):
        return None
    variables = [w for w in lift.others if not isinstance(w, Constant)]
    if not variables or out.dtype in discrete_dtypes:
        return None
    if is_division and lift.operand is not lift.node.inputs[0]:
        return None
    # A divisor that is nan shows in the entries that were set.
    if is_division and all(map(is_positive, variables)):
        return None
    is_nan = [isnan(w) | (eq(w, 0) if is_division else isinf(w)) for w in variables]
    return cast(switch(reduce(or_, is_nan), np.nan, 0.0), out.dtype)


def _fits(others: Sequence[TensorVariable], write: Apply) -> bool:
    """Whether all shapes are known that operands which are no scalars have to be aligned with."""
    if all(all(x.type.broadcastable) for x in others):
        return True
    indices = indices_of(write)
    if any(not isinstance(i, slice) and i.type.dtype == "bool" for i in indices):
        return False
    target = write.inputs[0][indices].type
    return None not in (*target.shape, *write.inputs[1].type.shape)


def _at(x: TensorVariable, write: Apply) -> TensorVariable:
    """Return ``x``, which broadcasts against the written tensor, at the written positions."""
    broadcast = x.type.broadcastable
    if all(broadcast):
        return x.dimshuffle()
    indices = indices_of(write)
    # One index for each axis that is left: PyTensor fuses a gather by one vector into its reader.
    if _is_of_vectors(indices, broadcast):
        axes = [axis for axis, i in enumerate(indices) if not (broadcast[axis] and _ndim(i))]
        of_left = ((indices[axis], broadcast[axis]) for axis in axes)
        return x.dimshuffle(axes)[tuple(_first(i) if is_one else i for i, is_one in of_left)]
    of_one = zip(indices, broadcast, strict=False)
    return x[tuple(_first(index) if is_one else index for index, is_one in of_one)]


def _is_of_vectors(
    indices: tuple[slice | TensorVariable, ...], broadcast: tuple[bool, ...]
) -> bool:
    """Whether the last axes, one that is not broadcast among them, are indexed by vectors, and the first by slices."""
    n_slices = sum(isinstance(i, slice) for i in indices[: len(broadcast) - 1])
    return (
        len(indices) == len(broadcast)
        and all(isinstance(i, slice) for i in indices[:n_slices])
        and all(_ndim(i) == 1 for i in indices[n_slices:])
        and not all(broadcast[n_slices:])
    )


def _first(index: slice | TensorVariable) -> slice | int | TensorVariable:
    """Return an index of the same kind and shape into an axis of length one."""
    if isinstance(index, slice):
        return slice(None)
    return zeros_like(index) if _ndim(index) else 0


def _ndim(index: slice | TensorVariable) -> int:
    return getattr(index, "ndim", 0)  # slices and scalar types of indices have none
