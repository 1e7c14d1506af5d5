"""The invariants of the loop IR, as they are stated in :mod:`pymc_fastlogp.kernel.ir.loops`."""

from collections.abc import Sequence

from pymc_fastlogp.kernel import passes
from pymc_fastlogp.kernel.ir.expressions import Buffer, Expr, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Call,
    Check,
    Loop,
    Program,
    SequentialLoop,
    Step,
    Store,
)
from pymc_fastlogp.kernel.ir.traversal import (
    expressions,
    is_call,
    is_uniform,
    loads,
    reads,
    updates,
    writes,
)
from pymc_fastlogp.kernel.lower.linear_lengths import difference
from pymc_fastlogp.kernel.passes import FALLBACK_PASSES, PASSES, Pass


def optimize(program: Program) -> Program:
    """Run all passes, and assert the invariants after each of them."""
    return passes.optimize(program, [*map(_checked, PASSES)], [*map(_checked, FALLBACK_PASSES)])


def _checked(run: Pass) -> Pass:
    def checked(program: Program) -> Program:
        program = run(program)
        check(program)
        return program

    return checked


def check(program: Program) -> None:
    """Assert the invariants.

    Raises
    ------
    AssertionError
        With the loop that breaks one.
    """
    known = {*program.inputs, *program.constants, *program.scratch, *program.outputs}
    written = {*program.inputs, *program.constants, *filter(_is_empty, known)}
    _check_steps(program.steps, written)
    _assert(written <= known, "uses buffers that the program does not list", program)
    _assert(set(program.outputs) <= written, "does not write all outputs", program)
    if program.fallback:
        _check_fallback(program, written)


def _check_fallback(program: Program, written: set[Buffer]) -> None:
    fallback = program.fallback
    _assert(fallback.failed in written, "does not say whether it failed", program)
    for role in ("inputs", "outputs", "errors"):
        is_same = getattr(fallback.program, role) == getattr(program, role)
        _assert(is_same, f"has a fallback with other {role}", program)
    check(fallback.program)


def _check_steps(steps: Sequence[Step], written: set[Buffer]) -> None:
    """Check steps, and add what they write to what is written."""
    for step in steps:
        if isinstance(step, SequentialLoop):
            _check_counter(step)
            written.add(step.counter)
            _check_steps(step.steps, written)
            continue
        _check_expressions(step)
        _check_writes(step)
        _assert(len(step.body) == 1 or not is_call(step), "calls beside other statements", step)
        _assert(reads(step) <= written, "reads before anything is written", step)
        written |= writes(step)


def _check_counter(repeat: SequentialLoop) -> None:
    counter = repeat.counter
    is_number = (counter.dtype, counter.shape, counter.role) == ("int64", (), Role.SCRATCH)
    _assert(is_number, "counts in something else than a number", repeat)
    _assert(counter not in writes(repeat), "writes its counter", repeat)


def _is_empty(buffer: Buffer) -> bool:
    return 0 in buffer.shape


def _check_expressions(loop: Loop) -> None:
    for expr in expressions(loop):
        if isinstance(expr, Index):
            _assert(expr.axis < len(loop.domain), "uses an axis that it does not have", loop)
        if isinstance(expr, Load):
            _assert(len(expr.index) == expr.buffer.ndim, "indexes with too few or many axes", loop)
            _assert(all(i.dtype == "int64" for i in expr.index), "indexes not by int64", loop)
    for load in loads(loop):
        others = (w for w in updates(loop) if w.buffer is load.buffer)
        apart = all(_are_apart(load.index, other.index) for other in others)
        _assert(apart, "reads what it writes", loop)


def _are_apart(first: tuple[Expr, ...], second: tuple[Expr, ...]) -> bool:
    """Return whether two positions differ along an axis by a number that is not 0, the same for all of the loop."""
    for a, b in zip(first, second, strict=True):
        found = difference(a, b, {})
        if found and is_uniform(a) and is_uniform(b):
            return True
    return False


def _check_writes(loop: Loop) -> None:
    operations: dict[Buffer, set] = {}
    for statement in loop.body:
        if isinstance(statement, Check):
            continue
        buffer = statement.buffer
        dtype = "float64" if isinstance(statement, Call) else statement.value.dtype
        _assert(buffer.role in (Role.SCRATCH, Role.OUTPUT), "writes an input", loop)
        _assert(buffer.dtype == dtype, f"stores {dtype} as {buffer.dtype}", loop)
        _assert(len(statement.index) == buffer.ndim, "indexes with too few or many axes", loop)
        operation = statement.op if isinstance(statement, Accumulate) else Store
        operations.setdefault(buffer, set()).add(operation)
    # What a loop writes in place of copies are different elements, which is not checked here.
    mixed = [b for b, ops in operations.items() if len(ops) > 1 and b.role is not Role.OUTPUT]
    _assert(not mixed, "mixes kinds of writes", loop)


def _assert(condition: bool, what: str, where: Step | Program) -> None:
    assert condition, f"a loop {what}: {where}"
