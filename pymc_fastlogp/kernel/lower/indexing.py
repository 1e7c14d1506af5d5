"""Subtensor and AdvancedSubtensor as views, IncSubtensor and AdvancedIncSubtensor as loops."""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import unflatten_index_variables
from pytensor.tensor.type import integer_dtypes

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, cast, domain_of, int64, switch, truth
from pymc_fastlogp.kernel.ir.expressions import Expr, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Accumulate, Error, Store
from pymc_fastlogp.kernel.lower.array import Array, of_buffer
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.index_map import index_map
from pymc_fastlogp.kernel.lower.runtime_broadcast import repeats_values

MISMATCH = Error(ValueError, "the values cannot be broadcast to what is selected")


def supports_read(node: Apply) -> bool:
    """Return whether the indices are integers."""
    return _are_supported(node, node.inputs[1:])


def supports_write(node: Apply) -> bool:
    """Return whether a write is supported; duplicates count."""
    ignores_duplicates = getattr(node.op, "ignore_duplicates", False)
    return not ignores_duplicates and _is_exact(node) and _are_supported(node, node.inputs[2:])


def _is_exact(node: Apply) -> bool:
    """Return whether what is added may be added in the type of the base: that has all its values, or both wrap around."""
    base, values = (x.type.dtype for x in node.inputs[:2])
    are_integers = base in integer_dtypes and values in integer_dtypes
    return node.op.set_instead_of_inc or are_integers or ps.upcast(base, values) == base


def _are_supported(node: Apply, indices: list[Variable]) -> bool:
    return all(
        isinstance(index, slice) or index.type.dtype != "bool"
        for index in unflatten_index_variables(indices, node.op.idx_list)
    )


def lower_read(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view."""
    source, *indices = inputs
    selection = index_map(context, source, unflatten_index_variables(indices, node.op.idx_list))
    return [source.view(selection.shape, selection.source_index)]


def lower_write(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a loop that stores or adds the second input at what the indices select."""
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
    return [of_buffer(buffer)]


def _along(context: Context, given: Size, selected: Size, index: Expr) -> Expr:
    """Return the index into the values along an axis, which is repeated if its length is known to be 1."""
    if given == 1:
        return ZERO
    context.require_equal(given, selected, MISMATCH)
    return index


def _along_if_one(context: Context, given: Size, selected: Size, index: Expr) -> Expr:
    """Return the index into the values along an axis, which is also repeated if its length turns out to be 1."""
    if isinstance(given, int) or given == selected:
        return _along(context, given, selected, index)
    is_one = truth(ps.eq, given, int64(1))
    is_same = truth(ps.eq, given, as_expr(selected))
    context.require(truth(ps.or_, is_one, is_same), MISMATCH)
    return switch(is_one, ZERO, index)
