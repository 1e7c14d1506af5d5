"""Substitution of expressions in expressions, statements and loops."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_fastlogp.kernel.ir.expressions import Buffer, Compute, Expr, Load
from pymc_fastlogp.kernel.ir.loops import Call, Check, Loop, Statement
from pymc_fastlogp.kernel.ir.traversal import operands, roots, walk

# Takes an expression with replaced operands; returns a replacement, or None to keep the expression.
Replacement = Callable[[Expr], Expr | None]
# The same, with the original expression as first argument.
ReplacementByOrigin = Callable[[Expr, Expr], Expr | None]
Element = tuple[Expr, ...]


def substitute(statements: Sequence[Statement], replacement: Replacement) -> tuple[Statement, ...]:
    """Return statements with each expression replaced; shared expressions are replaced once."""
    new = _replaced([root for each in statements for root in roots(each)], replacement)
    return tuple(_with_roots(statement, new) for statement in statements)


class Substitution:
    """Substitution in a series of statements; shared expressions are replaced once.

    Parameters
    ----------
    replacement : callable
        See :data:`Replacement`.
    """

    def __init__(self, replacement: Replacement):
        self._replacement = replacement
        self._new: dict[Expr, Expr] = {}

    def of(self, statement: Statement) -> Statement:
        """Return a statement with each expression replaced."""
        _replace(roots(statement), lambda _, rebuilt: self._replacement(rebuilt), self._new)
        return _with_roots(statement, self._new)

    def clear(self) -> None:
        """Clear the cache, after which ``replacement`` may return other results."""
        self._new.clear()


def substitute_in_loop(loop: Loop, replacement: Replacement) -> Loop:
    """Return a loop with each expression of its statements replaced."""
    return replace(loop, body=substitute(loop.body, replacement))


def substitute_in_loop_by_origin(loop: Loop, replacement: ReplacementByOrigin) -> Loop:
    """Return a loop with each expression of its statements replaced, depending on the original expression."""
    new = _replaced_by_origin([root for each in loop.body for root in roots(each)], replacement)
    return replace(loop, body=tuple(_with_roots(statement, new) for statement in loop.body))


def substitute_in_element(element: Element, replacement: Replacement) -> Element:
    """Return an index with each expression replaced."""
    new = _replaced(element, replacement)
    return tuple(new[i] for i in element)


def redirect_loads(copies: dict[Buffer, Buffer]) -> Replacement:
    """Return the replacement that redirects loads from the keys of ``copies`` to the values, at the same index."""

    def redirected(expr: Expr) -> Expr | None:
        if isinstance(expr, Load) and expr.buffer in copies:
            return Load(copies[expr.buffer], expr.index)
        return None

    return redirected


def _replaced(exprs: Sequence[Expr], replacement: Replacement) -> dict[Expr, Expr]:
    """Return the replacement of each subexpression."""
    return _replaced_by_origin(exprs, lambda _, rebuilt: replacement(rebuilt))


def _replaced_by_origin(
    exprs: Sequence[Expr], replacement: ReplacementByOrigin
) -> dict[Expr, Expr]:
    new: dict[Expr, Expr] = {}
    _replace(exprs, replacement, new)
    return new


def _replace(
    exprs: Sequence[Expr], replacement: ReplacementByOrigin, new: dict[Expr, Expr]
) -> None:
    """Add the replacement of each subexpression to ``new``, unless present."""
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
