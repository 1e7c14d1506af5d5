"""Programs written by hand, for the tests of the emitter."""

from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Const,
    Expr,
    Index,
    Length,
    Load,
    Role,
    Size,
)
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop, Program, Store
from pymc_fastlogp.kernel.ir.traversal import expressions

F64 = "float64"
I0, I1, I2 = Index(0), Index(1), Index(2)
LENGTHS = [0, 1, 7, 8, 15, 16, 17, 33, 1000]


def given(name: str, *shape: Size, dtype: str = F64) -> Buffer:
    return Buffer(name, dtype, shape, Role.INPUT)


def output(name: str, *shape: Size, dtype: str = F64) -> Buffer:
    return Buffer(name, dtype, shape, Role.OUTPUT)


def scratch(name: str, *shape: Size, dtype: str = F64) -> Buffer:
    return Buffer(name, dtype, shape, Role.SCRATCH)


def program(*steps: Loop, inputs: tuple[Buffer, ...] = (), errors: tuple = ()) -> Program:
    """Return the program of these loops; other buffers than ``inputs`` in order of appearance."""
    used: dict[Buffer, None] = dict.fromkeys(inputs)
    for step in steps:
        used |= {e.buffer: None for e in expressions(step) if isinstance(e, Load)}
        used |= {s.buffer: None for s in step.body if isinstance(s, Store | Accumulate)}
    of = {role: tuple(b for b in used if b.role is role) for role in Role}
    return Program(
        of[Role.INPUT], of[Role.OUTPUT], of[Role.SCRATCH], of[Role.CONSTANT], steps, errors
    )


def compute(op: ScalarOp, *args: Expr, dtype: str = F64) -> Compute:
    return Compute(op, args, dtype)


def fill(buffer: Buffer, value: float | int | bool = 0.0) -> Loop:
    """Return the loop that stores a number in all elements."""
    index = tuple(Index(axis) for axis in range(buffer.ndim))
    return Loop(buffer.shape, (Store(buffer, index, Const(value, buffer.dtype)),))


def sizes(*lengths: int, static: bool, of: int = 0) -> tuple[Size, ...]:
    """Return lengths as they are, or as the lengths of the axes of an input."""
    return lengths if static else tuple(Length(of, axis) for axis in range(len(lengths)))
