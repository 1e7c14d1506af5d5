"""A program as text, for people, tests and cache keys."""

from collections.abc import Callable, Iterator, Sequence

from pymc_fastlogp.kernel.ir.expressions import (
    Buffer,
    Compute,
    Const,
    Expr,
    Index,
    Length,
    Load,
    Size,
)
from pymc_fastlogp.kernel.ir.loops import (
    Accumulate,
    Again,
    Call,
    Check,
    Loop,
    Program,
    Scan,
    Statement,
    Step,
)
from pymc_fastlogp.kernel.ir.traversal import expressions


def as_text(program: Program) -> str:
    """Return a program as text; two programs with the same text compile to the same code."""
    lines = [
        *(f"{buffer.role.value} {_declared(buffer)}" for buffer in _buffers(program)),
        *_step_lines(program.steps),
        *(
            f"status {i}: {error.type.__name__}({error.message!r})"
            for i, error in enumerate(program.errors, 1)
        ),
        *_again_lines(program.again),
    ]
    return "\n".join(lines) + "\n"


def _buffers(program: Program) -> tuple[Buffer, ...]:
    return (*program.inputs, *program.constants, *program.scratch, *program.outputs)


def _declared(buffer: Buffer) -> str:
    data = f" = {buffer.data.hex()}" if buffer.data else ""
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(_size, buffer.shape))}]{data}"


def _step_lines(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Loop):
            yield from _loop_lines(step)
        else:
            yield f"repeat {step.counter.name} {_size(step.length)}:"
            yield from (f"    {line}" for line in _step_lines(step.steps))


def _again_lines(again: Again | None) -> Iterator[str]:
    if again is None:
        return
    yield f"again if {again.failed.name}[]:"
    program = again.program
    own = (*program.constants, *program.scratch)
    yield from (f"    {buffer.role.value} {_declared(buffer)}" for buffer in own)
    yield from (f"    {line}" for line in _step_lines(program.steps))


def _loop_lines(loop: Loop) -> Iterator[str]:
    when = "" if loop.when is None else f" when {_size(loop.when)}"
    yield f"loop {', '.join(map(_size, loop.domain))}{when}:"
    names: dict[Expr, str] = {}
    for expr in expressions(loop):
        if isinstance(expr, Const | Index | Length):
            names[expr] = _size(expr)
            continue
        names[expr] = f"%{len(names)}"
        operation = _expression(expr, names.__getitem__)
        form = f"load {operation}" if isinstance(expr, Load) else f"{operation} {expr.dtype}"
        yield f"    {names[expr]} = {form}"
    yield from (f"    {_statement(statement, names)}" for statement in loop.body)


def _statement(statement: Statement, names: dict[Expr, str]) -> str:
    if isinstance(statement, Check):
        return f"return {statement.status} unless {names[statement.condition]}"
    element = _element(statement.buffer, statement.index, names.__getitem__)
    if isinstance(statement, Call):
        return f"{element} = {_call(statement, names)}"
    if isinstance(statement, Scan):
        return f"{element} = running {statement.op} of {names[statement.value]}"
    if isinstance(statement, Accumulate):
        return f"{element} {statement.op}= {names[statement.value]}{_neighbours(statement)}"
    return f"{element} = {names[statement.value]}{' in order' if statement.in_order else ''}"


def _call(call: Call, names: dict[Expr, str]) -> str:
    arguments = (a if isinstance(a, str) else names[a] for a in call.arguments)
    failed = f" nan at [{', '.join(names[i] for i in call.failed)}]" if call.failed else ""
    return f"{call.function}({', '.join(arguments)}){failed}"


def _neighbours(statement: Accumulate) -> str:
    known = statement.neighbours
    return f" (in runs of {known.run}, equal ones {known.gap} apart)" if known else ""


def _size(size: Size) -> str:
    return str(size) if isinstance(size, int) else _expression(size, _size)


def _expression(expr: Expr, name: Callable[[Expr], str]) -> str:
    """Return an expression of operands that have names."""
    match expr:
        case Const(value, dtype):
            return repr(value) if dtype in ("int64", "float64") else f"{value!r}:{dtype}"
        case Index(axis):
            return f"i{axis}"
        case Length(number, axis):
            return f"len(x{number}, {axis})"
        case Load(buffer, index):
            return _element(buffer, index, name)
        case Compute(op, args):
            return f"{op}({', '.join(map(name, args))})"


def _element(buffer: Buffer, index: tuple[Expr, ...], name: Callable[[Expr], str]) -> str:
    return f"{buffer.name}[{', '.join(map(name, index))}]"
