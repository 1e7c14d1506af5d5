"""The statement that calls a library, see :mod:`pymc_fastlogp.kernel.ir.loops`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymc_fastlogp.kernel.ir.loops import Buffer, Expr

# Arguments of a call that are not expressions, besides letters: what it updates, and whether it failed.
RESULT, INFO = "result", "info"


@dataclass(frozen=True)
class Call:
    """``function(*arguments)``, where BLAS or LAPACK updates a matrix or vector in place.

    Attributes
    ----------
    buffer : Buffer
        What is updated; nothing else is written.
    index : tuple of Expr
        Its first element; the others have the same leading indices.
    function : str
        The name in :mod:`pymc_fastlogp.kernel.native.blas`.
    arguments : tuple of str or Expr
        In its order: a letter, a length, a float64 constant, a ``Load`` of the first element of a float64 array
        that is read, :data:`RESULT` or :data:`INFO`.
    failed : tuple of Expr, optional
        The element of the buffer that becomes nan where :data:`INFO` says that the function failed.
    """

    buffer: "Buffer"
    index: "tuple[Expr, ...]"
    function: str
    arguments: "tuple[str | Expr, ...]"
    failed: "tuple[Expr, ...]" = ()
