"""Python's garbage collector while a model is compiled.

A graph that is rewritten makes some hundred thousand objects, so that collections of all generations come now and then. Each looks at
all objects of the process, of which the imported packages have half a million: 0.3 s, a sixth of a compilation. While a
model is compiled, objects that were there before are not looked at. What the compilation leaves is collected as ever.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_n_open = 0


@contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """Keep the collector from objects that are there now, for a block. One who has frozen objects themselves is left alone."""
    is_ours = _entered()
    try:
        yield
    finally:
        _left(is_ours)


def _entered() -> bool:
    """Freeze objects if nobody has; return whether they are ours to unfreeze."""
    global _n_open
    with _lock:
        if _n_open == 0 and gc.get_freeze_count():
            return False
        _n_open += 1
        if _n_open == 1:
            gc.freeze()
        return True


def _left(is_ours: bool) -> None:
    global _n_open
    if not is_ours:
        return
    with _lock:
        _n_open -= 1
        if _n_open == 0:
            gc.unfreeze()
