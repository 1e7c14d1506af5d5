"""Reductions over rows: what they reduce, and the same reduction of what was built instead."""

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
from pymc_fastlogp.rewrites.rows.view.grid import static_length
from pymc_fastlogp.rewrites.rows.view.row_view import rest_of

# Of what is summed over cells: in half precision there is no number for 2049 rows.
PRECISIONS = ("float32", "float64")


class Reduction(NamedTuple):
    """A reduction over rows, with the checks that stand before it.

    Attributes
    ----------
    node : Apply
        Of a Sum or All.
    x : TensorVariable
        What is reduced, without the checks.
    checks : list of Apply
        The outermost first.
    axes : tuple of int
        Which axes are reduced.
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
        """Return the axes that are reduced and not of length one."""
        # PyTensor sums numbers over an axis that they lost on the way, so not every axis is there.
        broadcastable = self.x.type.broadcastable
        return tuple(a for a in self.axes if a < len(broadcastable) and not broadcastable[a])

    def lengths_of(self, axes: Iterable[int]) -> tuple[int, ...] | None:
        """Return how long axes are, None if that is not known."""
        lengths = [static_length(self.x, axis) for axis in axes]
        known = tuple(length for length in lengths if length is not None)
        return known if len(known) == len(lengths) else None


def parse_reduction(node: Apply) -> Reduction:
    """Return what a node of a reduction reduces, and the checks that stand before it."""
    [x], checks = node.inputs, []
    while isinstance(x.owner_op, CheckAndRaise):
        checks.append(x.owner)
        x = x.owner.inputs[0]
    return Reduction(node, x, checks, axes_of(node))


def axes_of(node: Apply) -> tuple[int, ...]:
    """Return the axes that a reduction goes over."""
    return tuple(range(node.inputs[0].type.ndim)) if node.op.axis is None else node.op.axis


def is_needed_by_row(fgraph: FunctionGraph, reduction: Reduction) -> bool:
    """Return whether anything else reads what is reduced."""
    of_rows = reduction.x, *(check.outputs[0] for check in reduction.checks)
    return any(len(fgraph.clients[x]) > 1 for x in of_rows)


def reduce_rows(reduction: Reduction, where: Where, at: TensorVariable, n: int) -> TensorVariable:
    """Return the reduction of what was built at ``n`` rows, which come first, over all the same axes."""
    op, rest = reduction.node.op, rest_of(reduction.x, where)
    filled = _as_long_as(at, [n, *_lengths(reduction.x, rest)])
    axes = (0, *(1 + k for k, axis in enumerate(rest) if axis in reduction.axes))
    return op.clone(axis=None if len(axes) == filled.type.ndim else axes)(filled)


def reduce_all(reduction: Reduction, of_rows: TensorVariable) -> TensorVariable:
    """Return the reduction of what is left to be reduced at all rows, along which it may not vary."""
    x = reduction.x
    reduced = reduction.node.op(_as_long_as(of_rows, _lengths(x, range(x.type.ndim))))
    reduced.name = reduction.out.name  # what rules say of it is about the same likelihood
    return reduced


def unrounded(reduction: Reduction) -> Reduction:
    """Return the reduction with a result of the dtype that a sum is added up in: the sums of blocks may cancel."""
    op = reduction.node.op
    if isinstance(op, All):
        return reduction
    wide = op.clone(dtype=op.acc_dtype or op.dtype)
    return reduction._replace(node=wide.make_node(*reduction.node.inputs))


def sum_of_blocks(reduction: Reduction, blocks: Iterable[TensorVariable]) -> TensorVariable | None:
    """Return a reduction of all rows, made of those of blocks of them; None if its type differs."""
    reduced = [*blocks]
    for block in reduced:
        block.name = reduction.out.name  # what rules say of it is about the same likelihood
    # An `and` is one of two, other than a sum.
    whole = reduce(and_, reduced) if isinstance(reduction.node.op, All) else add(*reduced)
    return checked(reduction, in_type(whole, reduction.out.type.dtype))


def checked(reduction: Reduction, result: TensorVariable) -> TensorVariable | None:
    """Return a result behind the checks of a reduction that it replaces, None if their types differ."""
    for check in reversed(reduction.checks):
        result = check.op(result, *check.inputs[1:])
    if not reduction.out.type.is_super(result.type):
        return None
    copy_stack_trace(reduction.out, result)
    return result


def _as_long_as(x: TensorVariable, lengths: list[Any]) -> TensorVariable:
    """Return ``x`` with the axes along which it does not vary filled up to these lengths."""
    is_long = [isinstance(n, TensorVariable) or n != 1 for n in lengths]
    if not any(b and n for b, n in zip(x.type.broadcastable, is_long, strict=True)):
        return x
    return alloc(x, *lengths)


def _lengths(x: TensorVariable, axes: Iterable[int]) -> list[Any]:
    """Return the lengths of axes, as variables where they are not known."""
    return [x.shape[axis] if (n := x.type.shape[axis]) is None else n for axis in axes]
