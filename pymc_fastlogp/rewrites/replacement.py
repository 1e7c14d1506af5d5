"""Replace one output of a node, as a node rewriter does."""

from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.tensor.variable import TensorVariable


def replacement(out: TensorVariable, new: TensorVariable) -> list[TensorVariable] | None:
    """Return ``[new]`` with the stack trace of ``out``; None if ``new`` has a more general type than ``out``."""
    if not out.type.is_super(new.type):
        return None
    copy_stack_trace(out, new)
    return [new]
