r"""Affine integer expressions: the form that tells how an index moves with those of the loop.

.. math::

    e = \sum_k c_k i_k + r

with integers :math:`c_k`, indices of loops :math:`i_k`, and a rest :math:`r` without them. It follows from

.. math::

    (e + f)_k = e_k + f_k, \qquad (e - f)_k = e_k - f_k, \qquad (c e)_k = c \, e_k .

So ``x[i]``, ``x[n - 1 - i]`` and ``x[2 * i + 1]`` are affine in i with the coefficients 1, -1 and 2;
``x[n * i]`` is not, where n is a length that is known when the kernel is called, nor is a gather ``x[g[i]]``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pytensor import scalar as ps

from pymc_fastlogp.kernel.ir.arithmetic import ZERO, minus, plus, times
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr, Index
from pymc_fastlogp.kernel.ir.traversal import operands, walk


@dataclass(frozen=True)
class Affine:
    """A sum of indices times integers, none of them 0, and a rest in which none of the indices occurs."""

    rest: Expr
    coefficients: dict[Index, int] = field(default_factory=dict)

    def coefficient(self, index: Index) -> int:
        """Return by how much the expression grows with an index."""
        return self.coefficients.get(index, 0)


def affine(expr: Expr, indices: Sequence[Index]) -> Affine | None:
    """Return the affine form of an int64 expression in some indices, None where it has none; others are part of the rest."""
    forms: dict[Expr, Affine | None] = {}
    for part in walk([expr]):
        forms[part] = _form(part, indices, forms)
    return forms[expr]


def _form(expr: Expr, indices: Sequence[Index], forms: dict[Expr, Affine | None]) -> Affine | None:
    """Return the form of an expression of operands whose forms are known."""
    if expr in indices:
        assert isinstance(expr, Index)
        return Affine(ZERO, {expr: 1})
    if all(_is_rest(operand, forms[operand]) for operand in operands(expr)):
        return Affine(expr)
    if not isinstance(expr, Compute) or expr.dtype != "int64" or type(expr.op) not in _COMBINE:
        return None
    total, *others = (forms[arg] for arg in expr.args)
    for other in others:
        if total is None or other is None:
            return None
        total = _COMBINE[type(expr.op)](total, other)
    return total


def _is_rest(expr: Expr, form: Affine | None) -> bool:
    """Return whether an expression of this form is without the indices."""
    return form is not None and form.rest is expr


def coefficient(expr: Expr, index: Index) -> int | None:
    """Return by how much an expression grows with an index, None where it is not affine in it."""
    found = affine(expr, [index])
    return None if found is None else found.coefficient(index)


def _linear(factor: int, combined: Callable[[Expr, Expr], Expr], a: Affine, b: Affine) -> Affine:
    """Return ``a + factor b``, whose rest is that of both combined."""
    found = {
        k: a.coefficient(k) + factor * b.coefficient(k) for k in a.coefficients | b.coefficients
    }
    return Affine(combined(a.rest, b.rest), {k: c for k, c in found.items() if c})


def _product(a: Affine, b: Affine) -> Affine | None:
    """Return the product of a constant and another factor."""
    if not a.coefficients and isinstance(a.rest, Const):
        a, b = b, a
    if b.coefficients or not isinstance(b.rest, Const):
        return None if a.coefficients or b.coefficients else Affine(times(a.rest, b.rest))
    factor = int(b.rest.value)
    coefficients = {k: c * factor for k, c in a.coefficients.items() if factor}
    return Affine(times(a.rest, b.rest), coefficients)


_COMBINE: dict[type[ps.ScalarOp], Callable[[Affine, Affine], Affine | None]] = {
    ps.Add: partial(_linear, 1, plus),
    ps.Sub: partial(_linear, -1, minus),
    ps.Mul: _product,
}
