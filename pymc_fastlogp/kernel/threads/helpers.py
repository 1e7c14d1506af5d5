"""Helper threads, which run tasks of the kernels that they are attached to."""

import atexit
import ctypes
import os
import threading
import time
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from pymc_fastlogp.kernel.emit.parallel import HELPERS
from pymc_fastlogp.kernel.native.loaded_code import LoadedCode, engine
from pymc_fastlogp.kernel.native.object_files import object_code_of
from pymc_fastlogp.kernel.threads.protocol import (
    HEADER,
    HELP_SYMBOL,
    LINE,
    N_SLOTS,
    RUN,
    RUN_SYMBOL,
    SLOT,
    STOP_SYMBOL,
    THREADS,
    WORD,
    is_supported,
    protocol_module,
)

NAME = "pymc_fastlogp helper"
# Seconds that the end of the interpreter waits for helpers.
LONGEST_WAIT = 1.0

_all: WeakSet["Helpers"] = WeakSet()


class Helpers:
    """Threads that wait for tasks in machine code, without Python's global lock.

    Parameters
    ----------
    n_threads : int
        Number of threads, which start now.
    code : LoadedCode
        Code of a kernel, which has to outlive the object. Only this code uses the threads.

    Attributes
    ----------
    threads : list of threading.Thread
        The threads.
    """

    def __init__(self, n_threads: int, code: LoadedCode):
        self._functions = _functions()
        words = np.zeros(HEADER + N_SLOTS * SLOT + LINE, np.int64)
        # From the first whole cache line.
        self._words = words[-words.ctypes.data // WORD % LINE :]
        self._words[RUN], self._words[THREADS] = self._functions.run, n_threads + 1
        self._variable = ctypes.c_void_p.from_address(code.variable(HELPERS))
        self.threads = [
            threading.Thread(
                target=_help, args=(self._functions.help, self._words), name=NAME, daemon=True
            )
            for _ in range(n_threads)
        ]
        _all.add(self)
        for thread in self.threads:
            thread.start()
        self._variable.value = self._words.ctypes.data

    def detach(self) -> None:
        """Let the kernel run alone from now on."""
        self._variable.value = None

    def close(self) -> None:
        """Stop the threads, which end soon. Tasks of a kernel that runs now are finished."""
        self.detach()
        self._functions.stop(self._words.ctypes.data)


def has_tasks(code: LoadedCode) -> bool:
    """Return whether helpers can run a part of a kernel on this platform."""
    return is_supported() and bool(code.variable(HELPERS))


class _Functions(NamedTuple):
    """Functions of the protocol; the code stays loaded, since a thread may be in it at the end of the process."""

    run: int
    help: Any
    stop: Any
    code: LoadedCode


@cache
def _functions() -> _Functions:
    loaded = engine(object_code_of(protocol_module()))
    run, help_, stop = (LoadedCode(loaded, x) for x in (RUN_SYMBOL, HELP_SYMBOL, STOP_SYMBOL))
    # A call by ctypes releases Python's global lock.
    type_ = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return _Functions(run.address, type_(help_.address), type_(stop.address), run)


def _help(function: Any, words: np.ndarray) -> None:
    """Run tasks until the helpers are closed. The thread owns the memory."""
    function(words.ctypes.data)


def _detach_all() -> None:
    """Detach helpers in a forked child, which has no other threads."""
    for helpers in _all:
        helpers.detach()


@atexit.register
def _close_all() -> None:
    """Close helpers at the end of the interpreter, before it frees what their threads use."""
    open_ = list(_all)
    for helpers in open_:
        helpers.close()
    end = time.monotonic() + LONGEST_WAIT
    for thread in (thread for helpers in open_ for thread in helpers.threads):
        thread.join(max(end - time.monotonic(), 0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_all)
