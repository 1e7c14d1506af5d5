"""Symbolic arrays of a graph during lowering: a shape, and a function from an index to an element expression.

Views of a buffer, such as slices, transposes and gathers, are index maps without a loop. Only results of arithmetic are stored
(:class:`pymc_fastlogp.kernel.lower.context.Context`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.kernel.ir.arithmetic import cast, const, flat_index, int64, plus
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Expr, Load, Size

Element = Callable[[tuple[Expr, ...]], Expr]


class UnsupportedError(Exception):
    """The kernel compiler cannot express a graph or a node, which is left to upstream."""


@dataclass(frozen=True, eq=False)
class Array:
    """The array of a variable of a graph.

    Attributes
    ----------
    shape : tuple of Size
        The shape.
    dtype : str
        The dtype.
    at : callable
        Takes an int64 expression for each axis, and returns the element.
    buffer : Buffer, optional
        The scratch buffer, if the array is all of it.
    facts : IndexFacts, optional
        Facts about the elements, if they are constant integers.
    data : ndarray, optional
        The elements, if they are embedded in the code.
    is_uninitialized : bool
        Whether the array is an ``AllocEmpty``, whose elements are written before they are read.
    """

    shape: tuple[Size, ...]
    dtype: str
    at: Element
    buffer: Buffer | None = None
    facts: IndexFacts | None = None
    data: np.ndarray | None = None
    is_uninitialized: bool = False

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def whole(self) -> Buffer:
        """The buffer of a stored array."""
        assert self.buffer is not None
        return self.buffer

    def view(self, shape: tuple[Size, ...], source_index: Callable) -> "Array":
        """Return a view: its element at ``index`` is the element of this array at ``source_index(index)``."""
        at = self.at
        facts = self.facts and IndexFacts(self.facts.minimum, self.facts.maximum)
        return Array(shape, self.dtype, lambda index: at(tuple(source_index(index))), facts=facts)


def buffer_array(buffer: Buffer, facts: IndexFacts | None = None) -> Array:
    """Return a buffer as an array."""
    if facts is not None and facts.is_range:
        return _range_of(buffer, facts)
    return Array(buffer.shape, buffer.dtype, lambda index: Load(buffer, index), buffer, facts)


def _range_of(buffer: Buffer, facts: IndexFacts) -> Array:
    """Return consecutive integers as arithmetic instead of loads, so that indexing by them is a slice."""
    first = int64(facts.minimum)

    def at(index: tuple[Expr, ...]) -> Expr:
        return cast(plus(flat_index(buffer.shape, index), first), buffer.dtype)

    return Array(buffer.shape, buffer.dtype, at, facts=facts)


def constant_array(buffer: Buffer, data: np.ndarray) -> Array:
    """Return a buffer of constants as an array; an element at a constant index is folded to a number."""
    facts = index_facts(data)

    def at(index: tuple[Expr, ...]) -> Expr:
        if facts is not None and facts.is_range:
            return _range_of(buffer, facts).at(index)
        position = tuple(int(i.value) for i in index if isinstance(i, Const))
        # A position out of bounds is never read: a check ends the kernel before.
        is_inside = all(0 <= i < n for i, n in zip(position, data.shape, strict=False))
        if len(position) == len(index) and is_inside:
            return const(data[position].item(), buffer.dtype)
        return Load(buffer, index)

    return Array(buffer.shape, buffer.dtype, at, facts=facts, data=data)


def scalar_array(value: float, dtype: str) -> Array:
    """Return a number as a 0-d array."""
    constant = const(value, dtype)
    facts = None
    if np.dtype(dtype).kind in "iu":
        facts = IndexFacts(int(value), int(value), is_unique=True)
    return Array((), dtype, lambda _: constant, facts=facts)
