"""Emit the two C functions that nutpie calls, around the call of a graph.

.. code-block:: text

    i64 logp(u64 n_dim, f64 *x, f64 *gradient, f64 *logp, void *user_data)
    i64 expand(u64 n_dim, u64 n_expanded, f64 *x, f64 *expanded, void *user_data)

The functions return the same results as the functions that nutpie compiles with Numba; see :mod:`pymc_fastlogp.callbacks.native` for their status
codes. A kernel writes directly to the caller's memory. The code needs no passes of LLVM: vectors are explicit, and all values are in registers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from pymc_fastlogp.callbacks.graph_call import GraphCall, KernelCall, NumbaCall
from pymc_fastlogp.callbacks.native import (
    BAD_GRADIENT,
    BAD_LOGP,
    EXPAND_RAISED,
    RAISED,
    SYMBOL,
    WRONG_LENGTH,
    offset,
)
from pymc_fastlogp.kernel.emit import emit_shapes, signature
from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.llvm import I1, I8, I64, POINTER, declared, stack_variable
from pymc_fastlogp.kernel.native.target import default_width

ITEMSIZE = 8
# Exactly infinities and NaNs have all bits of the exponent set.
EXPONENT = I64(0x7FF0000000000000)


@dataclass(frozen=True)
class Layout:
    """Positions of addresses and shared data in the user data of a callback.

    Attributes
    ----------
    record : numpy.dtype
        Dtype of the user data.
    shared : sequence of str
        Keys of the inputs of the graph after the point.
    first : int
        Position of the called function among the addresses; the addresses of its constants follow.
    """

    record: np.dtype
    shared: Sequence[str]
    first: int

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return an address as an integer: number 0 is the called function, the constants follow."""
        at = offset(self.record, "addresses") + ITEMSIZE * (self.first + number)
        return _word(builder, user_data, at)


@dataclass(frozen=True)
class FixedAddresses:
    """Addresses that are part of the code of a callback, which is valid in this process only."""

    addresses: Sequence[int]

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return an address as an integer."""
        return I64(self.addresses[number])


def logp_module(call: GraphCall, layout: Layout | FixedAddresses, n_dim: int) -> ir.Module:
    """Return a module with the callback for logp and gradient."""
    function = _function([I64, POINTER, POINTER, POINTER, POINTER])
    length, x, gradient, logp, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    _return_unless(builder, builder.icmp_unsigned("==", length, I64(n_dim)), WRONG_LENGTH)
    targets = [(logp, 1), (gradient, n_dim)]
    _emit_call(_CallSite(builder, layout, x, n_dim, user_data), call, targets, RAISED)
    _return_unless(builder, _all_finite(builder, gradient, n_dim), BAD_GRADIENT)
    _return_unless(builder, _all_finite(builder, logp, 1), BAD_LOGP)
    builder.ret(I64(0))
    return function.module


def expand_module(
    call: GraphCall, layout: Layout | FixedAddresses, n_dim: int, n_expanded: int
) -> ir.Module:
    """Return a module with the callback for all stored values."""
    function = _function([I64, I64, POINTER, POINTER, POINTER])
    *lengths, x, expanded, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    for length, expected in zip(lengths, (n_dim, n_expanded), strict=True):
        _return_unless(builder, builder.icmp_unsigned("==", length, I64(expected)), WRONG_LENGTH)
    if isinstance(call, KernelCall) and call.kernel is None:
        assert n_expanded == n_dim
        _copy(builder, expanded, x, n_dim)
    else:
        targets = [(expanded, n_expanded)]
        _emit_call(_CallSite(builder, layout, x, n_dim, user_data), call, targets, EXPAND_RAISED)
    builder.ret(I64(0))
    return function.module


@dataclass(frozen=True)
class _CallSite:
    """Insertion point of a call in a callback, with the values that are available there."""

    builder: ir.IRBuilder
    layout: Layout | FixedAddresses
    x: ir.Value
    n_dim: int
    user_data: ir.Value

    def address(self, number: int) -> ir.Value:
        """Return an address of the callback."""
        return self.layout.address(self.builder, self.user_data, number)

    def input(self, number: int, ndim: int) -> tuple[ir.Value, list[ir.Value]]:
        """Return the address of an input of the graph as an integer, and its lengths; input 0 is the point."""
        if number == 0:
            return self.builder.ptrtoint(self.x, I64), [I64(self.n_dim)]
        assert isinstance(self.layout, Layout)
        record, key = self.layout.record, self.layout.shared[number - 1]
        data, shape = (offset(record, "shared", field, key) for field in ("data", "shape"))
        places = [data, *(shape + ITEMSIZE * axis for axis in range(ndim))]
        address, *lengths = (_word(self.builder, self.user_data, at) for at in places)
        return address, lengths


def _emit_call(
    site: _CallSite, call: GraphCall, targets: Sequence[tuple[ir.Value, int]], failed: int
) -> None:
    """Append a call.

    Parameters
    ----------
    site : _CallSite
        The insertion point.
    call : GraphCall
        The call.
    targets : sequence of (llvmlite.ir.Value, int)
        Address and number of elements of the memory for each output of the graph.
    failed : int
        Status of the callback if the call fails.
    """
    if isinstance(call, NumbaCall):
        arguments, type_ = [_words(site, call, targets)], ir.FunctionType(I64, [POINTER])
    else:
        assert call.kernel is not None
        arguments = _kernel_arguments(site, call, targets, failed)
        type_ = signature(call.kernel.program)
    builder = site.builder
    function = builder.inttoptr(site.address(0), type_.as_pointer())
    status = builder.call(function, arguments)
    _return_unless(builder, builder.icmp_signed("==", status, I64(0)), failed)


def _words(site: _CallSite, call: NumbaCall, targets: Sequence[tuple[ir.Value, int]]) -> ir.Value:
    """Return a pointer to the argument array of a graph's C function, on the stack."""
    builder, words = site.builder, []
    for number, (_, ndim) in enumerate(call.inputs):
        address, lengths = site.input(number, ndim)
        words += [address, *lengths]
    words += [builder.ptrtoint(pointer, I64) for pointer, _ in targets]
    array = stack_variable(builder, ir.ArrayType(I64, len(words)))
    for i, word in enumerate(words):
        builder.store(word, builder.gep(array, [I64(i)], source_etype=I64))
    return array


def _kernel_arguments(
    site: _CallSite, call: KernelCall, targets: Sequence[tuple[ir.Value, int]], failed: int
) -> list[ir.Value]:
    """Return the arguments of a kernel; append checks of static input lengths and of the sizes of outputs."""
    assert call.kernel is not None
    program = call.kernel.program
    inputs: list[ir.Value] = []
    n_constants = 0
    for argument, buffer in zip(call.arguments, program.inputs, strict=True):
        if isinstance(argument, np.ndarray):
            n_constants += 1
            data = site.builder.inttoptr(site.address(n_constants), POINTER)
            inputs += [data, *map(I64, argument.shape), *map(I64, argument.strides)]
        else:
            inputs += _kernel_input(site, argument, buffer, failed)
    shapes = emit_shapes(site.builder, program, inputs)
    pointers: list[ir.Value] = [None] * len(program.outputs)
    for (pointer, size), output in zip(targets, call.outputs, strict=True):
        pointers[output] = pointer
        _check_size(site.builder, shapes[output], size, failed)
    return [*inputs, *pointers]


def _kernel_input(site: _CallSite, number: int, buffer: Buffer, failed: int) -> list[ir.Value]:
    """Return pointer, lengths and strides of an input of the graph, in C order.

    A kernel ignores the passed length of an axis whose length is static, so the lengths of shared data are checked here.
    """
    builder = site.builder
    address, lengths = site.input(number, buffer.ndim)
    for length, expected in zip(lengths, buffer.shape, strict=True):
        if number and isinstance(expected, int):
            _return_unless(builder, builder.icmp_signed("==", length, I64(expected)), failed)
    strides: list[ir.Value] = []
    stride: ir.Value = I64(np.dtype(buffer.dtype).itemsize)
    for length in reversed(lengths):
        strides.insert(0, stride)
        stride = builder.mul(stride, length)
    return [builder.inttoptr(address, POINTER), *lengths, *strides]


def _check_size(builder: ir.IRBuilder, shape: Sequence[ir.Value], size: int, failed: int) -> None:
    """Append a return with status ``failed`` for an output that has not ``size`` elements."""
    if all(isinstance(length, ir.Constant) for length in shape):
        assert prod(length.constant for length in shape) == size
        return
    product: ir.Value = I64(1)
    for length in shape:
        is_negative = builder.icmp_signed("<", length, I64(0))
        _return_unless(builder, builder.not_(is_negative), failed)
        product = builder.mul(product, length)
    _return_unless(builder, builder.icmp_signed("==", product, I64(size)), failed)


def _word(builder: ir.IRBuilder, user_data: ir.Value, at: int) -> ir.Value:
    """Return eight bytes of the user data as an integer."""
    return builder.load(builder.gep(user_data, [I64(at)], source_etype=I8), typ=I64)


def _copy(builder: ir.IRBuilder, to: ir.Value, source: ir.Value, n_numbers: int) -> None:
    type_ = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
    memcpy = declared(builder.module, "llvm.memcpy.p0.p0.i64", type_)
    builder.call(memcpy, [to, source, I64(ITEMSIZE * n_numbers), I1(0)])


def _function(arguments: Sequence[ir.Type]) -> ir.Function:
    function = ir.Function(ir.Module(SYMBOL), ir.FunctionType(I64, arguments), SYMBOL)
    function.attributes.add("nounwind")
    return function


def _return_unless(builder: ir.IRBuilder, truth: ir.Value, status: int) -> None:
    with builder.if_then(builder.not_(truth), likely=False):
        builder.ret(I64(status))


def _all_finite(builder: ir.IRBuilder, array: ir.Value, length: int) -> ir.Value:
    """Append a loop over vectors, whose last one may overlap the vector before, and return whether all elements are finite."""
    if length == 0:
        return I1(1)
    width = min(default_width(), 1 << int(length).bit_length() - 1)
    vectors = ir.VectorType(I64, width)
    exponents = vectors([EXPONENT.constant] * width)

    def is_bad(first: ir.Value) -> ir.Value:
        at = builder.gep(array, [first], source_etype=I64)
        bits = builder.and_(builder.load(at, align=ITEMSIZE, typ=vectors), exponents)
        return builder.sext(builder.icmp_unsigned("==", bits, exponents), vectors)

    bad = is_bad(I64(length - width))
    if length > width:
        before, loop = builder.block, builder.append_basic_block()
        after = builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        i, so_far = builder.phi(I64), builder.phi(vectors)
        following, together = builder.add(i, I64(width)), builder.or_(so_far, is_bad(i))
        for phi, first, then in ((i, I64(0), following), (so_far, bad, together)):
            phi.add_incoming(first, before)
            phi.add_incoming(then, loop)
        in_loop = builder.icmp_unsigned("<", following, I64(length - width))
        builder.cbranch(in_loop, loop, after)
        builder.position_at_end(after)
        bad = together
    lanes = builder.icmp_unsigned("!=", bad, vectors([0] * width))
    bits = ir.IntType(width)
    return builder.icmp_unsigned("==", builder.bitcast(lanes, bits), bits(0))
