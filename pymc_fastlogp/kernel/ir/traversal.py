"""Traversal of expressions, statements and loops, and their reads and writes."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Index, Load
from pymc_fastlogp.kernel.ir.loops import (
    Call,
    Check,
    Loop,
    PrefixSum,
    Program,
    SequentialLoop,
    Statement,
    Step,
    Store,
    Write,
)


def loops_in(steps: Sequence[Step]) -> Iterator[Loop]:
    """Yield the loops of steps in order, also those that are repeated, once."""
    for step in steps:
        if isinstance(step, Loop):
            yield step
        else:
            yield from loops_in(step.steps)


def all_loops(program: Program) -> Iterator[Loop]:
    """Yield the loops of a program in order, also those that run only again."""
    yield from loops_in(program.steps)
    if program.fallback:
        yield from all_loops(program.fallback.program)


def with_loops(steps: Sequence[Step], change: Callable[[Loop], Sequence[Loop]]) -> tuple[Step, ...]:
    """Return steps with others in place of each loop, also of those that are repeated."""
    new: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            new += change(step)
        elif inner := with_loops(step.steps, change):
            new.append(replace(step, steps=inner))
    return tuple(new)


def repeats(steps: Sequence[Step]) -> Iterator[SequentialLoop]:
    """Yield all that is repeated, what is outside first."""
    for step in steps:
        if isinstance(step, SequentialLoop):
            yield step
            yield from repeats(step.steps)


def counters(steps: Sequence[Step]) -> Iterator[Buffer]:
    """Yield the counters of all that is repeated."""
    yield from (repeat.counter for repeat in repeats(steps))


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that an expression is made of."""
    if isinstance(expr, Load):
        return expr.index
    return expr.args if isinstance(expr, Compute) else ()


def roots(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates."""
    if isinstance(statement, Check):
        return (statement.condition,)
    if isinstance(statement, Call):
        given = (argument for argument in statement.arguments if not isinstance(argument, str))
        return (*statement.index, *statement.failed, *given)
    return (*statement.index, statement.value)


def walk(exprs: Sequence[Expr], done: Container[Expr] = ()) -> Iterator[Expr]:
    """Yield each expression below these once, operands first, but for those that are done, and what is below them alone."""
    seen: set[Expr] = set()
    stack = [(expr, False) for expr in reversed(exprs)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in seen and expr not in done:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((operand, False) for operand in reversed(operands(expr)))


def depends_on(exprs: Sequence[Expr], *indices: Index) -> bool:
    """Return whether one of some indices occurs in expressions."""
    return any(expr in indices for expr in walk(exprs) if isinstance(expr, Index))


def is_uniform(expr: Expr) -> bool:
    """Return whether an expression is the same for all indices of a loop."""
    return not any(isinstance(part, Index) for part in walk([expr]))


def expressions(loop: Loop) -> Iterator[Expr]:
    """Yield each expression of a loop once, operands first."""
    return walk(_roots_of_loop(loop))


def _roots_of_loop(loop: Loop) -> list[Expr]:
    when = [] if loop.when is None else [loop.when]
    return [*when, *(root for statement in loop.body for root in roots(statement))]


def reads_directly(expr: Expr) -> bool:
    """Return whether no position that is read depends on what is read."""
    loads = (part for part in walk([expr]) if isinstance(part, Load))
    return not any(isinstance(part, Load) for load in loads for part in walk(load.index))


def reads(step: Step) -> frozenset[Buffer]:
    """Return the buffers that a loop, or what is repeated, loads from; the step keeps the answer."""
    if "reads" not in vars(step):
        every = [root for loop in loops_in((step,)) for root in _roots_of_loop(loop)]
        vars(step)["reads"] = frozenset(loaded(every))
    return vars(step)["reads"]


def loaded(exprs: Sequence[Expr]) -> set[Buffer]:
    """Return the buffers that expressions load from.

    Passes ask again and again, and expressions share operands: each keeps what was found below it.
    """
    pending = list(exprs)
    while pending:
        expr = pending[-1]
        missing = [operand for operand in operands(expr) if "loaded" not in vars(operand)]
        if missing:
            pending.extend(missing)
            continue
        own = (expr.buffer,) if isinstance(expr, Load) else ()
        below = (vars(operand)["loaded"] for operand in operands(expr))
        vars(expr)["loaded"] = frozenset(own).union(*below)
        pending.pop()
    return set().union(*(vars(expr)["loaded"] for expr in exprs))


def writes(step: Step) -> frozenset[Buffer]:
    """Return the buffers that a loop, or what is repeated, stores to or accumulates in; the step keeps the answer."""
    if "writes" not in vars(step):
        every = (statement for loop in loops_in((step,)) for statement in updates(loop))
        vars(step)["writes"] = frozenset(statement.buffer for statement in every)
    return vars(step)["writes"]


def loads(loop: Loop) -> list[Load]:
    """Return the elements that a loop reads."""
    return [expr for expr in expressions(loop) if isinstance(expr, Load)]


def updates(loop: Loop) -> list[Write]:
    """Return the statements of a loop that write a buffer: all but checks."""
    return [statement for statement in loop.body if not isinstance(statement, Check)]


def elements(loop: Loop) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the elements that a loop reads or writes, as the buffer and the index."""
    for access in (*loads(loop), *updates(loop)):
        yield access.buffer, access.index


def is_ordered(loop: Loop) -> bool:
    """Return whether the order in which a loop runs counts, so that its axes must stay as they are."""
    in_order = (
        isinstance(s, PrefixSum) or (isinstance(s, Store) and s.in_order) for s in loop.body
    )
    return any(in_order) or is_call(loop)


def is_call(loop: Loop) -> bool:
    """Return whether a loop calls a library; the loop keeps the answer."""
    if "is_call" not in vars(loop):
        vars(loop)["is_call"] = any(isinstance(statement, Call) for statement in loop.body)
    return vars(loop)["is_call"]
