"""The two C functions that nutpie calls, around a call of a kernel, or of a graph that Numba compiles.

.. code-block:: text

    i64 logp(u64 n_dim, f64 *x, f64 *gradient, f64 *logp, void *user_data)
    i64 expand(u64 n_dim, u64 n_expanded, f64 *x, f64 *expanded, void *user_data)

Their results are those of the functions that nutpie compiles with Numba, see :mod:`pymc_fastlogp.callbacks.status`. What is called
writes to the memory of the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from llvmlite import ir

from pymc_fastlogp.callbacks.kernel_call import Plan
from pymc_fastlogp.callbacks.numba_graph import NumbaGraph
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
from pymc_fastlogp.kernel.llvm import F64, I1, I8, I64, POINTER, declared, stack_variable
from pymc_fastlogp.model_cache.record import SYMBOL

ITEMSIZE = 8
# All bits of the exponent are set in infinities and nans, and in nothing else.
EXPONENT = I64(0x7FF0000000000000)


@dataclass(frozen=True)
class Layout:
    """Offsets of addresses, constants and shared data in the memory of a callback.

    Attributes
    ----------
    record : numpy.dtype
        Of the user data.
    shared : sequence of str
        The keys of the inputs of the graph after the point.
    first : int
        Which of the addresses is that of what is called; those of the constants follow.
    """

    record: np.dtype
    shared: Sequence[str]
    first: int

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return the address of what is called, number 0, or that of a constant, as an integer."""
        at = offset(self.record, "addresses") + ITEMSIZE * (self.first + number)
        return _word(builder, user_data, at)


@dataclass(frozen=True)
class FixedAddresses:
    """The same for a callback of this process alone: addresses are part of its code."""

    addresses: Sequence[int]

    def address(self, builder: ir.IRBuilder, user_data: ir.Value, number: int) -> ir.Value:
        """Return an address as an integer."""
        return I64(self.addresses[number])


def logp_module(plan: Plan | NumbaGraph, layout: Layout | FixedAddresses, n_dim: int) -> ir.Module:
    """Return a module with the function of logp and gradient."""
    function = _function([I64, POINTER, POINTER, POINTER, POINTER])
    length, x, gradient, logp, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    _return_unless(builder, builder.icmp_unsigned("==", length, I64(n_dim)), WRONG_LENGTH)
    targets = [(logp, 1), (gradient, n_dim)]
    _emit_call(_Place(builder, layout, x, n_dim, user_data), plan, targets, RAISED)
    _return_unless(builder, _all_finite(builder, gradient, n_dim), BAD_GRADIENT)
    _return_unless(builder, _is_finite(builder, builder.load(logp, typ=F64)), BAD_LOGP)
    builder.ret(I64(0))
    return function.module


def expand_module(
    plan: Plan | NumbaGraph, layout: Layout | FixedAddresses, n_dim: int, n_expanded: int
) -> ir.Module:
    """Return a module with the function of all values that are stored."""
    function = _function([I64, I64, POINTER, POINTER, POINTER])
    *lengths, x, expanded, user_data = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    for length, expected in zip(lengths, (n_dim, n_expanded), strict=True):
        _return_unless(builder, builder.icmp_unsigned("==", length, I64(expected)), WRONG_LENGTH)
    if isinstance(plan, Plan) and plan.kernel is None:
        assert n_expanded == n_dim
        _copy(builder, expanded, x, n_dim)
    else:
        targets = [(expanded, n_expanded)]
        _emit_call(_Place(builder, layout, x, n_dim, user_data), plan, targets, EXPAND_RAISED)
    builder.ret(I64(0))
    return function.module


@dataclass(frozen=True)
class _Place:
    """Insertion point of a call in a callback, with the values available there."""

    builder: ir.IRBuilder
    layout: Layout | FixedAddresses
    x: ir.Value
    n_dim: int
    user_data: ir.Value

    def address(self, number: int) -> ir.Value:
        """Return one of the addresses of the callback."""
        return self.layout.address(self.builder, self.user_data, number)

    def input(self, number: int, ndim: int) -> tuple[ir.Value, list[ir.Value]]:
        """Return the address of an input of the graph as an integer, and its lengths; the first one is the point."""
        if number == 0:
            return self.builder.ptrtoint(self.x, I64), [I64(self.n_dim)]
        assert isinstance(self.layout, Layout)
        record, key = self.layout.record, self.layout.shared[number - 1]
        data, shape = (offset(record, "shared", field, key) for field in ("data", "shape"))
        places = [data, *(shape + ITEMSIZE * axis for axis in range(ndim))]
        address, *lengths = (_word(self.builder, self.user_data, at) for at in places)
        return address, lengths


def _emit_call(
    place: _Place, plan: Plan | NumbaGraph, targets: Sequence[tuple[ir.Value, int]], failed: int
) -> None:
    """Append a call.

    Parameters
    ----------
    place : _Place
        Where it goes.
    plan : Plan or NumbaGraph
        What is called.
    targets : sequence of (llvmlite.ir.Value, int)
        For each output of the graph where it goes, and how many numbers there is room for.
    failed : int
        What the callback returns unless the call succeeds.
    """
    if isinstance(plan, NumbaGraph):
        arguments, type_ = [_words(place, plan, targets)], ir.FunctionType(I64, [POINTER])
    else:
        assert plan.kernel is not None
        arguments = _kernel_arguments(place, plan, targets, failed)
        type_ = signature(plan.kernel.program)
    builder = place.builder
    function = builder.inttoptr(place.address(0), type_.as_pointer())
    status = builder.call(function, arguments)
    _return_unless(builder, builder.icmp_signed("==", status, I64(0)), failed)


def _words(place: _Place, graph: NumbaGraph, targets: Sequence[tuple[ir.Value, int]]) -> ir.Value:
    """Return a pointer to what the function of a graph takes, on the stack."""
    builder, words = place.builder, []
    for number, (_, ndim) in enumerate(graph.inputs):
        address, lengths = place.input(number, ndim)
        words += [address, *lengths]
    words += [builder.ptrtoint(pointer, I64) for pointer, _ in targets]
    array = stack_variable(builder, ir.ArrayType(I64, len(words)))
    for i, word in enumerate(words):
        builder.store(word, builder.gep(array, [I64(i)], source_etype=I64))
    return array


def _kernel_arguments(
    place: _Place, plan: Plan, targets: Sequence[tuple[ir.Value, int]], failed: int
) -> list[ir.Value]:
    """Return what the kernel of a plan takes; append checks that inputs are as its types say, and that outputs have room."""
    assert plan.kernel is not None
    program = plan.kernel.program
    inputs: list[ir.Value] = []
    n_constants = 0
    for argument, buffer in zip(plan.arguments, program.inputs, strict=True):
        if isinstance(argument, np.ndarray):
            n_constants += 1
            where = place.builder.inttoptr(place.address(n_constants), POINTER)
            inputs += [where, *map(I64, argument.shape), *map(I64, argument.strides)]
        else:
            inputs += _kernel_input(place, argument, buffer, failed)
    shapes = emit_shapes(place.builder, program, inputs)
    pointers: list[ir.Value] = [None] * len(program.outputs)
    for (pointer, room), output in zip(targets, plan.outputs, strict=True):
        pointers[output] = pointer
        _check_room(place.builder, shapes[output], room, failed)
    return [*inputs, *pointers]


def _kernel_input(place: _Place, number: int, buffer: Buffer, failed: int) -> list[ir.Value]:
    """Return pointer, lengths and strides of an input of the graph, which is in C order.

    Where its type has a length, the kernel does not look at the one that is passed, so that of shared data is checked here.
    """
    builder = place.builder
    address, lengths = place.input(number, buffer.ndim)
    for length, expected in zip(lengths, buffer.shape, strict=True):
        if number and isinstance(expected, int):
            _return_unless(builder, builder.icmp_signed("==", length, I64(expected)), failed)
    strides: list[ir.Value] = []
    stride: ir.Value = I64(np.dtype(buffer.dtype).itemsize)
    for length in reversed(lengths):
        strides.insert(0, stride)
        stride = builder.mul(stride, length)
    return [builder.inttoptr(address, POINTER), *lengths, *strides]


def _check_room(builder: ir.IRBuilder, shape: Sequence[ir.Value], room: int, failed: int) -> None:
    """Return where an output has not as many elements as there is room for."""
    if all(isinstance(length, ir.Constant) for length in shape):
        assert prod(length.constant for length in shape) == room
        return
    size: ir.Value = I64(1)
    for length in shape:
        is_negative = builder.icmp_signed("<", length, I64(0))
        _return_unless(builder, builder.not_(is_negative), failed)
        size = builder.mul(size, length)
    _return_unless(builder, builder.icmp_signed("==", size, I64(room)), failed)


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
