"""Arrays while a graph is lowered: a shape, and a rule that gives each element.

A view of a buffer, such as a slice, a transpose or a gather, is an index map and costs nothing until a loop
reads it. Only what computes is stored, see :class:`pymc_fastlogp.kernel.lower.context.Context`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_fastlogp.analysis.index_facts import IndexFacts, index_facts
from pymc_fastlogp.kernel.ir.arithmetic import cast, const, flat_index, int64, plus
from pymc_fastlogp.kernel.ir.expressions import Buffer, Const, Expr, Load, Size

Element = Callable[[tuple[Expr, ...]], Expr]


class UnsupportedError(Exception):
    """A graph, or one node of it, has what the kernel compiler does not cover; it stays with upstream."""


@dataclass(frozen=True, eq=False)
class Array:
    """An array of a graph.

    Attributes
    ----------
    at : callable
        Takes an int64 expression for each axis, returns the element.
    buffer : Buffer, optional
        Where the array is a whole scratch buffer, that buffer.
    facts : IndexFacts, optional
        What is known of the elements, where they are constant integers.
    data : ndarray, optional
        The elements, where they are embedded in the code.
    is_unset : bool
        Whether the elements are those that ``AllocEmpty`` leaves as they are: each is written before it is read.
    """

    shape: tuple[Size, ...]
    dtype: str
    at: Element
    buffer: Buffer | None = None
    facts: IndexFacts | None = None
    data: np.ndarray | None = None
    is_unset: bool = False

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def whole(self) -> Buffer:
        """The buffer of an array that was stored."""
        assert self.buffer is not None
        return self.buffer

    def view(self, shape: tuple[Size, ...], source_index: Callable) -> "Array":
        """Return the array whose element at an index is this one's at ``source_index`` of it."""
        at = self.at
        facts = self.facts and IndexFacts(self.facts.minimum, self.facts.maximum)
        return Array(shape, self.dtype, lambda index: at(tuple(source_index(index))), facts=facts)


def of_buffer(buffer: Buffer, facts: IndexFacts | None = None) -> Array:
    """Return the whole of a buffer as an array."""
    if facts is not None and facts.is_range:
        return _range_of(buffer, facts)
    return Array(buffer.shape, buffer.dtype, lambda index: Load(buffer, index), buffer, facts)


def _range_of(buffer: Buffer, facts: IndexFacts) -> Array:
    """Return consecutive integers without loading them, so that an index by them is a slice."""
    first = int64(facts.minimum)

    def at(index: tuple[Expr, ...]) -> Expr:
        return cast(plus(flat_index(buffer.shape, index), first), buffer.dtype)

    return Array(buffer.shape, buffer.dtype, at, facts=facts)


def of_constant(buffer: Buffer, data: np.ndarray) -> Array:
    """Return a buffer of constants as an array; an element at a constant index is a number."""
    facts = index_facts(data)

    def at(index: tuple[Expr, ...]) -> Expr:
        if facts is not None and facts.is_range:
            return _range_of(buffer, facts).at(index)
        position = tuple(int(i.value) for i in index if isinstance(i, Const))
        # What is beside the array is never read: a check before says so.
        is_inside = all(0 <= i < n for i, n in zip(position, data.shape, strict=False))
        if len(position) == len(index) and is_inside:
            return const(data[position].item(), buffer.dtype)
        return Load(buffer, index)

    return Array(buffer.shape, buffer.dtype, at, facts=facts, data=data)


def of_number(value: float, dtype: str) -> Array:
    """Return a number as an array without axes."""
    constant = const(value, dtype)
    facts = None
    if np.dtype(dtype).kind in "iu":
        facts = IndexFacts(int(value), int(value), is_unique=True)
    return Array((), dtype, lambda _: constant, facts=facts)
