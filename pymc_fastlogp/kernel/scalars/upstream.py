"""Scalar Ops without a vector form: call PyTensor's scalar function for each lane.

The code calls ``double f(double, ...)`` by a name that is made from the class of the Op. It contains no addresses, so it can be cached
on disk. :mod:`pymc_fastlogp.kernel.native.scalar_library` supplies the functions to the linker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel.llvm import F64, I32, declared
from pymc_fastlogp.kernel.vecmath.vector import Floats


@dataclass(frozen=True)
class External:
    """A function that must be linked. Its arguments and its result are doubles."""

    op: type[ScalarOp]
    n_arguments: int

    @property
    def symbol(self) -> str:
        """Name of the function, the same in every process."""
        return f"pymc_fastlogp.scalar.{self.op.__qualname__}.{self.n_arguments}"

    @property
    def signature(self) -> ir.FunctionType:
        """LLVM type of the function."""
        return ir.FunctionType(F64, [F64] * self.n_arguments)


def by_lane(op: type[ScalarOp]) -> Callable[..., Floats]:
    """Return a function that appends one call for each lane."""
    return lambda *args: _call(External(op, len(args)), args)


def _call(external: External, args: Sequence[Floats]) -> Floats:
    builder, vector = args[0].builder, args[0].value.type
    function = declared(builder.module, external.symbol, external.signature)
    result = ir.Constant(vector, ir.Undefined)
    for lane in map(I32, range(vector.count)):
        scalars = [builder.extract_element(x.value, lane) for x in args]
        result = builder.insert_element(result, builder.call(function, scalars), lane)
    return Floats(builder, result)
