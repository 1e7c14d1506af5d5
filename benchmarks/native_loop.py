"""Timers of code that repeats, for :func:`pymc_fastlogp.benchmarking.pairing.time_in_turn`."""

import ctypes
from collections.abc import Callable

from llvmlite import ir

from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.native import Timer, compile_ir
from pymc_fastlogp.kernel.llvm import I64

NAME = "repeat"


def timed(repeat: Callable[[int], object], *alive: object) -> Timer:
    """Return the timer of a function that repeats its work, after a first call, which may compile.

    Parameters
    ----------
    repeat : callable
        Takes the number of repetitions.
    *alive : object
        Owners of the memory that machine code reads.
    """
    repeat(1)

    def seconds(n: int, _alive: tuple[object, ...] = alive) -> float:
        start = seconds_now()
        repeat(n)
        return seconds_now() - start

    return seconds


def timer_of_code(emit: Callable[[ir.IRBuilder], None], *alive: object) -> Timer:
    """Return the timer of LLVM code in a native loop: a call from Python takes longer than a small kernel.

    Parameters
    ----------
    emit : callable
        Appends the code of one repetition.
    *alive : object
        Owners of the memory that the code reads.
    """
    module = ir.Module(NAME)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64]), NAME)
    builder = ir.IRBuilder(function.append_basic_block())
    start, body, done = builder.block, *map(builder.append_basic_block, ("body", "done"))
    builder.branch(body)
    builder.position_at_end(body)
    i = builder.phi(I64)
    emit(builder)
    following = builder.add(i, I64(1))
    i.add_incoming(I64(0), start)
    i.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, function.args[0]), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    native = compile_ir(module, NAME)
    return timed(ctypes.CFUNCTYPE(None, ctypes.c_int64)(native.address), native, *alive)
