"""Load and store instructions: of one element, of neighbors in memory, or of one element at any address per lane.

In a partial vector only the lanes of the domain, in which the mask is true, access memory. A load returns 1 in all other lanes, which is
safe as a divisor.
"""

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.emit.accumulators import combine
from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.emit.bounds import require_inside
from pymc_fastlogp.kernel.ir.expressions import itemsize
from pymc_fastlogp.kernel.llvm import I1, I32, POINTER, declared, filled
from pymc_fastlogp.kernel.vecmath.vector import Lanes, Mask


def store_one(builder: ir.IRBuilder, array: Array, address: ir.Value, value: Lanes) -> None:
    """Store the value of one lane."""
    store_neighbors(builder, array, address, scalars.to_memory(value, array.dtype), None)


def update_one(
    builder: ir.IRBuilder, array: Array, address: ir.Value, op: ScalarOp, value: Lanes
) -> None:
    """Combine one element in memory with the value of one lane."""
    loaded = load_neighbors(builder, array, address, 1, None)
    before = scalars.from_memory(builder, loaded, array.dtype)
    store_one(builder, array, address, combine(op, array.dtype, before, value))


def load_neighbors(
    builder: ir.IRBuilder, array: Array, address: ir.Value, width: int, mask: Mask | None
) -> ir.Value:
    """Load ``width`` consecutive elements that start at an address."""
    require_inside(builder, array, address, width, mask)
    vector = ir.VectorType(array.element, width)
    if mask is not None:
        given = [address, _alignment(array), mask.value, _ones(vector)]
        return _masked(builder, "load", vector, vector, given)
    loaded = builder.load(address, typ=vector)
    loaded.align = itemsize(array.dtype)
    return loaded


def store_neighbors(
    builder: ir.IRBuilder, array: Array, address: ir.Value, content: ir.Value, mask: Mask | None
) -> None:
    """Store a vector in consecutive elements that start at an address."""
    require_inside(builder, array, address, content.type.count, mask)
    if mask is None:
        builder.store(content, address, align=itemsize(array.dtype))
        return
    given = [content, address, _alignment(array), mask.value]
    _masked(builder, "store", content.type, ir.VoidType(), given)


def gather(builder: ir.IRBuilder, array: Array, addresses: ir.Value, mask: Mask | None) -> ir.Value:
    """Load the element at the address of each lane."""
    require_inside(builder, array, addresses, addresses.type.count, mask)
    vector = ir.VectorType(array.element, addresses.type.count)
    given = [addresses, _alignment(array), _lanes_of(mask, vector), _ones(vector)]
    return _masked(builder, "gather", vector, vector, given)


def scatter(
    builder: ir.IRBuilder,
    array: Array,
    addresses: ir.Value,
    content: ir.Value,
    mask: Mask | None,
) -> None:
    """Store the content of each lane at the address of this lane."""
    require_inside(builder, array, addresses, addresses.type.count, mask)
    given = [content, addresses, _alignment(array), _lanes_of(mask, content.type)]
    _masked(builder, "scatter", content.type, ir.VoidType(), given)


def _masked(
    builder: ir.IRBuilder,
    kind: str,
    vector: ir.VectorType,
    result: ir.Type,
    arguments: list[ir.Value],
) -> ir.Value:
    """Append a call of the intrinsic ``llvm.masked.kind``, whose name includes the types of the content and of the addresses."""
    pointers = "p0" if kind in ("load", "store") else f"v{vector.count}p0"
    name = f"llvm.masked.{kind}.v{vector.count}{vector.element.intrinsic_name}.{pointers}"
    types = [POINTER if isinstance(a.type, ir.PointerType) else a.type for a in arguments]
    return builder.call(declared(builder.module, name, ir.FunctionType(result, types)), arguments)


def _alignment(array: Array) -> ir.Constant:
    return I32(itemsize(array.dtype))


def _lanes_of(mask: Mask | None, vector: ir.VectorType) -> ir.Value:
    """Return the lanes of a mask, all lanes for None."""
    if mask is not None:
        return mask.value
    return filled(ir.VectorType(I1, vector.count), True)


def _ones(vector: ir.VectorType) -> ir.Value:
    return filled(vector, 1)
