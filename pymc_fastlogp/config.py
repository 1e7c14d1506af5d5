"""The switch of the rewrites: for the process, for a block of code, and for child processes.

The first of these that is set decides:

1. the innermost :func:`disabled` (or :func:`switched`) block of this thread or task,
2. the last call of :func:`enable` or :func:`disable`,
3. the environment variable ``PYMC_FASTLOGP`` at import: ``0``, ``false``, ``no`` or ``off`` starts
   the plugin switched off.

A forked child inherits the state. A spawned child starts from the environment variable, which is
therefore kept in step: the variable is ``0`` after :func:`disable` and inside :func:`disabled`.
Children of a fork server have the environment of the server's start; to switch the plugin off for
them, set the variable before the first child starts.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP"

OFF, ON = {"0", "false", "no", "off"}, {"1", "true", "yes", "on"}

_process_wide = os.environ.get(ENVIRONMENT_VARIABLE, "1").lower() not in OFF

# Open blocks of this thread or task, the innermost last: True switches on, False off.
_blocks: ContextVar[tuple[bool, ...]] = ContextVar("pymc_fastlogp_blocks", default=())

# Names of rewrites that are not applied in this thread or task.
_left_out: ContextVar[frozenset[str]] = ContextVar("pymc_fastlogp_left_out", default=frozenset())

# Number of open `disabled` blocks of all threads. If positive, new processes start switched off:
# a block may have started them, and a result without the plugin is never wrong.
_open_off_blocks = 0
_lock = threading.Lock()


def enable() -> None:
    """Switch the plugin on for the whole process; a surrounding :func:`disabled` still wins."""
    _set_process_wide(True)


def disable() -> None:
    """Switch the plugin off for the whole process: graphs compile as without the plugin."""
    _set_process_wide(False)


@contextmanager
def disabled() -> Iterator[None]:
    """Switch the plugin off for a block of code, or, as a decorator, for a function.

    Other threads are not affected. Threads that are started inside are affected if Python lets
    them inherit context variables. Blocks nest. As a decorator of an ``async`` function or a generator, the block ends
    before the function runs: write the block inside of the function instead.

    Examples
    --------
    >>> import pymc_fastlogp
    >>> with pymc_fastlogp.disabled():
    ...     pymc_fastlogp.is_enabled()
    False
    """
    with switched(False):
        yield


def is_switched_on() -> bool:
    """Return whether the plugin is switched on in this thread or task."""
    blocks = _blocks.get()
    return blocks[-1] if blocks else _process_wide


@contextmanager
def switched(on: bool) -> Iterator[None]:
    """Switch the plugin on or off for a block of code in this thread or task."""
    token = _blocks.set((*_blocks.get(), on))
    try:
        _count_off_block(0 if on else 1)
        yield
    finally:
        _count_off_block(0 if on else -1)
        _blocks.reset(token)


def is_left_out(name: str) -> bool:
    """Return whether the rewrite of a name is not applied in this thread or task, though the plugin may be on."""
    return name in _left_out.get()


@contextmanager
def leaving_out(names: Iterable[str]) -> Iterator[None]:
    """Apply no rewrite of these names in a block of code in this thread or task."""
    token = _left_out.set(_left_out.get() | {*names})
    try:
        yield
    finally:
        _left_out.reset(token)


def _set_process_wide(on: bool) -> None:
    global _process_wide
    with _lock:
        _process_wide = on
        _tell_child_processes()


def _count_off_block(change: int) -> None:
    global _open_off_blocks
    with _lock:
        _open_off_blocks += change
        _tell_child_processes()


def _tell_child_processes() -> None:
    os.environ[ENVIRONMENT_VARIABLE] = "1" if _process_wide and not _open_off_blocks else "0"


def _forget_other_threads() -> None:
    """Discard the blocks of other threads in a forked child, where these threads do not exist."""
    global _lock, _open_off_blocks
    _lock = threading.Lock()
    _open_off_blocks = _blocks.get().count(False)
    _tell_child_processes()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
