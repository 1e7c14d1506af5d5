"""Positions to which a set or an inc writes."""

import math

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

# Of a larger tensor the positions are not listed, which takes time and memory for each entry.
MANY_ENTRIES = 1_000_000

WRITES = {IncSubtensor, AdvancedIncSubtensor}


def is_set(x: TensorVariable) -> bool:
    """Return whether ``x`` is the result of a set or an inc, basic or advanced."""
    # By the type itself: an Op's isinstance takes long, and this is asked of each operand of a graph.
    return type(x.owner_op) in WRITES


def positions(write: Apply) -> np.ndarray | None:
    """Return the flat positions that a write with constant indices into a known shape touches."""
    shape = write.inputs[0].type.shape
    if None in shape or math.prod(shape) > MANY_ENTRIES:
        return None
    if not all(isinstance(entry, Constant) for entry in write.inputs[2:]):
        return None
    index = indices_from_subtensor([entry.data for entry in write.inputs[2:]], write.op.idx_list)
    try:
        return np.arange(math.prod(shape)).reshape(shape)[tuple(index)].ravel()
    except IndexError:  # upstream raises it when the function is called
        return None
