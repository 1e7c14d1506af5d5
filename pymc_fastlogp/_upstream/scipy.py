"""The addresses of BLAS and LAPACK in SciPy, which it gives to compiled code by capsules.

``scipy.linalg.cython_blas`` is made for Cython, which reads ``__pyx_capi__``. Numba documents the same way in.
"""

from ctypes import PYFUNCTYPE, c_char_p, c_void_p, py_object, pythonapi

from scipy.linalg import cython_blas, cython_lapack

MODULES = {
    "dgemm": cython_blas,
    "dgemv": cython_blas,
    "dtrsm": cython_blas,
    "dtrsv": cython_blas,
    "dpotrf": cython_lapack,
    "dpotri": cython_lapack,
    "dsyev": cython_lapack,
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
    module = cython_lapack if function in cython_lapack.__pyx_capi__ else cython_blas
    return module.__pyx_capi__[function]
