"""Core Op of a Blockwise."""

from typing import Any

from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise


def core_op(op: Op | None) -> Any:
    """Return the core Op of a Blockwise, any other Op unchanged, and None for None."""
    return op.core_op if isinstance(op, Blockwise) else op
