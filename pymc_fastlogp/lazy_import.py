"""Imports that wait until a graph is compiled with Numba: the compiler of kernels takes as long to import as the rest.

That PyTensor has changed in a part that only kernels need shows here, too late to register nothing. What cannot be imported is
then gone without.
"""

import importlib
import warnings
from functools import cache
from typing import Any

CHANGED = "PyTensor has changed within a tested line"


def imported(name: str) -> Any:
    """Return an attribute of a module by its dotted name."""
    module, attribute = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), attribute)


@cache
def imported_late(name: str) -> Any | None:
    """Return what :func:`imported` does; where that is not possible, warn of each reason once and return None."""
    try:
        return imported(name)
    except (ImportError, AttributeError) as error:
        _warn(f"pymc_fastlogp compiles without kernels: {CHANGED} ({error}).")
        return None


@cache
def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=1)
