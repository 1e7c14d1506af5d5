"""Traversal of expressions, statements and loops, and the buffers that they read and write."""

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
    """Yield the loops of steps in order, including those inside sequential loops."""
    for step in steps:
        if isinstance(step, Loop):
            yield step
        else:
            yield from loops_in(step.steps)


def all_loops(program: Program) -> Iterator[Loop]:
    """Yield the loops of a program in order, then the loops of its fallback."""
    yield from loops_in(program.steps)
    if program.fallback:
        yield from all_loops(program.fallback.program)


def with_loops(steps: Sequence[Step], change: Callable[[Loop], Sequence[Loop]]) -> tuple[Step, ...]:
    """Return steps in which ``change`` replaces each loop, including those inside sequential loops."""
    new: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            new += change(step)
        elif inner := with_loops(step.steps, change):
            new.append(replace(step, steps=inner))
    return tuple(new)


def sequential_loops(steps: Sequence[Step]) -> Iterator[SequentialLoop]:
    """Yield all sequential loops, outer loops first."""
    for step in steps:
        if isinstance(step, SequentialLoop):
            yield step
            yield from sequential_loops(step.steps)


def counters(steps: Sequence[Step]) -> Iterator[Buffer]:
    """Yield the counters of all sequential loops."""
    yield from (loop.counter for loop in sequential_loops(steps))


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression."""
    if isinstance(expr, Load):
        return expr.index
    return expr.args if isinstance(expr, Compute) else ()


def roots(statement: Statement) -> tuple[Expr, ...]:
    """Return the root expressions of a statement."""
    if isinstance(statement, Check):
        return (statement.condition,)
    if isinstance(statement, Call):
        given = (argument for argument in statement.arguments if not isinstance(argument, str))
        return (*statement.index, *statement.failed, *given)
    return (*statement.index, statement.value)


def walk(exprs: Sequence[Expr], done: Container[Expr] = ()) -> Iterator[Expr]:
    """Yield each subexpression once, operands first; expressions in ``done`` are skipped and not descended into."""
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
    """Return whether one of the indices occurs in expressions."""
    return any(expr in indices for expr in walk(exprs) if isinstance(expr, Index))


def is_uniform(expr: Expr) -> bool:
    """Return whether an expression is loop-invariant: it contains no index."""
    return not any(isinstance(part, Index) for part in walk([expr]))


def expressions(loop: Loop) -> Iterator[Expr]:
    """Yield each expression of a loop once, operands first."""
    return walk(_roots_of_loop(loop))


def _roots_of_loop(loop: Loop) -> list[Expr]:
    invariant = [expr for expr in (loop.when, loop.first) if expr is not None]
    return [*invariant, *(root for statement in loop.body for root in roots(statement))]


def reads_directly(expr: Expr) -> bool:
    """Return whether no index of a load contains another load."""
    loads = (part for part in walk([expr]) if isinstance(part, Load))
    return not any(isinstance(part, Load) for load in loads for part in walk(load.index))


def reads(step: Step) -> frozenset[Buffer]:
    """Return the buffers that a step loads from; cached on the step."""
    if "reads" not in vars(step):
        every = [root for loop in loops_in((step,)) for root in _roots_of_loop(loop)]
        vars(step)["reads"] = frozenset(loaded(every))
    return vars(step)["reads"]


def loaded(exprs: Sequence[Expr]) -> set[Buffer]:
    """Return the buffers that expressions load from.

    The buffers are cached on each expression, since passes ask repeatedly and expressions share operands.
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
    """Return the buffers that a step writes; cached on the step."""
    if "writes" not in vars(step):
        every = (statement for loop in loops_in((step,)) for statement in updates(loop))
        vars(step)["writes"] = frozenset(statement.buffer for statement in every)
    return vars(step)["writes"]


def loads(loop: Loop) -> list[Load]:
    """Return the loads of a loop."""
    return [expr for expr in expressions(loop) if isinstance(expr, Load)]


def updates(loop: Loop) -> list[Write]:
    """Return the statements of a loop that write a buffer, which are all but checks."""
    return [statement for statement in loop.body if not isinstance(statement, Check)]


def elements(loop: Loop) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the buffer and index of each element that a loop reads or writes."""
    for access in (*loads(loop), *updates(loop)):
        yield access.buffer, access.index


def is_ordered(loop: Loop) -> bool:
    """Return whether the order of iterations matters, so that axes must not be interchanged."""
    in_order = (
        isinstance(s, PrefixSum) or (isinstance(s, Store) and s.in_order) for s in loop.body
    )
    return any(in_order) or is_call(loop)


def is_call(loop: Loop) -> bool:
    """Return whether a loop has a library call; cached on the loop."""
    if "is_call" not in vars(loop):
        vars(loop)["is_call"] = any(isinstance(statement, Call) for statement in loop.body)
    return vars(loop)["is_call"]
