"""The addresses of BLAS and LAPACK in SciPy, which it gives to compiled code by capsules.

``scipy.linalg.cython_blas`` is made for Cython, which reads ``__pyx_capi__``. Numba documents the same way in.

``scipy.linalg`` takes long to import, so it is imported when a function is first asked for: a model without matrices does without.
"""

from ctypes import PYFUNCTYPE, c_char_p, c_void_p, py_object, pythonapi
from importlib import import_module

# Where each function is, in ``scipy.linalg``.
MODULES = {
    "dgemm": "cython_blas",
    "dgemv": "cython_blas",
    "dtrsm": "cython_blas",
    "dtrsv": "cython_blas",
    "dpotrf": "cython_lapack",
    "dpotri": "cython_lapack",
    "dsyev": "cython_lapack",
}

_name_of = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def signature(function: str) -> bytes:
    """Return the C type of a function, which is the name of its capsule."""
    return _name_of(_capsule(function))


def address(function: str) -> int:
    """Return the address of a function in this process."""
    return _pointer_of(_capsule(function), signature(function))


def _capsule(function: str) -> object:
    module = import_module(f"scipy.linalg.{MODULES[function]}")
    return module.__pyx_capi__[function]
