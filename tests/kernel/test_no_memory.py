"""Scratch for which there is no memory ends a kernel with an exception, not the process."""

import ctypes
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from llvmlite import ir
from pytensor import scalar as ps

from pymc_fastlogp.kernel.emit import buffers, emit
from pymc_fastlogp.kernel.ir.expressions import Const, Length, Load
from pymc_fastlogp.kernel.ir.loops import Loop, Store
from pymc_fastlogp.kernel.llvm import I64
from pymc_fastlogp.kernel.native.target import checks_bounds, target_machine
from tests.conftest import REPOSITORY
from tests.kernel.emitted import I0, compute, given, output, program, scratch
from tests.kernel.lowering import program_of
from tests.kernel.native_kernel import compile_native

ZERO = Const(0, "int64")
NO_MEMORY = "no memory for the scratch of a kernel"
LATE = buffers.STACK_BYTES // 8 + 1


def with_late_scratch(factor):
    """Return a program with scratch of so many numbers for each of x, and scratch that is needed where ``flag[]`` holds."""
    x, flag = given("x", Length(0, 0)), given("flag", dtype="bool")
    size = compute(ps.mul, Length(0, 0), Const(factor, "int64"), dtype="int64")
    always, late, y = scratch("always", size), scratch("late", LATE), output("y")
    first = Load(x, (ZERO,))
    both = compute(ps.add, Load(always, (ZERO,)), Load(late, (Const(LATE - 1, "int64"),)))
    when = Load(flag, ())
    steps = (
        Loop(x.shape, (Store(always, (I0,), Load(x, (I0,))),)),
        Loop((), (Store(y, (), first),)),
        Loop((LATE,), (Store(late, (I0,), first),), when),
        Loop((), (Store(y, (), both),), when),
    )
    return program(*steps, inputs=(x, flag))


def ended(call):
    """Return how a process ends that calls a function of this file, and what it prints."""
    script = f"from tests.kernel.{Path(__file__).stem} import *\n{call}"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip() or done.stderr


def report(name, run):
    """Print what a kernel gives, at once."""
    try:
        print(name, *run(), sep=": ", flush=True)
    except MemoryError as error:
        print(name, error, sep=": ", flush=True)


def run_with_late_scratch():
    for factor in (1, 1 << 50):
        kernel = compile_native(with_late_scratch(factor))
        report(factor, partial(kernel, np.full(3, 2.5), np.array(True)))


def test_failed_allocation_frees_only_what_was_allocated():
    code, printed = ended("run_with_late_scratch()")
    assert printed.splitlines() == ["1: 5.0", f"{1 << 50}: {NO_MEMORY}"]
    assert code == 0


def kernel_of(build, numbers):
    """Compile a graph of some numbers and a vector of five, and return a call of it."""
    x, lengths = pt.vector("x", shape=(5,)), [pt.lscalar(f"n{i}") for i in range(len(numbers))]
    inputs = [*lengths, x]
    kernel = compile_native(program_of(inputs, [build(x, *lengths)]))
    return partial(kernel, *map(np.array, numbers), np.ones(5))


def one_length(x, n):
    y = pt.cumsum(pt.zeros((n,)) + x[0])
    return pt.exp(y[:3]).sum() + y[n // 2]


def known_length(x):
    return one_length(x, 2**61 + 1)


def two_lengths(x, rows, columns):
    z = pt.exp(pt.zeros((rows, columns)) + x[0])
    return z[0, :3].sum() + pt.cumsum(z, axis=1)[0, 1]


def results_of_steps(x, n):
    steps = pytensor.scan(
        lambda before: before * x[0],
        outputs_info=[pt.zeros(()) + x[1]],
        n_steps=n,
        return_updates=False,
    )
    return steps[n // 2] + pt.exp(steps[:2]).sum()


TOO_LONG = (
    (one_length, 2**61 + 1),
    (one_length, 2**60),
    (known_length,),
    (two_lengths, 2**31, 2**30),
    (two_lengths, 2**32, 2**32 + 1),
    (two_lengths, 2**62, 2**62),
    (results_of_steps, 2**61 + 1),
)


def run_what_is_too_long():
    for build, *numbers in TOO_LONG:
        report(build.__name__, kernel_of(build, numbers))


# With checks, whose sizes in bytes go round as well, LLVM sees a trap in each path and needs no memory for it.
@pytest.mark.skipif(checks_bounds(), reason="no check has numbers for such buffers")
def test_overflowing_sizes_raise_a_memory_error():
    code, printed = ended("run_what_is_too_long()")
    assert printed.splitlines() == [f"{build.__name__}: {NO_MEMORY}" for build, *_ in TOO_LONG]
    assert code == 0


def test_the_sum_of_sizes_is_limited():
    function = ir.Function(ir.Module(), ir.FunctionType(I64, [I64, I64]), "total")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(buffers.sum_of(builder, [64, *function.args]))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(function.module)), target_machine())
    type_ = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)
    total = type_(engine.get_function_address("total"))
    limit = buffers.TOO_LARGE
    assert total(64, 128) == 256
    assert total(limit, 128) == total(limit, limit) == total(limit - 64, 64) == limit


def test_an_exit_finds_null_where_nothing_was_allocated():
    function = emit(ir.Module(), with_late_scratch(1), "f", [True, True])
    entry, *others = function.blocks
    assert "store ptr null" in str(entry)
    assert not any("store ptr null" in str(block) for block in others)
