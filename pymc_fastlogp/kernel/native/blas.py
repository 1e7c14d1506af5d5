"""BLAS and LAPACK functions for kernels, from the Cython interface of SciPy. PyTensor calls the same functions.

Code calls a function by a symbol, which :func:`bind` maps to an address in each process that loads the code. So neither
code in memory nor its copy on disk contains an address.
"""

from collections.abc import Iterable
from functools import cache

from llvmlite import binding as llvm

from pymc_fastlogp._upstream.scipy import address, signature

FUNCTIONS = ("dgemm", "dgemv", "dtrsm", "dtrsv", "dpotrf", "dpotri", "dsyev")


def symbol(function: str) -> str:
    """Return the symbol by which machine code calls a function."""
    return f"pymc_fastlogp.{function}"


def bind(functions: Iterable[str]) -> None:
    """Map the symbols of functions to their addresses in this process."""
    for function in functions:
        llvm.add_symbol(symbol(function), address(function))


@cache
def is_available() -> bool:
    """Return whether SciPy exports all functions, with lengths of 32 bits."""
    try:
        return all(b" int *" in signature(function) for function in FUNCTIONS)
    except (ImportError, AttributeError, KeyError):
        return False
