"""Replacing expressions inside expressions, statements and loops."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Load
from pymc_fastlogp.kernel.ir.loops import Call, Check, Loop, Statement
from pymc_fastlogp.kernel.ir.traversal import operands, roots, walk

# Takes an expression whose operands have been replaced, returns another for it, or None.
Replacement = Callable[[Expr], Expr | None]
# Takes an expression as it was, too, before the one with the replaced operands.
ReplacementOf = Callable[[Expr, Expr], Expr | None]
Element = tuple[Expr, ...]


def substitute(statements: Sequence[Statement], replacement: Replacement) -> tuple[Statement, ...]:
    """Return statements in which each expression is replaced; what they share is replaced once."""
    new = _replaced([root for each in statements for root in roots(each)], replacement)
    return tuple(_with_roots(statement, new) for statement in statements)


class Substitution:
    """Replaces expressions in one statement after another; what statements share is replaced once.

    Parameters
    ----------
    replacement : callable
        See :data:`Replacement`.
    """

    def __init__(self, replacement: Replacement):
        self._replacement = replacement
        self._new: dict[Expr, Expr] = {}

    def of(self, statement: Statement) -> Statement:
        """Return a statement in which each expression is replaced."""
        _replace(roots(statement), lambda _, rebuilt: self._replacement(rebuilt), self._new)
        return _with_roots(statement, self._new)

    def forget(self) -> None:
        """Forget what expressions were replaced by, which from now on may be something else."""
        self._new.clear()


def substitute_in_loop(loop: Loop, replacement: Replacement) -> Loop:
    """Return a loop in whose statements each expression is replaced."""
    return replace(loop, body=substitute(loop.body, replacement))


def substitute_in_loop_by_origin(loop: Loop, replacement: ReplacementOf) -> Loop:
    """Return a loop in whose statements each expression is replaced, by one that may depend on what it was."""
    new = _replaced_by_origin([root for each in loop.body for root in roots(each)], replacement)
    return replace(loop, body=tuple(_with_roots(statement, new) for statement in loop.body))


def substitute_in_element(element: Element, replacement: Replacement) -> Element:
    """Return an index in which each expression is replaced."""
    new = _replaced(element, replacement)
    return tuple(new[i] for i in element)


def redirect_loads(copies: dict[Buffer, Buffer]) -> Replacement:
    """Return the replacement that takes loads of some buffers to the same elements of others."""

    def redirected(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and expr.buffer in copies:
            return Load(copies[expr.buffer], expr.index)
        return None

    return redirected


def _replaced(exprs: Sequence[Expr], replacement: Replacement) -> dict[Expr, Expr]:
    """Return for all that is below expressions what takes its place."""
    return _replaced_by_origin(exprs, lambda _, rebuilt: replacement(rebuilt))


def _replaced_by_origin(exprs: Sequence[Expr], replacement: ReplacementOf) -> dict[Expr, Expr]:
    new: dict[Expr, Expr] = {}
    _replace(exprs, replacement, new)
    return new


def _replace(exprs: Sequence[Expr], replacement: ReplacementOf, new: dict[Expr, Expr]) -> None:
    """Add what takes the place of all that is below expressions, and is not there yet."""
    for expr in walk(exprs, new):
        rebuilt = _with_operands(expr, tuple(new[operand] for operand in operands(expr)))
        new[expr] = replacement(expr, rebuilt) or rebuilt


def _with_roots(statement: Statement, new: dict[Expr, Expr]) -> Statement:
    if isinstance(statement, Check):
        return replace(statement, condition=new[statement.condition])
    index = tuple(new[i] for i in statement.index)
    if not isinstance(statement, Call):
        return replace(statement, index=index, value=new[statement.value])
    failed = tuple(new[i] for i in statement.failed)
    arguments = tuple(a if isinstance(a, str) else new[a] for a in statement.arguments)
    return replace(statement, index=index, failed=failed, arguments=arguments)


def _with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    if new == operands(expr):
        return expr
    if isinstance(expr, Load):
        return Load(expr.buffer, new)
    return Compute(expr.op, new, expr.dtype) if isinstance(expr, Compute) else expr
