"""The functions of BLAS and LAPACK that kernels call: those that SciPy offers to compiled code.

Code calls them by a name of ours, which :func:`bind` gives an address in each process that loads it. So neither
code nor its copy on disk contains an address. The functions are those that PyTensor calls, too.
"""

from collections.abc import Iterable
from functools import cache

from llvmlite import binding as llvm

from pymc_fastlogp._upstream.scipy import address, signature

FUNCTIONS = ("dgemm", "dgemv", "dtrsm", "dtrsv", "dpotrf", "dpotri", "dsyev")


def symbol(function: str) -> str:
    """Return the name by which code calls a function."""
    return f"pymc_fastlogp.{function}"


def bind(functions: Iterable[str]) -> None:
    """Make functions callable by name in this process."""
    for function in functions:
        llvm.add_symbol(symbol(function), address(function))


@cache
def is_available() -> bool:
    """Return whether SciPy has all functions, with lengths of 32 bits."""
    try:
        return all(b" int *" in signature(function) for function in FUNCTIONS)
    except (ImportError, AttributeError, KeyError):
        return False
