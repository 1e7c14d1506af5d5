"""Loads and stores of one element a lane.

Which instruction it is depends on how the index changes from lane to lane: neighbours are one vector, an
element common to all lanes is a scalar, an index in long runs is two scalars (see
:mod:`pymc_fastlogp.kernel.emit.repeated_indices`), all others are gathered or scattered. In a partial vector only
the lanes of the domain touch memory; a load gives 1 in the others, which is harmless as a divisor.
"""

from typing import TYPE_CHECKING

from llvmlite import ir
from pytensor.scalar.basic import ScalarOp

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.emit.accumulators import combine
from pymc_fastlogp.kernel.emit.addresses import Array
from pymc_fastlogp.kernel.emit.idioms import I1, I32, POINTER, intrinsic, splat
from pymc_fastlogp.kernel.emit.repeated_indices import load_of_two
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, itemsize
from pymc_fastlogp.kernel.vecmath.vector import Lanes

if TYPE_CHECKING:
    from pymc_fastlogp.kernel.emit.scope import Scope


def load(scope: "Scope", buffer: Buffer, index: tuple[Expr, ...]) -> Lanes:
    """Return the elements of a buffer at an index, in all lanes of the scope."""
    array = scope.known.arrays[buffer]
    vector = ir.VectorType(array.element, scope.width)
    if is_contiguous(scope, buffer, index):
        loaded = _load_neighbours(scope, first_address(scope, buffer, index), vector, array)
    elif scope.live is None and scope.pattern.has_runs(index, scope.width):
        # What is first evaluated in one of two branches is not known after them.
        indices = [scope.index(expr) for expr in index]
        loaded = load_of_two(
            scope.builder, array, indices, lambda: _gather(scope, buffer, index, vector)
        )
    else:
        loaded = _gather(scope, buffer, index, vector)
    return scalars.from_memory(scope.builder, loaded, array.dtype)


def store(scope: "Scope", buffer: Buffer, index: tuple[Expr, ...], value: Lanes) -> None:
    """Store the value of each lane of the domain; if lanes store to one element, the last counts."""
    array = scope.known.arrays[buffer]
    if scope.pattern.is_uniform(index):
        _store_last(scope, first_address(scope, buffer, index), array, value)
        return
    content = scalars.to_memory(value, array.dtype)
    if is_contiguous(scope, buffer, index):
        _store_neighbours(scope, content, first_address(scope, buffer, index), array)
    else:
        _scatter(scope, content, addresses(scope, buffer, index), array)


def load_one(builder: ir.IRBuilder, array: Array, address: ir.Value) -> Lanes:
    """Return one element as one lane."""
    loaded = builder.load(address, typ=ir.VectorType(array.element, 1))
    loaded.align = itemsize(array.dtype)
    return scalars.from_memory(builder, loaded, array.dtype)


def store_one(builder: ir.IRBuilder, array: Array, address: ir.Value, value: Lanes) -> None:
    """Store one lane."""
    builder.store(scalars.to_memory(value, array.dtype), address, align=itemsize(array.dtype))


def update_one(
    builder: ir.IRBuilder, array: Array, address: ir.Value, op: ScalarOp, value: Lanes
) -> None:
    """Combine one element with one lane."""
    before = load_one(builder, array, address)
    store_one(builder, array, address, combine(op, array.dtype, before, value))


def is_contiguous(scope: "Scope", buffer: Buffer, index: tuple[Expr, ...]) -> bool:
    """Whether the lanes are neighbours in memory; a single lane is."""
    if scope.width == 1:
        return True
    slopes = [scope.pattern.slope[expr] for expr in index]
    return scope.known.arrays[buffer].step(slopes) == 1


def first_address(scope: "Scope", buffer: Buffer, index: tuple[Expr, ...]) -> ir.Value:
    """Return the address of the element of the first lane."""
    array = scope.known.arrays[buffer]
    return array.address(scope.builder, [scope.number(expr) for expr in index])


def addresses(scope: "Scope", buffer: Buffer, index: tuple[Expr, ...]) -> ir.Value:
    """Return a vector of the addresses of the elements of all lanes."""
    array = scope.known.arrays[buffer]
    return array.address(scope.builder, [scope.index(expr) for expr in index])


def _load_neighbours(
    scope: "Scope", address: ir.Value, vector: ir.VectorType, array: Array
) -> ir.Value:
    builder, mask, alignment = scope.builder, scope.mask(), itemsize(array.dtype)
    if mask is None:
        loaded = builder.load(address, typ=vector)
        loaded.align = alignment
        return loaded
    function = intrinsic(
        builder.module,
        f"llvm.masked.load.{_name(vector)}.p0",
        vector,
        [POINTER, I32, mask.value.type, vector],
    )
    return builder.call(function, [address, I32(alignment), mask.value, _ones(vector)])


def _store_neighbours(scope: "Scope", content: ir.Value, address: ir.Value, array: Array) -> None:
    builder, mask, alignment = scope.builder, scope.mask(), itemsize(array.dtype)
    if mask is None:
        builder.store(content, address, align=alignment)
        return
    function = intrinsic(
        builder.module,
        f"llvm.masked.store.{_name(content.type)}.p0",
        ir.VoidType(),
        [content.type, POINTER, I32, mask.value.type],
    )
    builder.call(function, [content, address, I32(alignment), mask.value])


def _store_last(scope: "Scope", address: ir.Value, array: Array, value: Lanes) -> None:
    live = scope.width if scope.live is None else scope.live
    last = I32(live - 1) if isinstance(live, int) else scope.builder.sub(live, live.type(1))
    element = scope.builder.extract_element(value.value, last)
    one = type(value)(scope.builder, splat(scope.builder, element, 1))
    store_one(scope.builder, array, address, one)


def _gather(
    scope: "Scope", buffer: Buffer, index: tuple[Expr, ...], vector: ir.VectorType
) -> ir.Value:
    pointers, mask = addresses(scope, buffer, index), _mask_or_all(scope)
    function = intrinsic(
        scope.builder.module,
        f"llvm.masked.gather.{_name(vector)}.v{scope.width}p0",
        vector,
        [pointers.type, I32, mask.type, vector],
    )
    alignment = I32(itemsize(buffer.dtype))
    return scope.builder.call(function, [pointers, alignment, mask, _ones(vector)])


def _scatter(scope: "Scope", content: ir.Value, pointers: ir.Value, array: Array) -> None:
    mask = _mask_or_all(scope)
    function = intrinsic(
        scope.builder.module,
        f"llvm.masked.scatter.{_name(content.type)}.v{scope.width}p0",
        ir.VoidType(),
        [content.type, pointers.type, I32, mask.type],
    )
    scope.builder.call(function, [content, pointers, I32(itemsize(array.dtype)), mask])


def _mask_or_all(scope: "Scope") -> ir.Value:
    mask = scope.mask()
    if mask is not None:
        return mask.value
    return ir.Constant(ir.VectorType(I1, scope.width), [True] * scope.width)


def _ones(vector: ir.VectorType) -> ir.Value:
    return ir.Constant(vector, [1] * vector.count)


def _name(vector: ir.VectorType) -> str:
    """Return how LLVM spells a vector type in the name of an intrinsic."""
    return f"v{vector.count}{vector.element.intrinsic_name}"
