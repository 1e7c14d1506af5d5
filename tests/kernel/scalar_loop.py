"""Apply a scalar Op to arrays through its vector form, for tests."""

from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache

import numpy as np
from llvmlite import binding as llvm
from llvmlite import ir
from pytensor.scalar.basic import get_scalar_type

from pymc_fastlogp.kernel import scalars
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.scalar_library import address
from pymc_fastlogp.kernel.native.target import target_machine

WIDTH = 8
POINTER = ir.IntType(8).as_pointer()


def apply(op, *arrays, width=WIDTH):
    """Return what the vector form computes, of the type that PyTensor gives the output."""
    input_dtypes, output_dtype = types_of(op, *arrays)
    n = arrays[0].size
    whole = -(-n // width) * width
    padded = [np.resize(array, whole) for array in arrays]
    out = np.empty(whole, output_dtype)
    function, _ = compiled(op, input_dtypes, output_dtype, width)
    function(*[array.ctypes.data for array in padded], out.ctypes.data, whole)
    return out[:n]


def types_of(op, *arrays):
    """Return the input types, and the output type that PyTensor gives the Op."""
    dtypes = tuple(str(array.dtype) for array in arrays)
    return dtypes, make_node(op, dtypes).outputs[0].type.dtype


def make_node(op, dtypes):
    """Return an Apply of the Op to scalars of these types."""
    return op.make_node(*[get_scalar_type(dtype)() for dtype in dtypes])


@cache
def compiled(op, input_dtypes, output_dtype, width):
    """Compile a loop without Numba; return the function and the engine that keeps it."""
    module = emit_module(op, input_dtypes, output_dtype, width)
    for external in scalars.externals(op, len(input_dtypes)):
        llvm.add_symbol(external.symbol, address(external))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), target_machine())
    engine.finalize_object()
    signature = CFUNCTYPE(None, *[c_void_p] * (len(input_dtypes) + 1), c_int64)
    return signature(engine.get_function_address("f")), engine


def emit_module(op, input_dtypes, output_dtype, width):
    """Return ``void f(inputs..., out, n)`` for n a multiple of the width."""
    module = ir.Module("scalar_loop")
    module.triple = llvm.get_process_triple()
    pointers = [POINTER] * (len(input_dtypes) + 1)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*pointers, I64]), "f")
    *inputs, out, n = function.args
    entry, body, done = map(function.append_basic_block, ("entry", "body", "done"))
    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_signed("<", I64(0), n), body, done)

    builder.position_at_end(body)
    i = builder.phi(I64)
    i.add_incoming(I64(0), entry)
    args = [
        scalars.from_memory(
            builder, builder.load(_vector_at(builder, base, i, dtype, width), align=1), dtype
        )
        for base, dtype in zip(inputs, input_dtypes)
    ]
    result = scalars.emit(op, args, input_dtypes, output_dtype)
    address_ = _vector_at(builder, out, i, output_dtype, width)
    builder.store(scalars.to_memory(result, output_dtype), address_, align=1)
    following = builder.add(i, I64(width))
    i.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, n), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return module


def _vector_at(builder, base, i, dtype, width):
    element = scalars.memory_type(dtype)
    address = builder.gep(builder.bitcast(base, element.as_pointer()), [i])
    return builder.bitcast(address, ir.VectorType(element, width).as_pointer())
