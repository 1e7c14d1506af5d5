"""Programs as text, for readers, tests and cache keys.

Run-time lengths share operands: after repeated slices and joins, each length contains several copies of an earlier length. Written out, the text would grow
exponentially. So a long expression that is used several times gets a name on a separate line:

.. code-block:: text

    size n0 = add(Maximum(sub(len(x0, 0), ...), 0), ...)
    scratch b0: float64[n0]
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

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
    Call,
    Check,
    Fallback,
    Loop,
    ParallelLoop,
    PrefixSum,
    Program,
    Statement,
    Step,
)
from pymc_fastlogp.kernel.ir.traversal import (
    expressions,
    loops_in,
    operands,
    sequential_loops,
    walk,
)

# Most characters of a repeated length without a name.
LONGEST_SIZE = 80

TextOfSize = Callable[[Size], str]


def as_text(program: Program) -> str:
    """Return a program as text. Programs with the same text compile to the same code."""
    names, named = _named_sizes(_sizes(program))

    def size(length: Size) -> str:
        return str(length) if isinstance(length, int) else names[length]

    lines = [
        *named,
        *(f"{buffer.role.value} {_declared(buffer, size)}" for buffer in _buffers(program)),
        *_step_lines(program.steps, size),
        *(
            f"status {i}: {error.type.__name__}({error.message!r})"
            for i, error in enumerate(program.errors, 1)
        ),
        *_fallback_lines(program.fallback, size),
    ]
    return "\n".join(lines) + "\n"


def _buffers(program: Program) -> tuple[Buffer, ...]:
    return (*program.inputs, *program.constants, *program.scratch, *program.outputs)


def _sizes(program: Program) -> Iterator[Size]:
    """Yield the lengths of a program, and the conditions and first indices of its loops."""
    for buffer in _buffers(program):
        yield from buffer.shape
    yield from (loop.length for loop in sequential_loops(program.steps))
    for loop in loops_in(program.steps):
        yield from loop.domain
        yield from (expr for expr in (loop.when, loop.first) if expr is not None)
    if program.fallback:
        yield from _sizes(program.fallback.program)


def _named_sizes(sizes: Iterator[Size]) -> tuple[dict[Expr, str], list[str]]:
    """Return the text of each subexpression of the lengths, and the lines that define names."""
    exprs = [size for size in sizes if not isinstance(size, int)]
    uses = Counter(chain(exprs, *(operands(expr) for expr in walk(exprs))))
    texts: dict[Expr, str] = {}
    lines: list[str] = []
    for expr in walk(exprs):
        text = _expression(expr, texts.__getitem__)
        texts[expr] = text
        if uses[expr] > 1 and len(text) > LONGEST_SIZE:
            texts[expr] = f"n{len(lines)}"
            lines.append(f"size {texts[expr]} = {text}")
    return texts, lines


def _declared(buffer: Buffer, size: TextOfSize) -> str:
    data = f" = {buffer.data.hex()}" if buffer.data else ""
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(size, buffer.shape))}]{data}"


def _step_lines(steps: Sequence[Step], size: TextOfSize) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Loop):
            yield from _loop_lines(step, size)
        else:
            kind = "parallel" if isinstance(step, ParallelLoop) else "repeat"
            yield f"{kind} {step.counter.name} {size(step.length)}:"
            yield from (f"    {line}" for line in _step_lines(step.steps, size))


def _fallback_lines(fallback: Fallback | None, size: TextOfSize) -> Iterator[str]:
    if fallback is None:
        return
    yield f"fallback if {fallback.failed.name}[]:"
    program = fallback.program
    own = (*program.constants, *program.scratch)
    yield from (f"    {buffer.role.value} {_declared(buffer, size)}" for buffer in own)
    yield from (f"    {line}" for line in _step_lines(program.steps, size))


def _loop_lines(loop: Loop, size: TextOfSize) -> Iterator[str]:
    when = "" if loop.when is None else f" when {size(loop.when)}"
    first = "" if loop.first is None else f" from {size(loop.first)}"
    yield f"loop {', '.join(map(size, loop.domain))}{first}{when}:"
    names: dict[Expr, str] = {}
    for expr in expressions(loop):
        if isinstance(expr, Const | Index | Length):
            names[expr] = _expression(expr, names.__getitem__)
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
    if isinstance(statement, PrefixSum):
        return f"{element} = running {statement.op} of {names[statement.value]}"
    if isinstance(statement, Accumulate):
        return f"{element} {statement.op}= {names[statement.value]}{_neighbors(statement)}"
    return f"{element} = {names[statement.value]}{' in order' if statement.in_order else ''}"


def _call(call: Call, names: dict[Expr, str]) -> str:
    arguments = (a if isinstance(a, str) else names[a] for a in call.arguments)
    failed = f" nan at [{', '.join(names[i] for i in call.failed)}]" if call.failed else ""
    return f"{call.function}({', '.join(arguments)}){failed}"


def _neighbors(statement: Accumulate) -> str:
    known = statement.neighbors
    return f" (in runs of {known.run}, equal ones {known.gap} apart)" if known else ""


def _expression(expr: Expr, name: Callable[[Expr], str]) -> str:
    """Return the text of an expression from the names of its operands."""
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
