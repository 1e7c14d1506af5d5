"""A loop that applies a vector function to arrays, as an LLVM function of its own."""

from llvmlite import ir

from pymc_fastlogp.kernel.llvm import F64, I1, I64
from pymc_fastlogp.kernel.vecmath.table import FUNCTIONS, SHARED
from pymc_fastlogp.kernel.vecmath.vector import Floats

I32 = ir.IntType(32)
DOUBLES = F64.as_pointer()
SIGNATURE = ir.FunctionType(ir.VoidType(), [DOUBLES, DOUBLES, I64])
ALIGNMENT = 8
# Of the widest native vector.
STACK_ALIGNMENT = 64


def n_arguments(name: str) -> int:
    """Return how many arguments a function of the table takes."""
    return 1 if name in SHARED else FUNCTIONS[name].n_arguments


def n_results(name: str) -> int:
    """Return how many results a function of the table has."""
    return len(SHARED[name].results) if name in SHARED else 1


def emit_loop(module: ir.Module, name: str, width: int, symbol: str) -> ir.Function:
    """Add ``void symbol(double *x, double *out, int64 n)`` to a module.

    Parameters
    ----------
    module : llvmlite.ir.Module
        The module.
    name : str
        Name of a row in the table.
    width : int
        Lanes of a vector, at least 1.
    symbol : str
        Name of the function.

    Returns
    -------
    llvmlite.ir.Function
        It reads ``n_arguments(name)`` rows of n doubles at x and writes ``n_results(name)`` rows of n
        at out. Rows are contiguous; x may be out. Lanes past the end are masked off.
    """
    function = ir.Function(module, SIGNATURE, symbol)
    function.attributes.add("nounwind")
    # Inlined, it would have the stack of its caller, on which LLVM does not align spilled vectors.
    function.attributes.add("noinline")
    function.attributes.alignstack = STACK_ALIGNMENT
    x, out, n = function.args
    entry, head, body, tail, partial, done = (
        function.append_basic_block(block)
        for block in ("entry", "head", "body", "tail", "partial", "done")
    )
    builder = ir.IRBuilder(entry)
    whole = builder.sub(n, builder.urem(n, I64(width)))
    builder.branch(head)

    builder.position_at_end(head)
    i = builder.phi(I64)
    i.add_incoming(I64(0), entry)
    builder.cbranch(builder.icmp_signed("<", i, whole), body, tail)

    builder.position_at_end(body)
    everywhere = ir.Constant(ir.VectorType(I1, width), [1] * width)
    _emit_block(builder, name, x, out, n, i, everywhere)
    # A function with a rare case ends in another block than it began.
    i.add_incoming(builder.add(i, I64(width)), builder.block)
    builder.branch(head)

    builder.position_at_end(tail)
    builder.cbranch(builder.icmp_signed("<", whole, n), partial, done)
    builder.position_at_end(partial)
    lanes = ir.Constant(ir.VectorType(I64, width), list(range(width)))
    _emit_block(builder, name, x, out, n, whole, _less(builder, lanes, builder.sub(n, whole)))
    builder.branch(done)
    builder.position_at_end(done)
    builder.ret_void()
    return function


def _emit_block(
    builder: ir.IRBuilder,
    name: str,
    x: ir.Value,
    out: ir.Value,
    n: ir.Value,
    start: ir.Value,
    mask: ir.Value,
) -> None:
    """Apply the function to one vector from ``start`` on, where the mask is true."""
    arguments = [
        Floats(builder, _masked_load(builder, _row(builder, x, n, start, row), mask))
        for row in range(n_arguments(name))
    ]
    results = (
        SHARED[name].emit(*arguments) if name in SHARED else (FUNCTIONS[name].emit(*arguments),)
    )
    for row, result in enumerate(results):
        _masked_store(builder, result.value, _row(builder, out, n, start, row), mask)


def _row(builder: ir.IRBuilder, base: ir.Value, n: ir.Value, start: ir.Value, row: int) -> ir.Value:
    return builder.gep(base, [builder.add(builder.mul(n, I64(row)), start)])


def _less(builder: ir.IRBuilder, lanes: ir.Value, bound: ir.Value) -> ir.Value:
    """Return which lanes are less than a scalar."""
    undefined = ir.Constant(lanes.type, ir.Undefined)
    first = builder.insert_element(undefined, bound, I32(0))
    zeros = ir.Constant(ir.VectorType(I32, lanes.type.count), [0] * lanes.type.count)
    return builder.icmp_signed("<", lanes, builder.shuffle_vector(first, undefined, zeros))


def _masked_load(builder: ir.IRBuilder, address: ir.Value, mask: ir.Value) -> ir.Value:
    """Load the lanes where the mask is true, and 1 elsewhere."""
    vector = ir.VectorType(F64, mask.type.count)
    pointer = vector.as_pointer()
    signature = ir.FunctionType(vector, [pointer, I32, mask.type, vector])
    load = _declared(builder.module, f"llvm.masked.load.v{vector.count}f64.p0", signature)
    ones = ir.Constant(vector, [1.0] * vector.count)
    return builder.call(load, [builder.bitcast(address, pointer), I32(ALIGNMENT), mask, ones])


def _masked_store(
    builder: ir.IRBuilder, value: ir.Value, address: ir.Value, mask: ir.Value
) -> None:
    pointer = value.type.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [value.type, pointer, I32, mask.type])
    store = _declared(builder.module, f"llvm.masked.store.v{value.type.count}f64.p0", signature)
    builder.call(store, [value, builder.bitcast(address, pointer), I32(ALIGNMENT), mask])


def _declared(module: ir.Module, name: str, signature: ir.FunctionType) -> ir.Function:
    return module.globals.get(name) or ir.Function(module, signature, name)
