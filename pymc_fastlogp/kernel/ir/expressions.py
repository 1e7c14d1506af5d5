"""Buffers and scalar expressions of the loop IR (:mod:`pymc_fastlogp.kernel.ir.loops`).

Expressions are hash-consed: equal expressions are the same object.
"""

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

import numpy as np
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.analysis.index_facts import IndexFacts


class Interned:
    """Base class of frozen dataclasses whose equal instances are the same object."""

    _instances: ClassVar[WeakValueDictionary] = WeakValueDictionary()
    _lock: ClassVar = threading.Lock()

    def __new__(cls, *values: Any) -> Self:
        """Return the live instance with these values, or a new one."""
        # Types and signs are part of the key: 1 == 1.0 == True and 0.0 == -0.0, but these constants differ.
        key = (cls, *map(_as_key, values))
        with cls._lock:  # otherwise two threads could create equal instances
            instance = cls._instances.get(key)
            if instance is None:
                instance = cls._instances[key] = super().__new__(cls)
        return instance


def _as_key(value: Any) -> Any:
    return (type(value), repr(value)) if isinstance(value, bool | int | float) else value


class Role(Enum):
    """Role of a buffer: input, embedded constant, temporary or output."""

    INPUT = "input"
    CONSTANT = "constant"
    SCRATCH = "scratch"
    OUTPUT = "output"


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in memory, C-contiguous unless it is an input.

    Attributes
    ----------
    name : str
        A name that is unique in a program.
    dtype : str
        The NumPy dtype.
    shape : tuple of Size
        The shape.
    role : Role
        The role.
    data : bytes
        The elements of a constant in C order.
    facts : IndexFacts, optional
        Facts about the elements of an integer input.
    """

    name: str
    dtype: str
    shape: tuple["Size", ...]
    role: Role
    data: bytes = field(default=b"", repr=False)
    facts: IndexFacts | None = field(default=None, repr=False)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Const(Interned):
    """A number. The value of a float32 constant is stored as a Python float, too."""

    value: float | int | bool
    dtype: str


@dataclass(frozen=True, eq=False)
class Index(Interned):
    """The int64 index of a loop along one of its axes; axis 0 is the outermost."""

    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Length(Interned):
    """The int64 length of an axis of an input, known when the kernel is called."""

    input: int
    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Load(Interned):
    """An element of a buffer, at an index that is in bounds and not negative."""

    buffer: Buffer
    index: tuple["Expr", ...]

    @property
    def dtype(self) -> str:
        """The dtype of the buffer."""
        return self.buffer.dtype


@dataclass(frozen=True, eq=False)
class Compute(Interned):
    """The result, of the given dtype, of a PyTensor scalar Op other than Composite applied to expressions."""

    op: ScalarOp
    args: tuple["Expr", ...]
    dtype: str


Expr = Const | Index | Length | Load | Compute
# The length of an axis: an int if static, otherwise an int64 expression of Length, Const, Compute and Load of inputs, and of the counter of a
# parallel loop around.
Size = int | Expr


def as_size(expr: Expr) -> Size:
    """Return an expression as a length, an int if the expression is constant."""
    return int(expr.value) if isinstance(expr, Const) else expr


def as_expr(size: Size) -> Expr:
    """Return a length as an expression."""
    return size if not isinstance(size, int) else Const(size, "int64")


def itemsize(dtype: str) -> int:
    """Return the size of an element in bytes."""
    return np.dtype(dtype).itemsize
