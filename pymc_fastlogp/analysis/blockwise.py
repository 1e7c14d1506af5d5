"""Blockwise: what it repeats for each index of a batch."""

from typing import Any

from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise


def core_op(op: Op | None) -> Any:
    """Return an Op, that of one matrix where Blockwise repeats it; None for the Op of what no node computes."""
    return op.core_op if isinstance(op, Blockwise) else op
