"""Elemwise and Composite: one loop that stores all outputs."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.scalar.basic import Cast, Composite, Identity, ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.ir.arithmetic import cast, const, domain_of
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Size
from pymc_fastlogp.kernel.ir.loops import Store
from pymc_fastlogp.kernel.ir.traversal import loaded
from pymc_fastlogp.kernel.lower.array import Array, buffer_array
from pymc_fastlogp.kernel.lower.broadcast import broadcast_index, broadcast_shape
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.lengths import is_known_at_call


def supports(node: Apply) -> bool:
    """Return whether the scalar Op has a vectorized form."""
    op = node.op.scalar_op
    return scalar_op_is_supported(op, _dtypes(node.inputs), _dtypes(node.outputs))


def scalar_op_is_supported(op: ScalarOp, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """Return whether a scalar Op has a vectorized form; all Ops of a Composite need one."""
    if isinstance(op, Composite):
        return all(
            scalar_op_is_supported(node.op, _dtypes(node.inputs), _dtypes(node.outputs))
            for node in op.fgraph.toposort()
        )
    if isinstance(op, ScalarLoop):
        return scalars.is_supported_loop(op, inputs)
    return len(outputs) == 1 and scalars.is_supported(op, list(inputs), outputs[0])


def lower(context: Context, node: Apply, inputs: list[Array]) -> list[Array]:
    """Append one loop for all outputs, unless they are inlined in their readers or are lengths."""
    shape = broadcast_shape(
        context,
        [array.shape for array in inputs],
        [variable.type.broadcastable for variable in node.inputs],
    )
    domain, index = domain_of(shape)
    dtypes = _dtypes(node.outputs)

    @cache
    def values_at(index: tuple[Expr, ...]) -> list[Expr]:
        args = tuple(array.at(broadcast_index(array.shape, index)) for array in inputs)
        return apply(node.op.scalar_op, args, dtypes)

    values = values_at(index)
    if context.delays_elemwise and _can_be_inlined(context, node):
        return [_unstored(shape, dtype, values_at, k) for k, dtype in enumerate(dtypes)]
    if not shape and all(map(_is_of_lengths, values)):
        return list(map(_scalar, values))
    buffers = [context.buffer(dtype, shape) for dtype in dtypes]
    context.add(domain, *map(Store, buffers, [index] * len(buffers), values))
    return [buffer_array(buffer) for buffer in buffers]


def _unstored(
    shape: tuple[Size, ...], dtype: str, values_at: Callable[[Any], list[Expr]], k: int
) -> Array:
    """Return output ``k`` as an array that is not stored."""
    return Array(shape, dtype, lambda index: values_at(index)[k])


def _can_be_inlined(context: Context, node: Apply) -> bool:
    """Return whether only Elemwise nodes of the same shape read a node, so that each element is read once per reader."""
    broadcastable = node.outputs[0].type.broadcastable
    readers = [reader for x in node.outputs for reader, _ in context.clients[x]]
    return all(
        isinstance(reader.op, Elemwise) and reader.outputs[0].type.broadcastable == broadcastable
        for reader in readers
    )


def _scalar(value: Expr) -> Array:
    """Return a value as a 0-d array that is not stored."""
    return Array((), value.dtype, lambda _: value)


def _is_of_lengths(value: Expr) -> bool:
    """Return whether an integer can be a length, or a bool compares only lengths. Such values are not stored, so that checks can use them first."""
    if value.dtype == "bool":
        return is_known_at_call(value) and not loaded([value])
    return np.dtype(value.dtype).kind in "iu" and is_known_at_call(value)


def apply(op: ScalarOp, args: tuple[Expr, ...], dtypes: Sequence[str]) -> list[Expr]:
    """Return the outputs of a scalar Op as expressions; a Composite is inlined."""
    if isinstance(op, Composite):
        return _inline(op, args)
    if isinstance(op, ScalarLoop):
        results = scalars.results_of(op)
        return [Compute(result, args, dtype) for result, dtype in zip(results, dtypes, strict=True)]
    [dtype] = dtypes
    if isinstance(op, Identity | Cast):
        return [cast(args[0], dtype)]
    return [Compute(op, args, dtype)]


def _inline(composite: Composite, args: tuple[Expr, ...]) -> list[Expr]:
    fgraph = composite.fgraph
    values = dict(zip(fgraph.inputs, args, strict=True))

    def value_of(variable):  # type: ignore[no-untyped-def]
        if isinstance(variable, Constant):
            return const(variable.data, variable.type.dtype)
        return values[variable]

    for node in fgraph.toposort():
        results = apply(node.op, tuple(map(value_of, node.inputs)), _dtypes(node.outputs))
        values.update(zip(node.outputs, results, strict=True))
    return [value_of(output) for output in fgraph.outputs]


def _dtypes(variables: Sequence) -> list[str]:
    return [variable.type.dtype for variable in variables]
