"""Blockwise: what it repeats for each index of a batch."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise


def core_op(node: Apply) -> Any:
    """Return the Op of a node, that of a matrix where Blockwise repeats one."""
    return node.op.core_op if isinstance(node.op, Blockwise) else node.op
