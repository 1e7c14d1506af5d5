"""Scratch for which there is no memory ends a kernel with an exception, not the process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from llvmlite import ir
from pytensor import scalar as ps

from pymc_fastlogp.kernel.emit import buffers, emit
from pymc_fastlogp.kernel.ir.expressions import Const, Length, Load
from pymc_fastlogp.kernel.ir.loops import Loop, Store
from tests.conftest import REPOSITORY
from tests.kernel.emitted import I0, compute, given, output, program, scratch
from tests.kernel.native_kernel import compile_native

ZERO = Const(0, "int64")
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


def report(kernel, *arrays):
    """Print what a kernel gives."""
    try:
        print(*kernel(*arrays))
    except MemoryError as error:
        print(error)


def run_with_late_scratch(factor):
    kernel = compile_native(with_late_scratch(factor))
    report(kernel, np.full(3, 2.5), np.array(True))


def test_where_other_scratch_would_come_later():
    assert ended("run_with_late_scratch(1)") == (0, "5.0")
    assert ended("run_with_late_scratch(1 << 50)") == (0, "no memory for the scratch of a kernel")


def test_an_exit_finds_null_where_nothing_was_allocated():
    function = emit(ir.Module(), with_late_scratch(1), "f", [True, True])
    entry, *others = function.blocks
    assert "store ptr null" in str(entry)
    assert not any("store ptr null" in str(block) for block in others)
