"""Positions that ``set_subtensor`` and ``inc_subtensor`` write to."""

import math

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

# Positions are not listed for larger tensors: a list takes time and memory per entry.
MAX_LISTED_ENTRIES = 1_000_000

WRITES = {IncSubtensor, AdvancedIncSubtensor}


def is_set(x: TensorVariable) -> bool:
    """Return whether ``x`` is the result of a set or an inc, basic or advanced."""
    # `isinstance` of an Op is slow, and each operand of a graph is asked.
    return type(x.owner_op) in WRITES


def positions(write: Apply) -> np.ndarray | None:
    """Return the flat positions that a write touches, None unless the indices are constant and the shape is static."""
    shape = write.inputs[0].type.shape
    if None in shape or math.prod(shape) > MAX_LISTED_ENTRIES:
        return None
    if not all(isinstance(entry, Constant) for entry in write.inputs[2:]):
        return None
    index = indices_from_subtensor([entry.data for entry in write.inputs[2:]], write.op.idx_list)
    try:
        return np.arange(math.prod(shape)).reshape(shape)[tuple(index)].ravel()
    except IndexError:  # PyTensor raises it when the function is called
        return None
