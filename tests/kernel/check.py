"""The invariants of the loop IR, as they are stated in :mod:`pymc_fastlogp.kernel.ir.loops`."""

from pymc_fastlogp.kernel.ir.expressions import Buffer, Index, Load, Role
from pymc_fastlogp.kernel.ir.loops import Accumulate, Call, Check, Loop, Program, Store
from pymc_fastlogp.kernel.ir.traversal import expressions, is_call, reads, writes
from pymc_fastlogp.kernel.passes import PASSES


def optimise(program: Program) -> Program:
    """Run all passes, and assert the invariants after each of them."""
    for run in PASSES:
        program = run(program)
        check(program)
    return program


def check(program: Program) -> None:
    """Assert the invariants.

    Raises
    ------
    AssertionError
        With the loop that breaks one.
    """
    known = {*program.inputs, *program.constants, *program.scratch, *program.outputs}
    written = {*program.inputs, *program.constants, *filter(_is_empty, known)}
    for loop in program.steps:
        _check_expressions(loop)
        _check_writes(loop)
        _assert(len(loop.body) == 1 or not is_call(loop), "calls beside other statements", loop)
        _assert(reads(loop) <= written, "reads before anything is written", loop)
        written |= writes(loop)
    _assert(written <= known, "uses buffers that the program does not list", program)
    _assert(set(program.outputs) <= written, "does not write all outputs", program)


def _is_empty(buffer: Buffer) -> bool:
    return 0 in buffer.shape


def _check_expressions(loop: Loop) -> None:
    for expr in expressions(loop):
        if isinstance(expr, Index):
            _assert(expr.axis < len(loop.domain), "uses an axis that it does not have", loop)
        if isinstance(expr, Load):
            _assert(len(expr.index) == expr.buffer.ndim, "indexes with too few or many axes", loop)
            _assert(all(i.dtype == "int64" for i in expr.index), "indexes not by int64", loop)
    _assert(not reads(loop) & writes(loop), "reads what it writes", loop)


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


def _assert(condition: bool, what: str, where: Loop | Program) -> None:
    assert condition, f"a loop {what}: {where}"
