"""The functions of BLAS and LAPACK that kernels call: those that SciPy offers to compiled code.

Code calls them by a name of ours, which :func:`bind` gives an address in each process that loads it. So neither
code nor its copy on disk contains an address. The functions are those that PyTensor calls, too.
"""

from collections.abc import Iterable
from ctypes import PYFUNCTYPE, c_char_p, c_void_p, py_object, pythonapi
from functools import cache

from llvmlite import binding as llvm
from scipy.linalg import cython_blas, cython_lapack

MODULES = {
    "dgemm": cython_blas,
    "dgemv": cython_blas,
    "dtrsm": cython_blas,
    "dtrsv": cython_blas,
    "dpotrf": cython_lapack,
}


_name_of = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def symbol(function: str) -> str:
    """Return the name by which code calls a function."""
    return f"pymc_fastlogp.{function}"


def bind(functions: Iterable[str]) -> None:
    """Make functions callable by name in this process."""
    for function in functions:
        capsule = _capsule(function)
        llvm.add_symbol(symbol(function), _pointer_of(capsule, _name_of(capsule)))


@cache
def is_available() -> bool:
    """Whether SciPy has all functions, with lengths of 32 bits."""
    try:
        # The name of a capsule is the signature of its function.
        signatures = [_name_of(_capsule(function)) for function in MODULES]
    except (AttributeError, KeyError):
        return False
    return all(b" int *" in signature for signature in signatures)


def _capsule(function: str) -> object:
    return MODULES[function].__pyx_capi__[function]
