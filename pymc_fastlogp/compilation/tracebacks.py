"""Disable PyTensor's per-variable tracebacks while a model is compiled.

Upstream's error messages say it of a node that fails when it is called. Nothing here is called node by node, and to look at the stack of calls for
each variable of a gradient takes its time. PyTensor itself switches it off while it rewrites a function.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pytensor.configdefaults import config


@contextmanager
def without_traces() -> Iterator[None]:
    """Let PyTensor not note where variables are made, for a block. As all of its options, it is one for all threads."""
    with config.change_flags(traceback__limit=0):
        yield
