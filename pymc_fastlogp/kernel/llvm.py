"""LLVM types and small idioms that all code generation uses."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import copysign
from typing import TypeGuard

from llvmlite import ir

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
# Of scratch and constants: the widest vector register, which is a cache line too.
ALIGNMENT = 64

# An int is known when code is generated, an i64 or a vector of them when it runs.
type Number = int | ir.Value


def is_vector(number: Number) -> TypeGuard[ir.Value]:
    """Return whether a number is one for each lane."""
    return not isinstance(number, int) and isinstance(number.type, ir.VectorType)


def as_i64(number: Number) -> ir.Value:
    """Return a number as a value."""
    return I64(number) if isinstance(number, int) else number


def times(builder: ir.IRBuilder, a: Number, b: Number) -> Number:
    """Return the product of two numbers, an int where it is known."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1 or b == 1:
        return b if a == 1 else a
    return builder.mul(as_i64(a), as_i64(b))


def splat(builder: ir.IRBuilder, scalar: ir.Value, width: int) -> ir.Value:
    """Return a vector of a scalar in all lanes."""
    undefined = _undefined(ir.VectorType(scalar.type, width))
    first = builder.insert_element(undefined, scalar, I32(0))
    if width == 1:
        return first
    return shuffle(builder, first, undefined, [0] * width)


@lru_cache(maxsize=256)
def _undefined(vector: ir.VectorType) -> ir.Constant:
    return ir.Constant(vector, ir.Undefined)


def widened(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    """Return a vector of one lane in all lanes of a wider one; a wide vector is returned as it is."""
    if value.type.count == width:
        return value
    return shuffle(builder, value, _undefined(value.type), [0] * width)


def lane(builder: ir.IRBuilder, value: ir.Value, position: int) -> ir.Value:
    """Return one lane of a vector as a scalar."""
    return builder.extract_element(value, I32(position))


def stack_variable(builder: ir.IRBuilder, type_: ir.Type) -> ir.Value:
    """Return a pointer to a variable of this type, aligned to a cache line.

    It is made in the entry block, which is still open: elsewhere it would be a new one in each iteration.
    """
    with builder.goto_entry_block():
        variable = builder.alloca(type_)
        variable.align = ALIGNMENT
        variable.type = POINTER
        if isinstance(type_, ir.ArrayType):
            _begin_life(builder, variable)
    return variable


def _begin_life(builder: ir.IRBuilder, array: ir.Value) -> None:
    """Say that an array is not there before, which says nothing, but keeps SROA of LLVM 22 from what it does wrong.

    It joins halves that are stored one by one where the second of them may not be there yet (``docs/upstream.md``), but only where
    nothing else than loads and stores uses the array.
    """
    signature = ir.FunctionType(ir.VoidType(), [I64, POINTER])
    whole = I64(-1)
    builder.call(declared(builder.module, "llvm.lifetime.start.p0", signature), [whole, array])


def filled(vector: ir.VectorType, number: float | int | bool) -> ir.Constant:
    """Return a number in all lanes.

    Code is full of the same few numbers: to make and to format one anew at each place took a third of the emission's time.
    """
    # Zeros of both signs are equal, and True is 1.
    return _filled(vector, number, copysign(1, number))


@lru_cache(maxsize=4096, typed=True)
def _filled(vector: ir.VectorType, number: float | int | bool, _sign: float) -> ir.Constant:
    return ir.Constant(vector, number)


def shuffle(
    builder: ir.IRBuilder, first: ir.Value, second: ir.Value, lanes: Sequence[int]
) -> ir.Value:
    """Return lanes of the concatenation of two vectors."""
    return builder.shuffle_vector(first, second, _positions(tuple(lanes)))


@lru_cache(maxsize=1024)
def _positions(lanes: tuple[int, ...]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))


def declared(module: ir.Module, name: str, signature: ir.FunctionType) -> ir.Function:
    """Return a function that is called by its name: an intrinsic, or one of a library."""
    return module.globals.get(name) or ir.Function(module, signature, name)


def once(
    module: ir.Module,
    name: str,
    signature: ir.FunctionType,
    body: Callable[..., ir.Value],
) -> ir.Function:
    """Return a function that is not inlined; the body takes the builder and the arguments, appends its code and returns its result."""
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, signature, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(body(builder, *function.args))
    return function


def private_constant(module: ir.Module, name: str, value: ir.Constant) -> ir.GlobalVariable:
    """Return the address of a constant that becomes part of a module."""
    if name in module.globals:
        return module.globals[name]
    variable = ir.GlobalVariable(module, value.type, name)
    variable.initializer = value
    variable.linkage = "private"
    variable.global_constant = True
    variable.unnamed_addr = True
    return variable
