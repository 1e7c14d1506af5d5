"""One compilation at a time.

PyTensor writes the mode of the function that it compiles into its configuration, which all threads share, and puts back what it found
there. Of two threads, the one that ends last puts back the mode of the other: all later functions of the process are compiled in it, most
often in that of initial points, which hardly rewrites. See ``docs/upstream.md``.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Of the thread that holds it, too: to reparametrize a model, another one is compiled.
_lock = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other thread is in such a block."""
    with _lock:
        yield


def _forget_other_threads() -> None:
    """Start a forked child, which has only the thread that forked, without waiting for others."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
