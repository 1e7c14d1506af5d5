"""The two C functions that nutpie calls, around a call of a kernel.

.. code-block:: text

    i64 logp(u64 n_dim, f64 *x, f64 *gradient, f64 *logp, void *user_data)
    i64 expand(u64 n_dim, u64 n_expanded, f64 *x, f64 *expanded, void *user_data)

Their results are those of the functions that nutpie compiles with Numba, see :mod:`pymc_fastlogp.callbacks.status`. The kernel
writes to the memory of the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from pymc_fastlogp.callbacks.plan import Plan
from pymc_fastlogp.callbacks.record import SYMBOL
from pymc_fastlogp.callbacks.status import (
    BAD_GRADIENT,
    BAD_LOGP,
    EXPAND_RAISED,
    RAISED,
    WRONG_LENGTH,
)
from pymc_fastlogp.callbacks.user_data import offset
from pymc_fastlogp.kernel.emit import emit_shapes, signature
from pymc_fastlogp.kernel.ir.expressions import Buffer
from pymc_fastlogp.kernel.ir.loops import Program
from pymc_fastlogp.kernel.llvm import F64, I1, I8, I64, POINTER, declared

ITEMSIZE = 8
# All bits of the exponent are set in infinities and nans, and in nothing else.
EXPONENT = I64(0x7FF0000000000000)


@dataclass(frozen=True)
class Layout:
    """Where a callback finds what it needs.

    Attributes
    ----------
    record : numpy.dtype
        Of the user data.
    shared : sequence of str
        The keys of the inputs of the graph after the point.
    first : int
        Which of the addresses is that of the machine code; those of the constants follow.
    """

    record: np.dtype
    shared: Sequence[str]
    first: int

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return the address of the machine code, number 0, or that of a constant, as an integer."""
        at = offset(self.record, "addresses") + ITEMSIZE * (self.first + number)
        return _word(builder, user_data, at)


@dataclass(frozen=True)
class FixedAddresses:
    """The same for a callback of this process alone: addresses are part of its code."""

    addresses: Sequence[int]

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return an address as an integer."""
        return I64(self.addresses[number])


def logp_module(plan: Plan, layout: Layout | FixedAddresses, n_dim: int) -> ir.Module:
    """Return a module with the function of logp and gradient."""
    function = _function([I64, POINTER, POINTER, POINTER, POINTER])
    length, x, gradient, logp, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    _return_unless(builder, builder.icmp_unsigned("==", length, I64(n_dim)), WRONG_LENGTH)
    targets = [(logp, 1), (gradient, n_dim)]
    assert plan.kernel is not None
    _Call(builder, plan.kernel.program, plan, layout, x, n_dim, user_data).emit(targets, RAISED)
    _return_unless(builder, _all_finite(builder, gradient, n_dim), BAD_GRADIENT)
    _return_unless(builder, _is_finite(builder, builder.load(logp, typ=F64)), BAD_LOGP)
    builder.ret(I64(0))
    return function.module


def expand_module(
    plan: Plan, layout: Layout | FixedAddresses, n_dim: int, n_expanded: int
) -> ir.Module:
    """Return a module with the function of all values that are stored."""
    function = _function([I64, I64, POINTER, POINTER, POINTER])
    *lengths, x, expanded, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    for length, expected in zip(lengths, (n_dim, n_expanded), strict=True):
        _return_unless(builder, builder.icmp_unsigned("==", length, I64(expected)), WRONG_LENGTH)
    if plan.kernel is None:
        assert n_expanded == n_dim
        _copy(builder, expanded, x, n_dim)
    else:
        call = _Call(builder, plan.kernel.program, plan, layout, x, n_dim, user_data)
        call.emit([(expanded, n_expanded)], EXPAND_RAISED)
    builder.ret(I64(0))
    return function.module


@dataclass(frozen=True)
class _Call:
    """The call of a kernel, to be emitted."""

    builder: ir.IRBuilder
    program: Program
    plan: Plan
    layout: Layout | FixedAddresses
    x: ir.Value
    n_dim: int
    user_data: ir.Value

    def emit(self, targets: Sequence[tuple[ir.Value, int]], failed: int) -> None:
        """Append the call; return ``failed`` unless it succeeds.

        Parameters
        ----------
        targets : sequence of (llvmlite.ir.Value, int)
            For each output of the graph where it goes, and how many numbers there is room for.
        failed : int
            What the callback returns then.
        """
        program = self.program
        inputs = self._inputs(failed)
        shapes = emit_shapes(self.builder, program, inputs)
        pointers: list[ir.Value] = [None] * len(program.outputs)
        for (pointer, room), output in zip(targets, self.plan.outputs, strict=True):
            pointers[output] = pointer
            self._check_room(shapes[output], room, failed)
        address = self.builder.inttoptr(self._address(0), signature(program).as_pointer())
        status = self.builder.call(address, [*inputs, *pointers])
        _return_unless(self.builder, self.builder.icmp_signed("==", status, I64(0)), failed)

    def _inputs(self, failed: int) -> list[ir.Value]:
        """Return the arguments of the kernel before its outputs: pointer, lengths and strides of each."""
        arguments: list[ir.Value] = []
        n_constants = 0
        buffers = self.program.inputs
        for argument, buffer in zip(self.plan.arguments, buffers, strict=True):
            if isinstance(argument, np.ndarray):
                n_constants += 1
                where = self.builder.inttoptr(self._address(n_constants), POINTER)
                arguments += [where, *map(I64, argument.shape), *map(I64, argument.strides)]
            elif argument == 0:
                arguments += [self.x, I64(self.n_dim), I64(ITEMSIZE)]
            else:
                arguments += self._shared(argument - 1, buffer, failed)
        return arguments

    def _shared(self, number: int, buffer: Buffer, failed: int) -> list[ir.Value]:
        """Return pointer, lengths and strides of a shared variable, which is in C order.

        Where its type has a length, the kernel does not look at the one that is passed, so it is checked here.
        """
        assert isinstance(self.layout, Layout)
        builder, record, key = self.builder, self.layout.record, self.layout.shared[number]
        data = _word(builder, self.user_data, offset(record, "shared", "data", key))
        where = builder.inttoptr(data, POINTER)
        first = offset(record, "shared", "shape", key)
        lengths = [
            _word(builder, self.user_data, first + ITEMSIZE * axis) for axis in range(buffer.ndim)
        ]
        for length, expected in zip(lengths, buffer.shape, strict=True):
            if isinstance(expected, int):
                _return_unless(builder, builder.icmp_signed("==", length, I64(expected)), failed)
        strides: list[ir.Value] = []
        stride: ir.Value = I64(np.dtype(buffer.dtype).itemsize)
        for length in reversed(lengths):
            strides.insert(0, stride)
            stride = builder.mul(stride, length)
        return [where, *lengths, *strides]

    def _address(self, number: int) -> ir.Value:
        return self.layout.address(self.builder, self.user_data, number)

    def _check_room(self, shape: Sequence[ir.Value], room: int, failed: int) -> None:
        """Return where an output has not as many elements as there is room for."""
        if all(isinstance(length, ir.Constant) for length in shape):
            assert prod(length.constant for length in shape) == room
            return
        size: ir.Value = I64(1)
        for length in shape:
            is_negative = self.builder.icmp_signed("<", length, I64(0))
            _return_unless(self.builder, self.builder.not_(is_negative), failed)
            size = self.builder.mul(size, length)
        _return_unless(self.builder, self.builder.icmp_signed("==", size, I64(room)), failed)


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


def _is_finite(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    bits = builder.and_(builder.bitcast(value, I64), EXPONENT)
    return builder.icmp_unsigned("!=", bits, EXPONENT)


def _all_finite(builder: ir.IRBuilder, array: ir.Value, length: int) -> ir.Value:
    """Append a loop without a branch, so that LLVM makes vectors of it."""
    if length == 0:
        return I1(1)
    before, loop = builder.block, builder.append_basic_block()
    after = builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    i, so_far = builder.phi(I64), builder.phi(I1)
    value = builder.load(builder.gep(array, [i], source_etype=F64), typ=F64)
    truth = builder.and_(so_far, _is_finite(builder, value))
    following = builder.add(i, I64(1))
    for phi, first, then in ((i, I64(0), following), (so_far, I1(1), truth)):
        phi.add_incoming(first, before)
        phi.add_incoming(then, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, I64(length)), loop, after)
    builder.position_at_end(after)
    return truth
