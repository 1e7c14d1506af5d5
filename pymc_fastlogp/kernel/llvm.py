"""LLVM types and helper functions for code generation."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import copysign
from typing import TypeGuard

from llvmlite import ir

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
# Bytes to which scratch and constants are aligned: the widest vector register, and a cache line.
ALIGNMENT = 64

# An int is known when code is generated; an i64 or a vector of i64 is known at run time.
type Number = int | ir.Value


def is_vector(number: Number) -> TypeGuard[ir.Value]:
    """Return whether a number is a vector."""
    return not isinstance(number, int) and isinstance(number.type, ir.VectorType)


def as_i64(number: Number) -> ir.Value:
    """Return a number as an i64 value."""
    return I64(number) if isinstance(number, int) else number


def times(builder: ir.IRBuilder, a: Number, b: Number) -> Number:
    """Return the product of two numbers, folded if both are ints."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    return builder.mul(as_i64(a), as_i64(b))


def splat(builder: ir.IRBuilder, scalar: ir.Value, width: int) -> ir.Value:
    """Return a vector with a scalar in all lanes."""
    undefined = _undefined(ir.VectorType(scalar.type, width))
    first = builder.insert_element(undefined, scalar, I32(0))
    if width == 1:
        return first
    return shuffle(builder, first, undefined, [0] * width)


@lru_cache(maxsize=256)
def _undefined(vector: ir.VectorType) -> ir.Constant:
    return ir.Constant(vector, ir.Undefined)


def widened(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    """Broadcast a vector of one lane to ``width`` lanes; return a vector of that width unchanged."""
    if value.type.count == width:
        return value
    return shuffle(builder, value, _undefined(value.type), [0] * width)


def lane(builder: ir.IRBuilder, value: ir.Value, position: int) -> ir.Value:
    """Return one lane of a vector as a scalar."""
    return builder.extract_element(value, I32(position))


def stack_variable(builder: ir.IRBuilder, type_: ir.Type) -> ir.Value:
    """Return a pointer to a stack variable, aligned to a cache line.

    The variable is allocated in the entry block; inside a loop, each iteration would allocate another one.
    """
    with builder.goto_entry_block():
        variable = builder.alloca(type_)
        variable.align = ALIGNMENT
        variable.type = POINTER
        if isinstance(type_, ir.ArrayType):
            _start_lifetime(builder, variable)
    return variable


def _start_lifetime(builder: ir.IRBuilder, array: ir.Value) -> None:
    """Append ``llvm.lifetime.start`` for an array, as a workaround for a defect of SROA in LLVM 22.

    SROA merges two stored halves at a point where the second half may not be defined yet (``docs/upstream.md``). It does so only for
    arrays without uses other than loads and stores.
    """
    signature = ir.FunctionType(ir.VoidType(), [I64, POINTER])
    whole = I64(-1)
    builder.call(declared(builder.module, "llvm.lifetime.start.p0", signature), [whole, array])


def filled(vector: ir.VectorType, number: float | int | bool) -> ir.Constant:
    """Return a constant vector with a number in all lanes.

    Constants are cached: creating and formatting them at each use took a third of the emission time.
    """
    # The sign is part of the cache key, since 0.0 == -0.0; `typed` distinguishes True from 1.
    return _filled(vector, number, copysign(1, number))


@lru_cache(maxsize=4096, typed=True)
def _filled(vector: ir.VectorType, number: float | int | bool, _sign: float) -> ir.Constant:
    return ir.Constant(vector, number)


def shuffle(
    builder: ir.IRBuilder, first: ir.Value, second: ir.Value, lanes: Sequence[int]
) -> ir.Value:
    """Return a vector of the given lanes of the concatenation of two vectors."""
    return builder.shuffle_vector(first, second, _positions(tuple(lanes)))


@lru_cache(maxsize=1024)
def _positions(lanes: tuple[int, ...]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))


def declared(module: ir.Module, name: str, signature: ir.FunctionType) -> ir.Function:
    """Return the declaration of an external function: an intrinsic or a library function."""
    return module.globals.get(name) or ir.Function(module, signature, name)


def once(
    module: ir.Module,
    name: str,
    signature: ir.FunctionType,
    body: Callable[..., ir.Value | None],
) -> ir.Function:
    """Return a ``noinline`` function of a module; at the first request, ``body(builder, *arguments)`` emits its code and returns the result, None without one."""
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, signature, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    result = body(builder, *function.args)
    builder.ret_void() if result is None else builder.ret(result)
    return function


def private_constant(module: ir.Module, name: str, value: ir.Constant) -> ir.GlobalVariable:
    """Return the address of a private constant of a module, added at the first request."""
    if name in module.globals:
        return module.globals[name]
    variable = ir.GlobalVariable(module, value.type, name)
    variable.initializer = value
    variable.linkage = "private"
    variable.global_constant = True
    variable.unnamed_addr = True
    return variable
