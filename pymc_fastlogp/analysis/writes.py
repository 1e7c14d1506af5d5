"""Chains of sets: what a tensor was before they were made, and what they wrote where.

``x[i].set(c)[j].set(d)`` is the root ``x`` and two writes. An ``inc`` of zeros that touches no
entry twice counts as a set.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp._upstream.pytensor import advanced_indices_jointly_unique
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.vector_reads import chosen

# Of a larger tensor the positions are not listed, which takes time and memory for each entry.
MANY_ENTRIES = 1_000_000


class Filled(NamedTuple):
    """A tensor that is ``root`` with ``writes``, the innermost first, set into it one by one."""

    root: TensorVariable
    writes: tuple[Apply, ...]


def is_set(x: TensorVariable) -> bool:
    """Whether ``x`` is the result of a set or an inc, basic or advanced."""
    return isinstance(x.owner_op, IncSubtensor | AdvancedIncSubtensor)


def unwind(fgraph: FunctionGraph, x: TensorVariable) -> Filled | None:
    """Follow the sets that made ``x`` down to the tensor that they were set into."""
    writes: list[Apply] = []
    while is_set(x) and _writes_as_set(fgraph, x.owner) and _is_free_of(x.owner, writes):
        writes.insert(0, x.owner)
        x = x.owner.inputs[0]
    return Filled(x, tuple(writes)) if writes else None


def _writes_as_set(fgraph: FunctionGraph, write: Apply) -> bool:
    """Whether each entry is written once, so that a set, or an inc of zeros, can be lifted."""
    op, base = write.op, write.inputs[0]
    if op.inplace or not _is_without_duplicates(fgraph, write):
        return False
    return op.set_instead_of_inc or fill_value(base) == 0


def _is_without_duplicates(fgraph: FunctionGraph, write: Apply) -> bool:
    """Whether the indices of a write surely hold no entry twice."""
    if isinstance(write.op, IncSubtensor):
        return True
    indices = indices_of(write)
    arrays = [i for i in indices if not isinstance(i, slice) and i.ndim]
    # PyTensor takes the zeros and ones of a mask for positions when it compares it with others.
    if len(arrays) > 1 and any(i.type.dtype == "bool" for i in arrays):
        return False
    return advanced_indices_jointly_unique(indices, fgraph)


def _is_free_of(write: Apply, later: Sequence[Apply]) -> bool:
    """Whether nothing that ``write`` stores is overwritten, or what it stores is constant."""
    if not later or isinstance(write.inputs[1], Constant):
        return True
    stored = positions(write)
    if stored is None:
        return False
    overwriting = [positions(w) for w in later]
    return all(p is not None and not np.isin(stored, p).any() for p in overwriting)


def is_surely_stored(write: Apply) -> bool:
    """Whether each entry of the value ends up somewhere: a scalar set into no entry does not."""
    base, value = write.inputs[:2]
    if isinstance(value, Constant):
        return True
    target = base[indices_of(write)].type
    return value.type.broadcastable == target.broadcastable or all(target.shape)


def set_op(op: IncSubtensor | AdvancedIncSubtensor) -> IncSubtensor | AdvancedIncSubtensor:
    """Return the Op that sets where ``op`` sets or increments."""
    return op if op.set_instead_of_inc else type(op)(op.idx_list, set_instead_of_inc=True)


def indices_of(write: Apply) -> tuple[slice | TensorVariable, ...]:
    """Return the slices and variables that ``write`` was indexed with, axis by axis."""
    return tuple(indices_from_subtensor(write.inputs[2:], write.op.idx_list))


def positions(write: Apply) -> np.ndarray | None:
    """Return the flat positions that a write with constant indices into a known shape touches."""
    shape = write.inputs[0].type.shape
    if None in shape or math.prod(shape) > MANY_ENTRIES:
        return None
    found = chosen(shape, write.op.idx_list, write.inputs[2:])
    return None if found is None else found.ravel()
