"""Reductions over rows: parse a reduction of a variable, and apply the same reduction to a variable with fewer rows."""

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import alloc
from pytensor.tensor.math import All, add, and_
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.view.grid import rest_of, static_length

# Dtypes that are summed over cells: float16 cannot represent a count of 2049 rows.
PRECISIONS = ("float32", "float64")


class Reduction(NamedTuple):
    """A reduction over rows, with the checks between reduction and summand.

    Attributes
    ----------
    node : Apply
        Node of a Sum or All.
    x : TensorVariable
        The summand below the checks.
    checks : list of Apply
        The outermost check first.
    axes : tuple of int
        Reduced axes.
    """

    node: Apply
    x: TensorVariable
    checks: list[Apply]
    axes: tuple[int, ...]

    @property
    def out(self) -> TensorVariable:
        """Return the result."""
        return self.node.outputs[0]

    @property
    def long_axes(self) -> tuple[int, ...]:
        """Return the reduced axes that are not of length one."""
        # PyTensor may sum over an axis that its input no longer has.
        broadcastable = self.x.type.broadcastable
        return tuple(a for a in self.axes if a < len(broadcastable) and not broadcastable[a])

    def lengths_of(self, axes: Iterable[int]) -> tuple[int, ...] | None:
        """Return the lengths of axes, None if one is unknown."""
        lengths = [static_length(self.x, axis) for axis in axes]
        known = tuple(length for length in lengths if length is not None)
        return known if len(known) == len(lengths) else None


def parse_reduction(node: Apply) -> Reduction:
    """Return the reduction of a node, and the checks below it."""
    [x], checks = node.inputs, []
    while isinstance(x.owner_op, CheckAndRaise):
        checks.append(x.owner)
        x = x.owner.inputs[0]
    return Reduction(node, x, checks, axes_of(node))


def axes_of(node: Apply) -> tuple[int, ...]:
    """Return the reduced axes of a node."""
    return tuple(range(node.inputs[0].type.ndim)) if node.op.axis is None else node.op.axis


def is_needed_by_row(fgraph: FunctionGraph, reduction: Reduction) -> bool:
    """Return whether another node reads the summand."""
    of_rows = reduction.x, *(check.outputs[0] for check in reduction.checks)
    return any(len(fgraph.clients[x]) > 1 for x in of_rows)


def reduce_rows(reduction: Reduction, where: Where, at: TensorVariable, n: int) -> TensorVariable:
    """Return the same reduction of ``at``, the summand at ``n`` rows, which are its first axis."""
    op, rest = reduction.node.op, rest_of(reduction.x, where)
    filled = _broadcast_to(at, [n, *_lengths(reduction.x, rest)])
    axes = (0, *(1 + k for k, axis in enumerate(rest) if axis in reduction.axes))
    return op.clone(axis=None if len(axes) == filled.type.ndim else axes)(filled)


def reduce_all(reduction: Reduction, of_rows: TensorVariable) -> TensorVariable:
    """Return the same reduction of some terms at all rows, which may have length one along the rows."""
    x = reduction.x
    reduced = reduction.node.op(_broadcast_to(of_rows, _lengths(x, range(x.type.ndim))))
    reduced.name = reduction.out.name  # so that decisions name the same likelihood
    return reduced


def with_accumulator_dtype(reduction: Reduction) -> Reduction:
    """Return the reduction with its result in the accumulator dtype, because sums of blocks may cancel."""
    op = reduction.node.op
    if isinstance(op, All):
        return reduction
    wide = op.clone(dtype=op.acc_dtype or op.dtype)
    return reduction._replace(node=wide.make_node(*reduction.node.inputs))


def sum_of_blocks(reduction: Reduction, blocks: Iterable[TensorVariable]) -> TensorVariable | None:
    """Combine the reductions of blocks of rows to the reduction of all rows; None if the type differs."""
    reduced = [*blocks]
    for block in reduced:
        block.name = reduction.out.name  # so that decisions name the same likelihood
    # `and_` takes two operands, `add` any number.
    whole = reduce(and_, reduced) if isinstance(reduction.node.op, All) else add(*reduced)
    return restore_checks(reduction, in_type(whole, reduction.out.type.dtype))


def restore_checks(reduction: Reduction, result: TensorVariable) -> TensorVariable | None:
    """Return a result behind the checks of the reduction that it replaces, None if the types differ."""
    for check in reversed(reduction.checks):
        result = check.op(result, *check.inputs[1:])
    if not reduction.out.type.is_super(result.type):
        return None
    copy_stack_trace(reduction.out, result)
    return result


def _broadcast_to(x: TensorVariable, lengths: list[Any]) -> TensorVariable:
    """Broadcast ``x`` to these lengths."""
    is_long = [isinstance(n, TensorVariable) or n != 1 for n in lengths]
    if not any(b and n for b, n in zip(x.type.broadcastable, is_long, strict=True)):
        return x
    return alloc(x, *lengths)


def _lengths(x: TensorVariable, axes: Iterable[int]) -> list[Any]:
    """Return the lengths of axes, as variables if unknown."""
    return [x.shape[axis] if (n := x.type.shape[axis]) is None else n for axis in axes]
