"""Sum each block of joined rows by itself.

.. code::

    sum(f(join(0, a, b), x))  ->  sum(f(a, x[:n])) + sum(f(b, x[n:]))
    all(f(join(0, a, b)))     ->  all(f(a)) & all(f(b))

``f`` is elementwise. Likelihoods with one mean per block of rows use ``pt.concatenate`` in this way. The joined rows
are then never computed, and their gradient is never split again. Each block is compacted, sorted and hoisted by itself.

The same terms are summed in another order. PyTensor can simplify a block that the join hides: with rates
``concatenate([exp(x), exp(z)])``, ``log(exp(x))`` becomes ``x``. So ``y * log(mu) - mu`` at an infinite rate is minus
infinity instead of NaN. A sampler rejects both.

When it applies
---------------
Before the gradient, to a sum or a check of two to eight blocks with at least 32 rows each, joined along a reduced axis.
All joins along the axis end at the same rows.

When it refuses
---------------
- Blocks of unknown length, blocks that are too short, or too many blocks.
- Joins that end at different rows.
- Ops between join and sum that are neither elementwise nor a dimshuffle.
- Rows with another reader, such as an elementwise log-likelihood that is an output.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import Join, constant
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp import decisions
from pymc_fastlogp.analysis.elemwise import in_type
from pymc_fastlogp.rewrites.rows.compact.reductions import (
    is_needed_by_row,
    parse_reduction,
    sum_of_blocks,
    with_accumulator_dtype,
)

NAME = "fastlogp_split_join"

# Each block becomes a loop, with additional code and overhead.
MOST_BLOCKS = 8
SHORTEST = 32

type AtBlock = Callable[[TensorVariable, int], TensorVariable]


@node_rewriter([Sum, All])
def local_split_join(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``sum(f(join(0, a, b), x)) -> sum(f(a, x[:n])) + sum(f(b, x[n:]))``."""
    reduction = parse_reduction(node)
    if reduction.out.type.dtype != reduction.x.type.dtype or is_needed_by_row(fgraph, reduction):
        return None
    for axis in reduction.long_axes:
        if ends := _ends(reduction.x, axis):
            op = with_accumulator_dtype(reduction).node.op
            result = sum_of_blocks(reduction, map(op, _blocks(reduction.x, axis, ends)))
            if result is not None:
                decisions.fired(NAME, reduction.out)
                return [result]
    return None


def _ends(x: TensorVariable, axis: int) -> tuple[int, ...] | None:
    """Return the ends of the blocks along an axis, if all joins agree."""
    found = set(_all_ends(x, axis))
    if len(found) != 1:
        return None
    [ends] = found
    lengths = [after - before for before, after in pairwise((0, *ends))]
    return ends if 1 < len(ends) <= MOST_BLOCKS and min(lengths) >= SHORTEST else None


def _all_ends(x: TensorVariable, axis: int) -> Iterator[tuple[int, ...]]:
    """Yield the ends of the blocks of each join of which ``x`` is an elementwise function."""
    seen, rest = set(), [(x, axis)]
    while rest:
        at = rest.pop()
        if at in seen:
            continue
        seen.add(at)
        below, (y, its_axis) = _operands(*at), at
        rest += below
        if not below and y.type.shape[its_axis] is None:
            yield ()  # slices would hide the error of a wrong length
        if _is_join(*at):
            # A join also compares the lengths of the other axes.
            is_open = any(None in part.type.shape for part in y.owner.inputs)
            lengths = [part.type.shape[its_axis] for part in y.owner.inputs]
            yield () if is_open else tuple(map(int, np.cumsum(lengths)))


def _operands(x: TensorVariable, axis: int) -> list[tuple[TensorVariable, int]]:
    """Return the operands from which ``x`` is computed entry by entry, with the axis of each that is aligned with ``axis``."""
    if isinstance(x.owner_op, Elemwise):
        return [(y, axis) for y in x.owner.inputs if not y.type.broadcastable[axis]]
    if isinstance(x.owner_op, DimShuffle):
        of_input = x.owner.op.new_order[axis]
        return [] if of_input == "x" else [(x.owner.inputs[0], of_input)]
    return []


def _is_join(x: TensorVariable, axis: int) -> bool:
    return isinstance(x.owner_op, Join) and x.owner.op.axis == axis


def _blocks(x: TensorVariable, axis: int, ends: tuple[int, ...]) -> list[TensorVariable]:
    """Return ``x`` at each block."""
    return [
        _at_block(k, slice(begin, end))(x, axis)
        for k, (begin, end) in enumerate(pairwise((0, *ends)))
    ]


def _at_block(k: int, rows: slice) -> AtBlock:
    """Return the function that restricts a variable to the rows of block ``k`` of the joins that it reads."""

    @cache
    def at(x: TensorVariable, axis: int) -> TensorVariable:
        if x.type.broadcastable[axis]:
            return x
        if _is_join(x, axis):
            return in_type(x.owner.inputs[k], x.type.dtype)
        index = (*(slice(None),) * axis, rows)
        if isinstance(x, TensorConstant):
            return constant(x.data[index], dtype=x.type.dtype)
        below = dict(_operands(x, axis))
        if not below:
            return x[index]
        inputs = (at(y, below[y]) if y in below else y for y in x.owner.inputs)
        return x.owner.op.make_node(*inputs).outputs[x.index]

    return at
