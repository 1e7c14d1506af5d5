"""Lowering: translate a PyTensor graph to the loop IR.

:mod:`~pymc_fastlogp.kernel.lower.table` has a lowering rule for each Op. A rule takes the inputs of a node as
:class:`~pymc_fastlogp.kernel.lower.array.Array` objects and returns the outputs. It appends loops to a
:class:`~pymc_fastlogp.kernel.lower.context.Context`, each of which stores a whole result. The passes
(:mod:`pymc_fastlogp.kernel.passes`) later fuse these loops and remove dead stores.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from pymc_fastlogp.analysis.index_facts import IndexFacts
from pymc_fastlogp.kernel.defects import report_defect
from pymc_fastlogp.kernel.ir.arithmetic import domain_of
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Length, Load, Role, Size, as_expr
from pymc_fastlogp.kernel.ir.loops import Error, Loop, Program, Store
from pymc_fastlogp.kernel.ir.traversal import walk
from pymc_fastlogp.kernel.lower.array import (
    Array,
    UnsupportedError,
    buffer_array,
    constant_array,
    scalar_array,
)
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.table import inner_nodes, lowering_of

__all__ = ["UnsupportedError", "is_supported", "lower", "unsupported_nodes"]

# A constant None as an array: a length that SpecifyShape leaves open.
UNSPECIFIED = scalar_array(-1, "int64")
KINDS = "biuf"
UNSUPPORTED_DTYPES = ("uint64", "float16")
OTHER_LENGTH = Error(ValueError, "the length of an array differs from the static shape")


def is_supported(node: Apply) -> bool:
    """Return whether a node has a lowering rule. Lowering can still fail because of shapes or values."""
    lowering = lowering_of(node.op)
    if lowering is None or not all(map(_has_supported_type, (*node.inputs, *node.outputs))):
        return False
    try:
        return lowering.supports(node) and all(map(is_supported, inner_nodes(node)))
    except Exception as error:
        report_defect(error, f"the node {node}")
        return False


def _has_supported_type(variable: Variable) -> bool:
    if not isinstance(variable.type, DenseTensorType | ScalarType):
        return isinstance(variable, Constant)  # None in a slice
    dtype = variable.type.dtype
    return np.dtype(dtype).kind in KINDS and dtype not in UNSUPPORTED_DTYPES


def lower(fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]) -> Program:
    """Translate a graph to a program in which each node stores its result in a separate loop.

    Parameters
    ----------
    fgraph : AbstractFunctionGraph
        The graph; :func:`is_supported` holds for each node.
    facts : sequence of IndexFacts or None
        Facts about the elements of each input.

    Raises
    ------
    UnsupportedError
        If the loop IR cannot express a node, with the reason.
    """
    context = Context(fgraph.clients, _lower_graph)
    inputs = _inputs(fgraph, facts)
    arrays = [buffer_array(buffer, fact) for buffer, fact in zip(inputs, facts, strict=True)]
    return _program(context, inputs, _lower_graph(context, fgraph, arrays))


def unsupported_nodes(
    fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]
) -> tuple[dict[Apply, str], list[Apply]]:
    """Return the nodes that cannot be lowered, each with the reason, and the descendants of these nodes.

    Descendants are in topological order. They are not lowered here: they may be supported in a graph in which the results
    of unsupported nodes are inputs.
    """
    context = Context(fgraph.clients, _lower_graph)
    buffers = zip(fgraph.inputs, _inputs(fgraph, facts), facts, strict=True)
    arrays = {variable: buffer_array(buffer, fact) for variable, buffer, fact in buffers}
    reasons: dict[Apply, str] = {}
    descendants: list[Apply] = []
    for node in fgraph.toposort():
        if not all(x in arrays or isinstance(x, Constant) for x in node.inputs):
            descendants.append(node)
            continue
        try:
            _lower_node(context, node, arrays)
        except UnsupportedError as error:
            reasons[node] = str(error)
    return reasons, descendants


def _lower_graph(
    context: Context, fgraph: AbstractFunctionGraph, inputs: Sequence[Array]
) -> list[Array]:
    """Append the loops of a graph with these inputs, and return the outputs."""
    arrays = dict(zip(fgraph.inputs, inputs, strict=True))
    for node in fgraph.toposort():
        _lower_node(context, node, arrays)
    return [_operand(context, arrays, variable) for variable in fgraph.outputs]


def _lower_node(context: Context, node: Apply, arrays: dict[Variable, Array]) -> None:
    """Append the loops of a node, and add the outputs to ``arrays``."""
    operands = [_operand(context, arrays, variable) for variable in node.inputs]
    arrays.update(zip(node.outputs, _apply_rule(context, node, operands), strict=True))


def _apply_rule(context: Context, node: Apply, operands: list[Array]) -> list[Array]:
    lowering = lowering_of(node.op)
    assert lowering is not None
    try:
        arrays = lowering.lower(context, node, operands)
        if not all(_needs_no_check(size) for array in arrays for size in array.shape):
            raise UnsupportedError(
                "a length that is read from an input whose own length is not static"
            )
        return [
            _with_static_shape(context, array, output)
            for array, output in zip(arrays, node.outputs, strict=True)
        ]
    except UnsupportedError:
        raise
    except Exception as error:
        error.add_note(f"lowering {node.op}")
        raise


def _with_static_shape(context: Context, array: Array, output: Variable) -> Array:
    """Return an array with the static lengths of its type, and require that the actual lengths are equal to these.

    A static length of 1 matters: such an axis broadcasts, an axis of unknown length does not. For example, a join takes its lengths from
    the first operand, while only the second one may have static lengths.
    """
    shape = []
    for size, static in zip(array.shape, output.type.shape, strict=True):
        is_new = static is not None and not isinstance(size, int)
        if is_new:
            context.require_equal(size, static, OTHER_LENGTH)
        shape.append(static if is_new else size)
    return replace(array, shape=tuple(shape)) if shape != list(array.shape) else array


def _inputs(
    fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]
) -> tuple[Buffer, ...]:
    variables = zip(fgraph.inputs, facts, strict=True)
    return tuple(_input(i, variable, fact) for i, (variable, fact) in enumerate(variables))


def _input(position: int, variable: Variable, facts: IndexFacts | None) -> Buffer:
    shape: tuple[Size, ...] = tuple(
        Length(position, axis) if size is None else size
        for axis, size in enumerate(variable.type.shape)
    )
    return Buffer(f"x{position}", variable.type.dtype, shape, Role.INPUT, facts=facts)


def _operand(context: Context, arrays: dict[Variable, Array], variable: Variable) -> Array:
    if variable not in arrays:
        assert isinstance(variable, Constant)
        arrays[variable] = _constant(context, variable)
    return arrays[variable]


def _constant(context: Context, variable: Constant) -> Array:
    if variable.data is None:
        return UNSPECIFIED
    data = np.ascontiguousarray(variable.data)
    dtype = str(data.dtype)
    if variable.type.ndim == 0:
        return scalar_array(data.item(), dtype)
    return constant_array(context.constant(dtype, data.shape, data.tobytes()), data)


def _needs_no_check(size: Size) -> bool:
    """Return whether a length can be evaluated before the first loop: all elements that it reads exist."""
    return all(_is_in_bounds(part) for part in walk([as_expr(size)]) if isinstance(part, Load))


def _is_in_bounds(load: Load) -> bool:
    """Return whether an element exists in every call: its position and the shape of its buffer are static."""
    return all(
        isinstance(i, Const) and isinstance(length, int) and 0 <= i.value < length
        for i, length in zip(load.index, load.buffer.shape, strict=True)
    )


def _program(context: Context, inputs: tuple[Buffer, ...], results: list[Array]) -> Program:
    """Return the program of a context, with loops that copy the results to the outputs."""
    outputs = []
    for i, array in enumerate(results):
        output = Buffer(f"y{i}", array.dtype, array.shape, Role.OUTPUT)
        domain, index = domain_of(array.shape)
        context.add(domain, Store(output, index, array.at(index)))
        outputs.append(output)
    return Program(
        inputs,
        tuple(outputs),
        tuple(context.scratch),
        tuple(context.constants),
        (*(Loop((), (check,)) for check in context.requirements), *context.steps),
        tuple(context.errors),
    )
