r"""Find the axis of a graph along which each entry depends on one row of the data alone.

The rows of a table are vectors :math:`x, z, \ldots` of equal length, the leaves of a graph. A variable is *by row* with axis :math:`a` if
its entries at position :math:`i` of the axis are a function of :math:`x_i, z_i, \ldots` and of variables without rows, the same function for
all :math:`i`. Such a graph can be evaluated at the distinct rows in place of all rows:

.. math::

    \sum_i f(x_i, z_i) = \sum_u n_u f(x_u, z_u)

The axis is derived node by node, from inputs to outputs. Besides variables by row there are

- *lengths*: the number of rows, and vectors of lengths such as a shape. A length may only be the length of an axis, because
  the distinct rows are fewer;
- *positions*: ``arange(n_rows)``, which may only index the axis of the rows;
- results of ``all``, ``any``, ``max`` and ``min`` over rows, which have no rows. They are the same for the distinct rows.

Every Op without a rule here is refused, as are sums and means over rows, sorts, and variables with one value per row that
the rows do not determine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytensor.scalar as ps
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

# Their result for the distinct rows is that for all rows.
IDEMPOTENT = ps.AND, ps.OR, ps.ScalarMaximum, ps.ScalarMinimum


class NotByRowError(Exception):
    """A graph is not by row; the text names the operation."""


@dataclass(frozen=True)
class ByRow:
    """A variable with the rows along ``axis``; with ``is_position``, the positions of the rows."""

    axis: int
    is_position: bool = False


@dataclass(frozen=True)
class Lengths:
    """An integer, or the entries of a vector of integers, of which some are the number of rows."""

    are_lengths: tuple[bool, ...]


type State = ByRow | Lengths | NotByRowError | None


def row_axis(x: Variable, columns: Iterable[Variable]) -> int | None:
    """Return the axis of ``x`` along which the rows of ``columns`` are, None if ``x`` does not depend on them.

    Raises
    ------
    NotByRowError
        If an entry of ``x`` depends on several rows.
    """
    match _states([x], dict.fromkeys(columns, ByRow(0)))[0]:
        case None:
            return None
        case ByRow(axis, is_position=False):
            return axis
        case NotByRowError() as error:
            raise error
    raise NotByRowError("it depends on the number of rows")


def _states(outputs: list[Variable], known: Mapping[Variable, State]) -> list[State]:
    """Return the states of variables, from those of the leaves that have rows."""
    states = dict(known)
    for node in io_toposort([], outputs):
        if any(x in states for x in node.inputs):
            states |= dict(zip(node.outputs, _states_of(node, states)))
    return [states.get(x) for x in outputs]


def _states_of(node: Apply, states: Mapping[Variable, State]) -> list[State]:
    inputs = [states.get(x) for x in node.inputs]
    if all(x is None for x in inputs):
        return [None] * len(node.outputs)
    # An error matters only if the result is used.
    errors = [x for x in inputs if isinstance(x, NotByRowError)]
    try:
        if errors:
            raise errors[0]
        match node.op:
            case OpFromGraph(fgraph=inner):
                given = {x: s for x, s in zip(inner.inputs, inputs) if s is not None}
                return _states(inner.outputs, given)
            case RandomVariable():  # only its shape may be read
                return [None, _of_draws(node, inputs)]
        state = _state_of(node, inputs)
    except NotByRowError as error:
        state = error
    return [state] * len(node.outputs)


def _state_of(node: Apply, inputs: list[State]) -> State:
    """Return the state of the output of a node, of whose inputs at least one has rows."""
    match node.op, inputs:
        case (ViewOp(), [state]):
            return state
        case (SpecifyShape(), [ByRow(axis) as state, *_]):
            if node.outputs[0].type.shape[axis] is None:
                return state
        case (ScalarFromTensor() | TensorFromScalar(), [state]):
            return state
        case (CheckAndRaise(), [state, *conditions]) if not any(conditions):
            return state
        case (Elemwise(scalar_op=ps.Cast()), [state]):
            return state
        case (Elemwise(), _):
            return _of_elemwise(node, inputs)
        case (DimShuffle(new_order=order), [ByRow(axis, is_position)]) if axis in order:
            return ByRow(order.index(axis), is_position)
        case (DimShuffle(new_order=("x",)), [Lengths() as state]):
            return state
        case (CAReduce(), [ByRow(axis, is_position=False)]):
            return _of_reduction(node, axis)
        case (Join(), _):
            return _of_join(node, inputs)
        case (MakeVector(), _) if not any(isinstance(x, ByRow) for x in inputs):
            return Lengths(tuple(x is not None for x in inputs))
        case (Shape(), [ByRow(axis)]):
            ndim = node.inputs[0].type.ndim
            return Lengths(tuple(k == axis for k in range(ndim)))
        case (Shape_i(i=i), [ByRow(axis)]):
            return Lengths((True,)) if i == axis else None
        case (Shape() | Shape_i(), [Lengths()]):
            return None
        case (ARange(), [None, Lengths((True,)), None]) if _is_number(node.inputs[0], 0) and (
            _is_number(node.inputs[2], 1)
        ):
            return ByRow(0, is_position=True)
        case (Alloc(), [value, *lengths]):
            return _of_alloc(node, value, lengths)
        case (Reshape(), [ByRow(0, is_position), None]) if node.inputs[0].type.ndim == 1:
            return ByRow(_axis_of_column(node), is_position)
        case (Subtensor(), [Lengths(are_lengths), *rest]) if not any(rest):
            return _of_shape(node, are_lengths)
        case (Subtensor(), [ByRow(axis, is_position=False), *rest]) if not any(rest):
            return _of_subtensor(node, axis)
        case (AdvancedSubtensor(), _):
            return _of_gather(node, inputs)
        case (Softmax(axis=axes) | LogSoftmax(axis=axes), [ByRow(axis, is_position=False)]):
            if axes is not None and axis not in (axes if isinstance(axes, tuple) else (axes,)):
                return ByRow(axis)
        case (Dot(), [ByRow(0, is_position=False), None]) if node.inputs[0].type.ndim == 2:
            return ByRow(0)
        case (Dot(), [None, ByRow(1, is_position=False)]):
            return ByRow(node.outputs[0].type.ndim - 1)
        case (Blockwise(), _):
            return _of_blockwise(node, inputs)
    raise _refusal(node)


def _refusal(node: Apply) -> NotByRowError:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    name = op.scalar_op if isinstance(op, Elemwise | CAReduce) else type(op).__name__
    return NotByRowError(
        f"{str(name).lower()} reads several rows of the table at once: compute such a column or number in the table"
    )


def _is_number(x: Variable, number: int) -> bool:
    return isinstance(x, Constant) and x.data.ndim == 0 and x.data.item() == number


def _same_axis(states: Iterable[State], node: Apply) -> int:
    """Return the axis of several variables by row."""
    axes = {x.axis for x in states if isinstance(x, ByRow) and not x.is_position}
    strange = [
        x for x in states if isinstance(x, Lengths) or (isinstance(x, ByRow) and x.is_position)
    ]
    if strange or len(axes) != 1:
        raise _refusal(node)
    return axes.pop()


def _of_elemwise(node: Apply, inputs: list[State]) -> State:
    axis = _same_axis(inputs, node)
    _check_constant_along(axis, node, inputs)
    return ByRow(axis)


def _check_constant_along(axis: int, node: Apply, inputs: list[State]) -> None:
    """Raise if an input without rows has more than one entry along the rows."""
    for x, state in zip(node.inputs, inputs):
        if state is None and x.type.shape[axis] != 1:
            name = f"{x.name} " if x.name else ""
            raise NotByRowError(
                f"a variable {name}of its own length is combined with the rows of the table: index it by a column"
            )


def _of_reduction(node: Apply, axis: int) -> State:
    ndim = node.inputs[0].type.ndim
    axes = range(ndim) if node.op.axis is None else node.op.axis
    if axis not in axes:
        return ByRow(axis - sum(k < axis for k in axes))
    if isinstance(node.op.scalar_op, IDEMPOTENT):
        return None
    raise _refusal(node)


def _of_join(node: Apply, parts: list[State]) -> State:
    if not any(isinstance(x, ByRow) for x in parts):
        return _of_joined_lengths(node, parts)
    axis = _same_axis(parts, node)
    if node.op.axis % node.outputs[0].type.ndim == axis or any(x is None for x in parts):
        raise _refusal(node)
    return ByRow(axis)


def _of_joined_lengths(node: Apply, parts: list[State]) -> State:
    """Return the state of a shape that is joined from parts."""
    entries: list[bool] = []
    for x, state in zip(node.inputs, parts):
        [n] = x.type.shape if x.type.ndim == 1 else [None]
        if isinstance(state, Lengths):
            entries += state.are_lengths
        elif n is None:
            raise _refusal(node)
        else:
            entries += [False] * n
    return Lengths(tuple(entries))


def _of_alloc(node: Apply, value: State, lengths: list[State]) -> State:
    found = [k for k, x in enumerate(lengths) if isinstance(x, Lengths)]
    added = node.outputs[0].type.ndim - node.inputs[0].type.ndim
    match value, found:
        case ByRow(axis, is_position=False), [found_axis] if found_axis == axis + added:
            return ByRow(found_axis)
        case None, [axis]:
            inside = axis - added
            if inside < 0 or node.inputs[0].type.shape[inside] == 1:
                return ByRow(axis)
        case ByRow(), []:
            raise NotByRowError("it has a fixed number of rows: leave out its shape")
    raise _refusal(node)


def _axis_of_column(node: Apply) -> int:
    """Return the axis of a vector that is reshaped to one long axis."""
    shape = node.inputs[1]
    lengths = shape.data.tolist() if isinstance(shape, Constant) else []
    if lengths.count(-1) != 1 or lengths.count(1) != len(lengths) - 1:
        raise _refusal(node)
    return lengths.index(-1)


def _of_shape(node: Apply, are_lengths: tuple[bool, ...]) -> State:
    """Return the state of entries of a shape."""
    [index] = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    if isinstance(index, slice):
        parts = (index.start, index.stop, index.step)
        if not all(x is None or isinstance(x, Constant | int) for x in parts):
            raise _refusal(node)
        numbers = [int(x.data) if isinstance(x, Constant) else x for x in parts]
        found = are_lengths[slice(*numbers)]
        return Lengths(found) if any(found) else None
    if not isinstance(index, Constant):
        raise _refusal(node)
    return Lengths((True,)) if are_lengths[int(index.data)] else None


def _of_subtensor(node: Apply, axis: int) -> State:
    indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
    if axis < len(indices) and indices[axis] != slice(None):
        raise _refusal(node)
    return ByRow(axis - sum(not isinstance(x, slice) for x in indices[:axis]))


def _of_gather(node: Apply, inputs: list[State]) -> State:
    """Return the state of an indexed variable, see NumPy's rules of advanced indexing."""
    x, *entries = node.inputs
    state = dict(zip(node.inputs, inputs))
    indices = indices_from_subtensor(entries, node.op.idx_list)
    arrays = {k: i for k, i in enumerate(indices) if not isinstance(i, slice)}
    if any(isinstance(i, slice) and i != slice(None) for i in indices) or any(
        i.type.dtype == "bool" for i in arrays.values()
    ):
        raise _refusal(node)
    places = [*arrays]
    ndim = max(i.type.ndim for i in arrays.values())
    is_adjacent = places == list(range(places[0], places[-1] + 1))
    first = places[0] if is_adjacent else 0
    # Axis of the rows among those of the index arrays, aligned at the last.
    axes = {s.axis + ndim - i.type.ndim for i in arrays.values() if (s := state[i])}
    positions = {k for k, i in arrays.items() if (s := state[i]) and s.is_position}
    match state[x]:
        case None if len(axes) == 1 and not positions:
            [axis] = axes
            _check_lengths_of_indices(axis, ndim, arrays.values(), state, node)
            return ByRow(first + axis)
        case ByRow(of_x, is_position=False) if len(axes) == 1 and positions == {of_x}:
            # The row's own entry.
            [axis] = axes
            _check_lengths_of_indices(axis, ndim, arrays.values(), state, node)
            return ByRow(first + axis)
        case ByRow(of_x, is_position=False) if not axes and of_x not in arrays:
            before = sum(k < of_x for k in arrays)
            is_behind = not is_adjacent or of_x > first
            return ByRow(of_x - before + (ndim if is_behind else 0))
    raise _refusal(node)


def _check_lengths_of_indices(
    axis: int, ndim: int, indices: Iterable[Any], state: Mapping[Variable, State], node: Apply
) -> None:
    """Raise if an index array without rows has more than one entry along the rows."""
    for index in indices:
        inside = axis - (ndim - index.type.ndim)
        if state[index] is None and inside >= 0 and index.type.shape[inside] != 1:
            raise _refusal(node)


def _of_blockwise(node: Apply, inputs: list[State]) -> State:
    """Return the state of an Op over the last axes: rows are among the batches, or are rows of a matrix product."""
    inner = [len(names) for names in node.op.inputs_sig]
    batch = [x.type.ndim - n for x, n in zip(node.inputs, inner)]
    by_row = [(k, s) for k, s in enumerate(inputs) if isinstance(s, ByRow)]
    if len(by_row) < sum(s is not None for s in inputs) or any(s.is_position for _, s in by_row):
        raise _refusal(node)
    if all(s.axis < batch[k] for k, s in by_row):
        axes = {s.axis - batch[k] for k, s in by_row}
        if len(axes) != 1:
            raise _refusal(node)
        [from_last] = axes
        for x, s, n in zip(node.inputs, inputs, batch):
            if s is None and -from_last <= n and x.type.shape[n + from_last] != 1:
                raise _refusal(node)
        [*sig] = node.op.outputs_sig[0]
        return ByRow(node.outputs[0].type.ndim - len(sig) + from_last)
    if isinstance(node.op.core_op, Dot) and len(by_row) == 1:
        [(k, s)] = by_row
        outer = node.op.inputs_sig[k][0 if k == 0 else -1]
        if s.axis - batch[k] == node.op.inputs_sig[k].index(outer):
            sig = list(node.op.outputs_sig[0])
            return ByRow(node.outputs[0].type.ndim - len(sig) + sig.index(outer))
    raise _refusal(node)


def _of_draws(node: Apply, inputs: list[State]) -> State:
    """Return the state of random draws, whose parameters are broadcast along batches."""
    _, size, *parameters = inputs
    inner = node.op.ndims_params
    axes = set()
    for x, state, n in zip(node.inputs[2:], parameters, inner):
        if isinstance(state, ByRow) and state.axis < x.type.ndim - n:
            axes.add(state.axis - (x.type.ndim - n))
        elif state is not None:
            raise _refusal(node)
    if isinstance(size, Lengths):
        n_batch = len(size.are_lengths)
        axes |= {k - n_batch for k, b in enumerate(size.are_lengths) if b}
    elif size is not None:
        raise _refusal(node)
    if len(axes) != 1:
        raise _refusal(node)
    [axis] = axes
    return ByRow(node.outputs[1].type.ndim - node.op.ndim_supp + axis)
