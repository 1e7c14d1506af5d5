"""Addresses of the BLAS and LAPACK functions of SciPy, from the capsules that SciPy exports for compiled code.

``scipy.linalg.cython_blas`` is an interface for Cython, which reads ``__pyx_capi__``. Numba documents the same access.

``scipy.linalg`` takes long to import, so it is imported at the first request for a function: a model without matrices does not need it.
"""

from ctypes import PYFUNCTYPE, c_char_p, c_void_p, py_object, pythonapi
from functools import cache

_name_of = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def signature(function: str) -> bytes:
    """Return the C signature of a function, which is the name of its capsule."""
    return _name_of(_capsule(function))


def address(function: str) -> int:
    """Return the address of a function in this process."""
    return _pointer_of(_capsule(function), signature(function))


@cache
def _capsules() -> dict[str, object]:
    from scipy.linalg import cython_blas, cython_lapack

    return cython_lapack.__pyx_capi__ | cython_blas.__pyx_capi__


def _capsule(function: str) -> object:
    return _capsules()[function]
