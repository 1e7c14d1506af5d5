"""Lazy imports of the kernel compiler, by the first compilation of a graph with Numba. The compiler takes as long to import as the rest of the package.

An incompatible PyTensor may fail at this import, when the rewrites are registered already. The plugin then compiles without kernels.
"""

import importlib
import warnings
from functools import cache
from typing import Any

CHANGED = "PyTensor has changed within a tested line"


def import_attribute(name: str) -> Any:
    """Return an attribute of a module by its dotted name."""
    module, attribute = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), attribute)


@cache
def try_import_attribute(name: str) -> Any | None:
    """Return an attribute of a module, None if the import fails, with one warning per reason."""
    try:
        return import_attribute(name)
    except (ImportError, AttributeError) as error:
        _warn(f"pymc_fastlogp compiles without kernels: {CHANGED} ({error}).")
        return None


@cache
def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=1)
