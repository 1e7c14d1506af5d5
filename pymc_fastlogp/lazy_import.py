"""Imports that are deferred to the first compilation of a graph with Numba: the kernel compiler takes as long to import as the rest of the package.

A change of PyTensor that affects only kernels shows at this import, too late to skip the registration of rewrites. The plugin then compiles without kernels.
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
    """Return an attribute as :func:`imported` does; if the import fails, warn once per reason and return None."""
    try:
        return imported(name)
    except (ImportError, AttributeError) as error:
        _warn(f"pymc_fastlogp compiles without kernels: {CHANGED} ({error}).")
        return None


@cache
def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=1)
