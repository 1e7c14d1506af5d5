"""Ops on shapes and elements without arithmetic: views where an index map suffices, copies elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.kernel.ir.arithmetic import (
    ZERO,
    all_of,
    cast,
    domain_of,
    flat_index,
    int64,
    is_not_negative,
    minus,
    plus,
    product_of_sizes,
    sum_of_sizes,
    times,
    truth,
)
from pymc_fastlogp.kernel.ir.expressions import Const, Expr, Load, Size, as_expr, as_size
from pymc_fastlogp.kernel.ir.loops import Error, Store
from pymc_fastlogp.kernel.ir.traversal import loaded
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import (
    at_least,
    ceil_quotient,
    if_negative,
    length_of,
    unknown_length,
)


def lower_dimshuffle(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view with axes permuted, added and dropped; append checks that dropped axes have length 1."""
    [array] = inputs
    order: tuple = node.op.new_order
    error = Error(ValueError, "DimShuffle: a dropped axis must have length 1")
    for axis in node.op.drop:
        context.require_equal(array.shape[axis], 1, error)
    shape = tuple(1 if axis == "x" else array.shape[axis] for axis in order)

    def source_index(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        places = {axis: i for axis, i in zip(order, index, strict=True) if axis != "x"}
        return tuple(places.get(axis, ZERO) for axis in range(array.ndim))

    return [array.view(shape, source_index)]


def lower_same(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return the input: the Op changes only the type."""
    [array] = inputs
    return [array.view(array.shape, lambda index: index)]


def lower_check_and_raise(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append checks of the conditions, and return the value."""
    value, *conditions = inputs
    error = Error(node.op.exc_type, node.op.msg)
    for condition in conditions:
        context.require(cast(condition.at(()), "bool"), error)
    return [value.view(value.shape, lambda index: index)]


def lower_specify_shape(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return the array with the specified lengths, and append checks of these."""
    array, *lengths = inputs
    shape = list(array.shape)
    error = Error(AssertionError, "SpecifyShape: the lengths differ from the specified ones")
    for axis, length in enumerate(lengths):
        specified = length_of(length)
        if specified != -1:
            context.require_equal(shape[axis], specified, error)
            shape[axis] = specified
    return [array.view(tuple(shape), lambda index: index)]


def lower_alloc(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view: the value broadcast to the shape."""
    value, *lengths = inputs
    shape = lengths_of(context, lengths)
    new = len(shape) - value.ndim
    error = Error(ValueError, "could not broadcast input array into the shape requested by Alloc")
    for size, length in zip(value.shape, shape[new:], strict=True):
        if size != 1:
            context.require_equal(size, length, error)

    def source_index(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return broadcast_index(value.shape, index)

    return [value.view(shape, source_index)]


def lower_alloc_empty(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return an uninitialized array; elements that are read before they are written are 0."""
    dtype = node.outputs[0].type.dtype
    shape = lengths_of(context, inputs)
    return [Array(shape, dtype, lambda _: cast(ZERO, dtype), is_uninitialized=True)]


def lengths_of(context: Context, values: list[Array]) -> tuple[Size, ...]:
    """Return numbers as lengths, and append checks that these are not negative."""
    error = Error(ValueError, "negative dimensions not allowed")
    lengths = tuple(map(length_of, values))
    for length in lengths:
        _require_not_negative(context, length, error)
    return lengths


def _require_not_negative(context: Context, length: Size, error: Error) -> None:
    if not is_not_negative(as_expr(length)):
        context.require(truth(ps.ge, as_expr(length), ZERO), error)


def lower_reshape(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view of the flat array, which is a copy unless the array has one axis."""
    array, lengths = inputs
    shape = _new_shape(context, array, lengths, node.op.ndim)
    flat = array if array.ndim == 1 else _flat(context, array)
    return [flat.view(shape, lambda index: (flat_index(shape, index),))]


def _new_shape(context: Context, array: Array, lengths: Array, ndim: int) -> tuple[Size, ...]:
    """Return the new shape, and append checks of it; at most one negative length is inferred from the others."""
    given = [length_of(lengths, i) for i in range(ndim)]
    total = product_of_sizes(array.shape)
    rest = unknown_length(total, tuple(if_negative(size, 1, size) for size in given))
    shape = tuple(if_negative(size, rest, size) for size in given)
    error = Error(ValueError, "cannot reshape to another number of elements")
    context.require_equal(total, product_of_sizes(shape), error)
    _require_no_overflow(context, total, shape, error)
    negative = [count for size in given if (count := if_negative(size, 1, 0)) != 0]
    if len(negative) > 1:
        count = as_expr(sum_of_sizes(tuple(negative)))
        context.require(truth(ps.le, count, int64(1)), error)
    return shape


def _require_no_overflow(
    context: Context, total: Size, shape: tuple[Size, ...], error: Error
) -> None:
    """Require that lengths which are inputs do not exceed the number of elements, or some length is 0: their product could overflow."""
    given = [as_expr(size) for size in shape if not isinstance(size, int) and loaded([size])]
    if given and len(shape) > 1 and 0 not in shape:
        are_few = all_of([truth(ps.le, size, as_expr(total)) for size in given])
        is_empty = (truth(ps.eq, as_expr(size), ZERO) for size in shape)
        context.require(reduce(lambda a, b: truth(ps.or_, a, b), is_empty, are_few), error)


def _flat(context: Context, array: Array) -> Array:
    buffer = context.buffer(array.dtype, (product_of_sizes(array.shape),))
    domain, index = domain_of(array.shape)
    context.add(domain, Store(buffer, (flat_index(array.shape, index),), array.at(index)))
    return buffer_array(buffer)


def lower_join(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append a loop for each part, which stores the part at its offset."""
    axis = node.op.axis
    lengths = tuple(part.shape[axis] for part in inputs)
    shape = _with(inputs[0].shape, axis, sum_of_sizes(lengths))
    dtype = node.outputs[0].type.dtype
    buffer = context.buffer(dtype, shape)
    error = Error(ValueError, "all the input array dimensions but one must match exactly")
    for part, offset in zip(inputs, _offsets(lengths), strict=True):
        for size, length in zip(part.shape, _with(shape, axis, part.shape[axis]), strict=True):
            context.require_equal(length, size, error)
        domain, index = domain_of(part.shape)
        target = _with(index, axis, plus(index[axis], offset))
        context.add(domain, Store(buffer, target, cast(part.at(index), dtype)))
    return [buffer_array(buffer)]


def lower_split(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a view for each part."""
    array, lengths_array = inputs
    axis = node.op.axis
    error = Error(
        ValueError, "Split: the lengths must fit the number of parts and the length of the axis"
    )
    context.require_equal(lengths_array.shape[0], node.op.len_splits, error)
    lengths = tuple(length_of(lengths_array, i) for i in range(node.op.len_splits))
    for length in lengths:
        _require_not_negative(context, length, error)
    context.require_equal(array.shape[axis], sum_of_sizes(lengths), error)
    return [
        array.view(
            _with(array.shape, axis, length),
            lambda index, offset=offset: _with(index, axis, plus(index[axis], offset)),
        )
        for length, offset in zip(lengths, _offsets(lengths), strict=True)
    ]


def lower_make_vector(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a vector of the inputs."""
    dtype = node.outputs[0].type.dtype
    return [_vector(context, [cast(element.at(()), dtype) for element in inputs], dtype)]


def lower_shape(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return a vector of the lengths of all axes."""
    return [_vector(context, [as_expr(size) for size in inputs[0].shape], "int64")]


def _vector(context: Context, elements: list[Expr], dtype: str) -> Array:
    """Append straight-line code that stores elements; constant indices use the element directly, without a load."""
    buffer = context.buffer(dtype, (len(elements),))
    stores = [Store(buffer, (int64(i),), value) for i, value in enumerate(elements)]
    context.add((), *stores)

    def at(index: tuple[Expr, ...]) -> Expr:
        [i] = index
        return elements[int(i.value)] if isinstance(i, Const) else Load(buffer, index)

    return replace(buffer_array(buffer), at=at)


def lower_arange(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return the array ``start + i * step``, without a buffer."""
    start, stop = (as_expr(length_of(bound)) for bound in inputs[:2])
    step = as_expr(length_of(inputs[2]))
    assert isinstance(step, Const)
    distance = minus(stop, start) if step.value > 0 else minus(start, stop)
    length = as_size(ceil_quotient(at_least(distance, 0), abs(int(step.value))))
    dtype = node.op.dtype

    def at(index: tuple[Expr, ...]) -> Expr:
        return cast(plus(times(index[0], step), start), dtype)

    return [Array((length,), dtype, at, facts=_facts(start, int(step.value), length, dtype))]


def _facts(start: Expr, step: int, length: Size, dtype: str) -> IndexFacts | None:
    if not (isinstance(start, Const) and isinstance(length, int)):
        return None
    return index_facts((start.value + step * np.arange(length)).astype(dtype))


def supports_arange(node: Apply) -> bool:
    """Return whether the bounds are integers, and the step is a constant."""
    *_, step = node.inputs
    kinds = {np.dtype(x.type.dtype).kind for x in node.inputs}
    return kinds <= set("biu") and isinstance(step, Constant) and step.data != 0


def lower_shape_i(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Return the length of one axis."""
    size = as_expr(inputs[0].shape[node.op.i])
    return [Array((), "int64", lambda _: size)]


def _with(values: Sequence, axis: int, value: object) -> tuple:
    return (*values[:axis], value, *values[axis + 1 :])


def _offsets(lengths: tuple[Size, ...]) -> list[Expr]:
    offsets: list[Expr] = [ZERO]
    for length in lengths[:-1]:
        offsets.append(plus(offsets[-1], as_expr(length)))
    return offsets
