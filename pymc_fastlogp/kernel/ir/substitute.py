"""Replacing expressions inside expressions and statements."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Load
from pymc_fastlogp.kernel.ir.loops import Call, Check, Statement
from pymc_fastlogp.kernel.ir.traversal import operands, roots, walk

Replacement = Callable[[Expr], Expr | None]


def substitute(statements: Sequence[Statement], replacement: Replacement) -> tuple[Statement, ...]:
    """Return statements in which each expression is replaced.

    Parameters
    ----------
    statements : sequence of Statement
        The statements; what they share is replaced once.
    replacement : callable
        Takes an expression whose operands have been replaced, returns another for it, or None.
    """
    new: dict[Expr, Expr] = {}
    for expr in walk([root for statement in statements for root in roots(statement)]):
        rebuilt = _with_operands(expr, tuple(new[operand] for operand in operands(expr)))
        new[expr] = replacement(rebuilt) or rebuilt
    return tuple(_with_roots(statement, new) for statement in statements)


def _with_roots(statement: Statement, new: dict[Expr, Expr]) -> Statement:
    if isinstance(statement, Check):
        return replace(statement, condition=new[statement.condition])
    if isinstance(statement, Call):
        return _with_arguments(statement, new)
    index = tuple(new[i] for i in statement.index)
    return replace(statement, index=index, value=new[statement.value])


def _with_arguments(call: Call, new: dict[Expr, Expr]) -> Call:
    index, failed = (tuple(new[i] for i in place) for place in (call.index, call.failed))
    arguments = tuple(a if isinstance(a, str) else new[a] for a in call.arguments)
    return replace(call, index=index, failed=failed, arguments=arguments)


def _with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    if new == operands(expr):
        return expr
    if isinstance(expr, Load):
        return Load(expr.buffer, new)
    if isinstance(expr, Compute):
        return Compute(expr.op, new, expr.dtype)
    return expr
