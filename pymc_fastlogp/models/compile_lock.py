"""Process-wide state during a compilation: the lock, the garbage collector and PyTensor's tracebacks.

The lock serializes compilations. PyTensor writes the mode of the function that it compiles into its configuration, which all threads share, and
restores the previous value afterwards. Of two overlapping compilations, the later one restores the mode of the other, and every
later function of the process is compiled in that mode. See ``docs/upstream.md``.

Rewriting a graph creates several hundred thousand objects, which triggers collections of the oldest generation. Each such collection traverses
every object of the imported packages. ``gc.freeze`` excludes the existing objects for the time of a compilation.

PyTensor records a traceback for every variable, for the error message of a failing node. A compiled model calls no
node by itself, so the stack walks are wasted. PyTensor disables them during its own rewriting, too.
"""

import gc
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from pytensor.configdefaults import config
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

# Bytes of constants, from which on a collection of garbage is worth its time.
LARGE = 50_000_000

# Reentrant: reparametrization of a model compiles a pilot.
_lock = threading.RLock()
_count_lock = threading.Lock()
_n_frozen_blocks = 0


@contextmanager
def compile_lock() -> Iterator[None]:
    """Hold the lock of compilations for a block."""
    with _lock:
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """Hold the lock for a block, with existing objects frozen, and without tracebacks and warnings about fusion."""
    with compile_lock(), existing_objects_frozen(), without_tracebacks(), without_fusion_warnings():
        yield


@contextmanager
def without_tracebacks() -> Iterator[None]:
    """Disable PyTensor's tracebacks of variables for a block, in all threads."""
    with config.change_flags(traceback__limit=0):
        yield


@contextmanager
def without_fusion_warnings() -> Iterator[None]:
    """Silence PyTensor's warning that a node would have too many operands, as it may without a C++ compiler: kernels fuse the nodes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Loop fusion failed")
        yield


def free_dead_graphs(outputs: Sequence[Variable]) -> None:
    """Collect garbage if graphs contain large constants: a dead graph is a reference cycle, and holds constants of the same size."""
    constants = (x.data for x in ancestors(outputs) if isinstance(x, Constant))
    if sum(x.nbytes for x in constants if isinstance(x, np.ndarray)) > LARGE:
        gc.collect()


@contextmanager
def existing_objects_frozen() -> Iterator[None]:
    """Exclude existing objects from garbage collection for a block; do nothing if the user has frozen objects."""
    is_ours = _freeze()
    try:
        yield
    finally:
        if is_ours:
            _unfreeze()


def _freeze() -> bool:
    """Freeze objects in the outermost block; return False if the user has frozen objects."""
    global _n_frozen_blocks
    with _count_lock:
        if _n_frozen_blocks == 0 and gc.get_freeze_count():
            return False
        _n_frozen_blocks += 1
        if _n_frozen_blocks == 1:
            gc.freeze()
        return True


def _unfreeze() -> None:
    """Unfreeze objects at the end of the outermost block."""
    global _n_frozen_blocks
    with _count_lock:
        _n_frozen_blocks -= 1
        if _n_frozen_blocks == 0:
            gc.unfreeze()


def _reset_lock() -> None:
    """Replace the lock in a forked child, where the threads that held it do not exist."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)
