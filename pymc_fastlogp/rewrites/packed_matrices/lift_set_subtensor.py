r"""Lift an ``Elemwise`` through the sets that filled its input.

.. code::

    f(zeros[i].set(c))                ->  alloc(f(0))[i].set(f(c))
    f(zeros[i].set(c)[j].set(d))      ->  alloc(f(0))[i].set(f(c))[j].set(f(d))
    f(alloc(x)[i].set(c), w)          ->  alloc(f(x, w))[i].set(f(c, w[i]))     w scalar or broadcast
    f(zeros[i].inc(c))                ->  alloc(f(0))[i].set(f(c))              i without duplicates

Each entry of :math:`x[i].\mathrm{set}(c)` is an entry of ``x`` or of ``c``, and an elementwise :math:`f` acts on one entry at a
time:

.. math::

    f(x[i].\mathrm{set}(c)) = f(x)[i].\mathrm{set}(f(c)), \qquad
    f(x[i].\mathrm{set}(c), w) = f(x, w)[i].\mathrm{set}(f(c, w[i])).

The lift pays because ``x`` is one repeated value, as in the triangular Cholesky factor of ``LKJCorr``: :math:`f` is then
evaluated on the written entries only, and ``f(0)`` folds to a constant. The written entries are read from the array, however it
was computed (:mod:`~pymc_fastlogp.rewrites.packed_matrices.packed_array`).

PyTensor folds ``0 * w`` and ``0 / w`` to zero for every ``w``, although both may be NaN. So the lift writes them as a switch
between NaN and zero, unless a divisor is known to be positive.

The gradient criterion is in :mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_gradient`, the cost criterion in
:mod:`~pymc_fastlogp.rewrites.packed_matrices.lift_cost`.

When it applies
---------------
- All other inputs of ``f`` broadcast against the filled one.
- The filled input is the result of sets at constant positions (slices, integer arrays, masks), or of an ``inc`` into zeros
  without duplicates, into one repeated value.
- At most 1024 entries, or a reduction or a diagonal follows. Otherwise at most three quarters of the entries are written, or,
  for arithmetic that a costlier function follows, a quarter.

When it refuses
---------------
- ``inc`` into other values than zeros: ``f(x + c)`` is not ``f(x) + f(c)``.
- A set into a full tensor, another input as large as the filled one, more than 100 000 entries.
- Duplicate indices, and indices or lengths computed at run time.
- Integer powers, divisions and remainders, which can raise for an overwritten entry.
- Constants for which zero becomes NaN: a factor that is not finite, a divisor that is zero or NaN.
- In-place Ops and sets that cast.

References
----------
PyTensor issue "Lift Elemwise through SetSubtensor".
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import cast, switch
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import eq, isinf, isnan
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.provenance import Entries
from pymc_fastlogp.analysis.ranges import is_positive
from pymc_fastlogp.analysis.writes import is_set
from pymc_fastlogp.rewrites.packed_matrices.lift_cost import pays
from pymc_fastlogp.rewrites.packed_matrices.lift_gradient import gradient_is_the_same
from pymc_fastlogp.rewrites.packed_matrices.packed_array import ALL, Index, Packed, packed
from pymc_fastlogp.rewrites.replacement import replacement

# Functions of integers that can raise, also for an entry that is overwritten later.
RAISES_FOR_INTEGERS = (ps.Pow, ps.IntDiv, ps.Mod)


class Lift(NamedTuple):
    """An Elemwise, its operand that was filled by sets, and the other operands, which broadcast."""

    node: Apply
    operand: TensorVariable
    others: list[TensorVariable]
    filled: Packed

    def apply(self, x: TensorVariable, others: Sequence[TensorVariable]) -> TensorVariable:
        """Apply the Elemwise to ``x`` instead of the operand, and to ``others``."""
        remaining: Iterator[TensorVariable] = iter(others)
        return self.node.op(
            *(x if i is self.operand else next(remaining) for i in self.node.inputs)
        )


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift before the gradient: ``f(zeros[i].set(c)) -> alloc(f(0))[i].set(f(c))``."""
    lift = _match(node)
    if lift is None or not gradient_is_the_same(*lift):
        return None
    return _replacement(fgraph, lift)


@node_rewriter([Elemwise])
def local_lift_elemwise_through_set_after_grad(fgraph: FunctionGraph, node: Apply) -> list | None:
    """Lift after the gradient, where only the value has to be equal."""
    lift = _match(node)
    return None if lift is None else _replacement(fgraph, lift)


def _match(node: Apply) -> Lift | None:
    """Match an Elemwise with one operand as large as the output, which was filled by sets."""
    op, outputs = node.op, node.outputs
    if not any(map(is_set, node.inputs)):
        return None
    if len(outputs) != 1 or op.inplace_pattern or isinstance(op.scalar_op, ps.Second):
        return None
    if isinstance(op.scalar_op, RAISES_FOR_INTEGERS) and outputs[0].dtype in discrete_dtypes:
        return None
    shape = outputs[0].type.broadcastable
    full = {x for x in node.inputs if x.type.broadcastable == shape}
    if all(shape) or len(full) != 1:
        return None
    operand = full.pop()
    filled = packed(operand) if is_set(operand) else None
    if filled is None or not filled.entries:
        return None
    lift = Lift(node, operand, [x for x in node.inputs if x is not operand], filled)
    return None if _has_nan_of_zero(lift) else lift


def _has_nan_of_zero(lift: Lift) -> bool:
    """Return whether ``0 * c`` or ``0 / c`` is NaN for an entry of a constant ``c``.

    PyTensor folds both to zero, also where the zero is a branch of a switch, so the NaN would get lost.
    """
    constants = [w.data for w in lift.others if isinstance(w, Constant)]
    if isinstance(lift.node.op.scalar_op, ps.Mul):
        return not all(np.isfinite(c).all() for c in constants)
    if isinstance(lift.node.op.scalar_op, ps.TrueDiv) and lift.operand is lift.node.inputs[0]:
        return any((np.isnan(c) | (c == 0)).any() for c in constants)
    return False


def _replacement(fgraph: FunctionGraph, lift: Lift) -> list[TensorVariable] | None:
    """Apply the Elemwise to the fill and to the written values, if this is less work."""
    node, operand, others, filled = lift
    [out] = node.outputs
    on_fill = _of_zero(lift) if fill_value(filled.fill) == 0 else None
    if on_fill is None:
        on_fill = lift.apply(filled.fill, others)
    missing = out.type.ndim - on_fill.type.ndim
    is_full = (True,) * missing + on_fill.type.broadcastable == out.type.broadcastable
    if is_full or not pays(fgraph, node, operand, filled):
        return None

    def on_entries(entry: Entries) -> TensorVariable:
        at = filled.place(entry)
        return lift.apply(filled.value(entry), [_at(x, at) for x in others])

    return replacement(out, filled.as_sets(on_fill, on_entries))


def _of_zero(lift: Lift) -> TensorVariable | None:
    """Return ``0 * w`` or ``0 / w`` as a switch between NaN and zero; None for other functions.

    PyTensor folds both to zero for every ``w``, once the zero is a constant.
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
    # A NaN divisor shows in the entries that were set.
    if is_division and all(map(is_positive, variables)):
        return None
    is_nan = [isnan(w) | (eq(w, 0) if is_division else isinf(w)) for w in variables]
    return cast(switch(reduce(or_, is_nan), np.nan, 0.0), out.dtype)


def _at(x: TensorVariable, index: Index) -> TensorVariable:
    """Return ``x``, which broadcasts against the filled tensor, at some entries of the filled tensor."""
    broadcast = x.type.broadcastable
    if all(broadcast):
        return x.dimshuffle()
    axes = [k for k, i in enumerate(index) if i is ALL or not broadcast[k]]
    of_axes = [index[k] for k in axes]
    if of_axes[-1] is ALL:  # one number per matrix
        return x.dimshuffle(*axes, "x")
    *of_batch, last = of_axes
    is_whole = not isinstance(last, slice) and np.array_equal(last, _positions(x, axes[-1]))
    if is_whole and all(i is ALL for i in of_batch):
        return x.dimshuffle(axes)
    # Broadcast axes are dropped first: PyTensor fuses a gather by one vector into its reader.
    return x.dimshuffle(axes)[tuple(of_axes)]


def _positions(x: TensorVariable, axis: int) -> np.ndarray:
    """Return the positions along an axis; an empty array if its length is unknown."""
    return np.arange(x.type.shape[axis] or 0)
