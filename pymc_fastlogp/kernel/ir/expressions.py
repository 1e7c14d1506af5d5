"""Buffers and the scalar expressions of the loop IR, see :mod:`pymc_fastlogp.kernel.ir.loops`."""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.ir.hash_consing import Interned


class Role(Enum):
    """Role of a buffer: input, output or temporary."""

    INPUT = "input"
    CONSTANT = "constant"
    SCRATCH = "scratch"
    OUTPUT = "output"


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array in memory, C-contiguous unless it is an input.

    Its name is unique in a program, its dtype is as NumPy calls it; a constant has its elements in C order as data.
    """

    name: str
    dtype: str
    shape: tuple["Size", ...]
    role: Role
    data: bytes = field(default=b"", repr=False)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Const(Interned):
    """A number; a float64 stands for a float32 too."""

    value: float | int | bool
    dtype: str


@dataclass(frozen=True, eq=False)
class Index(Interned):
    """The index of the loop along one of its axes, an int64; axis 0 is the outermost."""

    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Length(Interned):
    """The length of an axis of an input, an int64 known when the kernel is called."""

    input: int
    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class Load(Interned):
    """An element of a buffer. The index is in bounds and not negative."""

    buffer: Buffer
    index: tuple["Expr", ...]

    @property
    def dtype(self) -> str:
        """The type of the buffer."""
        return self.buffer.dtype


@dataclass(frozen=True, eq=False)
class Compute(Interned):
    """A scalar Op of PyTensor applied to expressions; never a Composite. The dtype is that of the result."""

    op: ScalarOp
    args: tuple["Expr", ...]
    dtype: str


Expr = Const | Index | Length | Load | Compute
# The length of an axis. A static one is an int; else an int64 expression of Length, Const and Compute.
Size = int | Expr


def as_size(expr: Expr) -> Size:
    """Return the length that an expression is, an int where it is constant."""
    return int(expr.value) if isinstance(expr, Const) else expr


def as_expr(size: Size) -> Expr:
    """Return a length as an expression."""
    return size if not isinstance(size, int) else Const(size, "int64")


def itemsize(dtype: str) -> int:
    """Return the bytes of an element."""
    return np.dtype(dtype).itemsize
