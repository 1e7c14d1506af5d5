"""An explicit, reversible patch: ``pm.sample`` becomes :func:`pymc_fastlogp.sample` for libraries that call it for their users.

The import of the package patches nothing. :func:`patch_pymc` replaces attributes of modules, the rows of :data:`PATCHES` and
:data:`NUTPIE_PATCHES`; :func:`unpatch_pymc` puts the originals back. The convention follows ``sklearnex.patch_sklearn``.

A function that was imported by name before the patch, as in ``from pymc import sample``, stays PyMC's own.
"""

import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from types import ModuleType
from typing import Any

from pymc_fastlogp.config import ON

ENVIRONMENT_VARIABLE = "PYMC_FASTLOGP_PATCH"


def _sample(*args: Any, **kwargs: Any) -> Any:
    """Call :func:`pymc_fastlogp.sample`; ``nuts_sampler="pymc"``, which Bambi passes unless its user chooses, is no choice here."""
    if kwargs.get("nuts_sampler") == "pymc":
        kwargs["nuts_sampler"] = None
    return _sampling().sample(*args, **kwargs)


def _compile_pymc_model(*args: Any, **kwargs: Any) -> Any:
    """Call :func:`pymc_fastlogp.compile_pymc_model`; data stay shared unless the caller freezes them, as in nutpie."""
    return _sampling().compile_pymc_model(*args, **{"freeze_model": False} | kwargs)


def _sampling() -> ModuleType:
    """Import what samples: above this module, and needed by calls alone."""
    return importlib.import_module("pymc_fastlogp.sampling")


@dataclass(frozen=True, eq=False)
class Patch:
    """Replacement of one attribute of a module.

    Attributes
    ----------
    module, attribute : str
        Name of the module, and of the function in it.
    ours : callable
        The function that is called instead.
    """

    module: str
    attribute: str
    ours: Callable[..., Any]

    @property
    def name(self) -> str:
        """Dotted name of the attribute."""
        return f"{self.module}.{self.attribute}"


PATCHES = (
    Patch("pymc", "sample", _sample),
    Patch("pymc.sampling", "sample", _sample),
    Patch("pymc.sampling.mcmc", "sample", _sample),
)
NUTPIE_PATCHES = (
    Patch("nutpie", "compile_pymc_model", _compile_pymc_model),
    Patch("nutpie.compile_pymc", "compile_pymc_model", _compile_pymc_model),
)

# The original functions by the patch that replaced them.
_originals: dict[Patch, Callable[..., Any]] = {}
_lock = threading.RLock()


def patch_pymc(*, nutpie: bool = False) -> tuple[str, ...]:
    """Make ``pm.sample`` call :func:`pymc_fastlogp.sample`, for the whole process.

    Libraries that call ``pm.sample`` for their users, such as Bambi's ``model.fit``, then compile and sample faster. Signature, docstring
    and result are those of ``pm.sample``; a model that :func:`~pymc_fastlogp.sample` leaves to PyMC is sampled by PyMC. The argument
    ``nuts_sampler="pymc"``, which libraries pass by default, counts as no choice: nutpie samples.
    A name imported before the patch, as in ``from pymc import sample``, stays PyMC's own function. Patching again changes nothing.

    Parameters
    ----------
    nutpie : bool
        Whether to replace ``nutpie.compile_pymc_model``, too, by :func:`pymc_fastlogp.compile_pymc_model`. Data stay shared, as in
        nutpie, unless ``freeze_model=True`` is given.

    Returns
    -------
    tuple of str
        Names of all functions that are patched now.

    Raises
    ------
    RuntimeError
        If a function is not where this release expects it; then nothing is patched.

    Examples
    --------
    >>> import pymc_fastlogp
    >>> pymc_fastlogp.patch_pymc()
    ('pymc.sample', 'pymc.sampling.sample', 'pymc.sampling.mcmc.sample')
    >>> pymc_fastlogp.unpatch_pymc()
    """
    wanted = PATCHES + (NUTPIE_PATCHES if nutpie else ())
    with _lock:
        found = {patch: _function(patch) for patch in wanted if patch not in _originals}
        # One function for all names of one original, so that it is pickled by its name.
        made = {original: _replacement(patch, original) for patch, original in found.items()}
        for patch, original in found.items():
            _originals[patch] = original
            _replace_attribute(patch, made[original])
        return patched_names()


def unpatch_pymc() -> None:
    """Put all functions back that :func:`patch_pymc` has replaced; without a patch, do nothing."""
    with _lock:
        _restore(tuple(_originals))


@contextmanager
def patched_pymc(*, nutpie: bool = False) -> Iterator[None]:
    """Patch PyMC, see :func:`patch_pymc`, for a block of code; on exit, restore the state before the block.

    The patch is seen by all threads of the process.

    Examples
    --------
    >>> import pymc_fastlogp
    >>> with pymc_fastlogp.patched_pymc():
    ...     pass  # model.fit() of a library
    """
    with _lock:
        before = set(_originals)
        patch_pymc(nutpie=nutpie)
    try:
        yield
    finally:
        with _lock:
            _restore(tuple(patch for patch in _originals if patch not in before))


def patched_names() -> tuple[str, ...]:
    """Return the names of all functions that are patched now."""
    with _lock:
        return tuple(patch.name for patch in _originals)


def is_wanted_by_environment() -> bool:
    """Return whether the environment variable asks for the patch at import."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "").lower() in ON


def unpatched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the original of a function, which is the function itself unless :func:`patch_pymc` has made it."""
    return getattr(function, "_pymc_fastlogp_original", function)


def _function(patch: Patch) -> Callable[..., Any]:
    try:
        return getattr(importlib.import_module(patch.module), patch.attribute)
    except (ImportError, AttributeError):
        raise RuntimeError(
            f"{patch.name} is not there, so nothing is patched: this release of {patch.module.partition('.')[0]} "
            "moved it. Call pymc_fastlogp.sample instead."
        ) from None


def _replacement(patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature and the docstring of the original one."""

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return patch.ours(*args, **kwargs)

    update_wrapper(replacement, original)
    replacement._pymc_fastlogp_original = original  # type: ignore[attr-defined]
    return replacement


def _replace_attribute(patch: Patch, function: Callable[..., Any]) -> None:
    setattr(importlib.import_module(patch.module), patch.attribute, function)


def _restore(patches: tuple[Patch, ...]) -> None:
    for patch in patches:
        _replace_attribute(patch, _originals.pop(patch))
