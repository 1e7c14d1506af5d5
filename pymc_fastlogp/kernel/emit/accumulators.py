"""The operations that accumulate: what leaves a value as it is, and how lanes are combined."""

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from pytensor.scalar.basic import AND, OR, XOR, Add, Maximum, Minimum, Mul, ScalarOp

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.emit.idioms import shuffle
from pymc_fastlogp.kernel.vecmath.vector import Lanes


def _least(dtype: str) -> float | int | bool:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return -np.inf
    return False if kind == "b" else int(np.iinfo(dtype).min)


def _largest(dtype: str) -> float | int | bool:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return np.inf
    return True if kind == "b" else int(np.iinfo(dtype).max)


def _all_bits(dtype: str) -> int | bool:
    return True if dtype == "bool" else int(np.asarray(-1).astype(dtype))


# -0.0 + x is x for every x; 0.0 + -0.0 is not.
IDENTITIES: dict[type[ScalarOp], Callable[[str], float | int | bool]] = {
    Add: lambda dtype: -0.0 if np.dtype(dtype).kind == "f" else 0,
    Mul: lambda dtype: 1,
    Maximum: _least,
    Minimum: _largest,
    AND: _all_bits,
    OR: lambda dtype: 0,
    XOR: lambda dtype: 0,
}


def identity(builder: ir.IRBuilder, op: ScalarOp, dtype: str, width: int) -> Lanes:
    """Return, in all lanes, what leaves every value as it is."""
    return scalars.constant(builder, width, IDENTITIES[type(op)](dtype), dtype)


def combine(op: ScalarOp, dtype: str, first: Lanes, second: Lanes) -> Lanes:
    """Return the operation on two values, in each lane."""
    return scalars.emit(op, [first, second], [dtype, dtype], dtype)


def combine_lanes(op: ScalarOp, dtype: str, lanes: Lanes) -> Lanes:
    """Return the operation on all lanes as one lane; halves are combined until one is left."""
    form, builder = type(lanes), lanes.builder
    while lanes.width > 1:
        half = lanes.width // 2
        low, high = (
            form(builder, shuffle(builder, lanes.value, lanes.value, part))
            for part in (range(half), range(half, lanes.width))
        )
        lanes = combine(op, dtype, low, high)
    return lanes
