"""Lowering: from a graph of PyTensor to the loop IR.

:mod:`~pymc_fastlogp.kernel.lower.table` has a rule for each Op. A rule gets the inputs as
:class:`~pymc_fastlogp.kernel.lower.array.Array` and returns its outputs as such; what it computes it
appends to a :class:`~pymc_fastlogp.kernel.lower.context.Context` as loops, each storing its whole result. The
passes of :mod:`pymc_fastlogp.kernel.passes` join these loops, and drop the stores that nobody needs.
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
    of_buffer,
    of_constant,
    of_number,
)
from pymc_fastlogp.kernel.lower.context import Context
from pymc_fastlogp.kernel.lower.table import inner_nodes, row_of
from pymc_fastlogp.kernel.passes import optimize
from pymc_fastlogp.kernel.passes.layout import axes_of_vectors

__all__ = ["UnsupportedError", "axes_of_vectors", "faults_of", "is_supported", "loops_of", "lower"]

# Stands for a length that SpecifyShape leaves open.
UNSPECIFIED = of_number(-1, "int64")
KINDS = "biuf"
UNSUPPORTED_DTYPES = ("uint64", "float16")
OTHER_LENGTH = Error(ValueError, "an array has another length than its type says")


def is_supported(node: Apply) -> bool:
    """Return whether a node has a rule; shapes and values may still rule it out when it is lowered."""
    row = row_of(node.op)
    if row is None or not all(map(_has_supported_type, (*node.inputs, *node.outputs))):
        return False
    try:
        return row.supports(node) and all(map(is_supported, inner_nodes(node)))
    except Exception as error:
        report_defect(error, f"the node {node}")
        return False


def _has_supported_type(variable: Variable) -> bool:
    if not isinstance(variable.type, DenseTensorType | ScalarType):
        return isinstance(variable, Constant)  # the None of a slice
    dtype = variable.type.dtype
    return np.dtype(dtype).kind in KINDS and dtype not in UNSUPPORTED_DTYPES


def lower(fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]) -> Program:
    """Return the program that computes a graph, after all passes; see :func:`loops_of`."""
    return optimize(loops_of(fgraph, facts))


def loops_of(fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]) -> Program:
    """Return the program as the rules make it: each node stores its result, in a loop of its own.

    For each node :func:`is_supported` holds; the facts are what is known of each input.

    Raises
    ------
    UnsupportedError
        With the reason.
    """
    context = Context(fgraph.clients, _lower_graph)
    inputs = _inputs(fgraph)
    arrays = [of_buffer(buffer, fact) for buffer, fact in zip(inputs, facts, strict=True)]
    return _program(context, inputs, _lower_graph(context, fgraph, arrays))


def faults_of(
    fgraph: AbstractFunctionGraph, facts: Sequence[IndexFacts | None]
) -> tuple[dict[Apply, str], list[Apply]]:
    """Return the nodes that cannot be lowered, each with the reason, and the nodes behind them, in topological order.

    What is behind is not looked at: it may be lowered in a graph that has the results of the others as inputs.
    """
    context = Context(fgraph.clients, _lower_graph)
    buffers = zip(fgraph.inputs, _inputs(fgraph), facts, strict=True)
    arrays = {variable: of_buffer(buffer, fact) for variable, buffer, fact in buffers}
    faults: dict[Apply, str] = {}
    behind: list[Apply] = []
    for node in fgraph.toposort():
        if not all(x in arrays or isinstance(x, Constant) for x in node.inputs):
            behind.append(node)
            continue
        try:
            _lower_node(context, node, arrays)
        except UnsupportedError as error:
            faults[node] = str(error)
    return faults, behind


def _lower_graph(
    context: Context, fgraph: AbstractFunctionGraph, inputs: Sequence[Array]
) -> list[Array]:
    """Append what computes a graph of these inputs, and return its outputs."""
    arrays = dict(zip(fgraph.inputs, inputs, strict=True))
    for node in fgraph.toposort():
        _lower_node(context, node, arrays)
    return [_operand(context, arrays, variable) for variable in fgraph.outputs]


def _lower_node(context: Context, node: Apply, arrays: dict[Variable, Array]) -> None:
    """Append what computes a node, and add its outputs to the arrays."""
    operands = [_operand(context, arrays, variable) for variable in node.inputs]
    arrays.update(zip(node.outputs, _lowered(context, node, operands), strict=True))


def _lowered(context: Context, node: Apply, operands: list[Array]) -> list[Array]:
    row = row_of(node.op)
    assert row is not None
    try:
        arrays = row.lower(context, node, operands)
        if not all(_is_known(size) for array in arrays for size in array.shape):
            raise UnsupportedError("a length that is an element of an input of open length")
        return [
            _as_typed(context, array, output)
            for array, output in zip(arrays, node.outputs, strict=True)
        ]
    except UnsupportedError:
        raise
    except Exception as error:
        error.add_note(f"lowering {node.op}")
        raise


def _as_typed(context: Context, array: Array, output: Variable) -> Array:
    """Return an array with the lengths that its type knows: an axis of length 1 broadcasts, one of open length does not.

    A join has the length of its first operand, of which another one may know it.
    """
    known = []
    for size, static in zip(array.shape, output.type.shape, strict=True):
        is_news = static is not None and not isinstance(size, int)
        if is_news:
            context.require_equal(size, static, OTHER_LENGTH)
        known.append(static if is_news else size)
    return replace(array, shape=tuple(known)) if known != list(array.shape) else array


def _inputs(fgraph: AbstractFunctionGraph) -> tuple[Buffer, ...]:
    return tuple(_input(i, variable) for i, variable in enumerate(fgraph.inputs))


def _input(position: int, variable: Variable) -> Buffer:
    shape: tuple[Size, ...] = tuple(
        Length(position, axis) if size is None else size
        for axis, size in enumerate(variable.type.shape)
    )
    return Buffer(f"x{position}", variable.type.dtype, shape, Role.INPUT)


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
        return of_number(data.item(), dtype)
    return of_constant(context.constant(dtype, data.shape, data.tobytes()), data)


def _is_known(size: Size) -> bool:
    """Return whether a length is known before the kernel runs, without an index that it has to check."""
    return all(_is_in_bounds(part) for part in walk([as_expr(size)]) if isinstance(part, Load))


def _is_in_bounds(load: Load) -> bool:
    """Return whether an element is there in every call: a number, or at a static position of a static axis."""
    return all(
        isinstance(i, Const) and isinstance(length, int) and 0 <= i.value < length
        for i, length in zip(load.index, load.buffer.shape, strict=True)
    )


def _program(context: Context, inputs: tuple[Buffer, ...], results: list[Array]) -> Program:
    """Return the program whose outputs are copies of these arrays."""
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
