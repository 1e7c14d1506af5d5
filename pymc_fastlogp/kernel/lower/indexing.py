"""Indexing: reads (Subtensor, AdvancedSubtensor) as views, writes (IncSubtensor, AdvancedIncSubtensor) as loops."""

from collections.abc import Sequence

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, unflatten_index_variables
from pytensor.tensor.type import integer_dtypes

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, cast, domain_of, int64, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Error, Store
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.context import Clients, Context
from pymc_fastlogp.kernel.lower.index_map import index_map

MISMATCH = Error(ValueError, "the values cannot be broadcast to the selected elements")


def supports_read(node: Apply) -> bool:
    """Return whether the indices are integers."""
    return _are_supported(node, node.inputs[1:])


def supports_write(node: Apply) -> bool:
    """Return whether duplicate positions all count, the addition is exact, and the indices are integers."""
    ignores_duplicates = getattr(node.op, "ignore_duplicates", False)
    return not ignores_duplicates and _is_exact(node) and _are_supported(node, node.inputs[2:])


def _is_exact(node: Apply) -> bool:
    """Return whether the values can be added in the dtype of the base: it is the wider dtype, or both are integers and wrap around."""
    base, values = (x.type.dtype for x in node.inputs[:2])
    are_integers = base in integer_dtypes and values in integer_dtypes
    return node.op.set_instead_of_inc or are_integers or ps.upcast(base, values) == base


def _are_supported(node: Apply, indices: list[Variable]) -> bool:
    return all(
        isinstance(index, slice) or index.type.dtype != "bool"
        for index in unflatten_index_variables(indices, node.op.idx_list)
    )


def lower_read(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view of the selected elements."""
    source, *indices = inputs
    selection = index_map(context, source, unflatten_index_variables(indices, node.op.idx_list))
    return [source.view(selection.shape, selection.source_index)]


def lower_write(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a loop that stores or adds the values at the selected elements."""
    source, values, *indices = inputs
    selection = index_map(context, source, unflatten_index_variables(indices, node.op.idx_list))
    buffer = context.owned_copy(source, node.inputs[0])
    domain, index = domain_of(selection.shape)
    repeats = repeats_values(node, selection.shape, context.clients)
    along = _along_if_one if repeats else _along
    new = len(selection.shape) - values.ndim
    axes = zip(values.shape, selection.shape[new:], index[new:], strict=True)
    value = cast(values.at(tuple(along(context, *axis) for axis in axes)), source.dtype)
    target = selection.source_index(index)
    if node.op.set_instead_of_inc:
        context.add(domain, Store(buffer, target, value, in_order=not selection.is_unique))
    else:
        context.add(domain, Accumulate(buffer, target, ps.add, value, selection.neighbors))
    return [buffer_array(buffer)]


def _along(context: Context, given: Size, selected: Size, index: Expr) -> Expr:
    """Return the index into the values along an axis; an axis of static length 1 is broadcast."""
    if given == 1:
        return ZERO
    context.require_equal(given, selected, MISMATCH)
    return index


def _along_if_one(context: Context, given: Size, selected: Size, index: Expr) -> Expr:
    """Return the index into the values along an axis; an axis is also broadcast if its length is 1 at run time."""
    if isinstance(given, int) or given == selected:
        return _along(context, given, selected, index)
    is_one = truth(ps.eq, given, int64(1))
    is_same = truth(ps.eq, given, as_expr(selected))
    context.require(truth(ps.or_, is_one, is_same), MISMATCH)
    return switch(is_one, ZERO, index)


def repeats_values(node: Apply, selected: tuple[Size, ...], clients: Clients) -> bool:
    """Return whether upstream broadcasts written values along axes whose length is not static and happens to be 1.

    PyTensor does not allow such broadcasting, NumPy does. Upstream's Numba code follows NumPy, with one exception: it raises if
    ``FuseElemwise`` merged the write into the loop of the Elemwise that computes the values. A kernel does the same.
    """
    given = node.inputs[1]
    if not isinstance(node.op, AdvancedIncSubtensor) or _number_of_writes(clients[given]) != 1:
        return True
    values = _without_padding(given, clients)
    leading = len(selected) - given.type.ndim
    if not _is_a_loop(values) or not _fits(node, leading, values.type.ndim):
        return True
    along = selected[leading : leading + values.type.ndim]
    return any(is_one and n != 1 for is_one, n in zip(values.type.broadcastable, along))


def _number_of_writes(readers: Sequence[tuple[Apply, int]]) -> int:
    return sum(isinstance(reader.op, AdvancedIncSubtensor) and i == 1 for reader, i in readers)


def _without_padding(given: Variable, clients: Clients) -> Variable:
    """Return the values without trailing axes that were added for this write alone."""
    if given.owner is None or not isinstance(given.owner.op, DimShuffle):
        return given
    [values] = given.owner.inputs
    is_alone = len(clients[given]) == len(clients[values]) == 1
    return values if given.owner.op.is_right_expand_dims and is_alone else given


def _is_a_loop(values: Variable) -> bool:
    """Return whether values are computed by an Elemwise of more than scalars."""
    if values.owner is None or not isinstance(values.owner.op, Elemwise):
        return False
    return not all(all(x.type.broadcastable) for x in values.owner.inputs)


def _fits(node: Apply, leading: int, ndim: int) -> bool:
    """Return whether the index arrays are on adjacent axes that the values have too, and all other axes are full slices."""
    entries = node.op.idx_list
    axes = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    behind = axes[0] + max(node.inputs[2 + entries[axis]].type.ndim for axis in axes)
    are_neighbors = axes[-1] - axes[0] + 1 == len(axes)
    are_whole = all(entry == slice(None) for entry in entries if isinstance(entry, slice))
    return are_neighbors and are_whole and 0 <= leading <= axes[0] and behind <= leading + ndim
