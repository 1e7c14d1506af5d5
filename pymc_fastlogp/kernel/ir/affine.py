r"""Affine integer expressions: the strides of an index with respect to the loop indices.

.. math::

    e = \sum_k c_k i_k + r

with integers :math:`c_k`, loop indices :math:`i_k`, and a rest :math:`r` that contains none of these indices. Affine forms combine by

.. math::

    (e + f)_k = e_k + f_k, \qquad (e - f)_k = e_k - f_k, \qquad (c e)_k = c \, e_k .

So the indices of ``x[i]``, ``x[n - 1 - i]`` and ``x[2 * i + 1]`` are affine in i with the coefficients 1, -1 and 2. The index of ``x[n * i]`` is not if n is a run-time
length, nor is the index of a gather ``x[g[i]]``.
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
    """A linear combination of loop indices with nonzero integer coefficients, plus a rest without these indices."""

    rest: Expr
    coefficients: dict[Index, int] = field(default_factory=dict)

    def coefficient(self, index: Index) -> int:
        """Return the coefficient of an index."""
        return self.coefficients.get(index, 0)


def affine(expr: Expr, indices: Sequence[Index]) -> Affine | None:
    """Return the affine form of an int64 expression in the given indices, or None; other indices are part of the rest."""
    forms: dict[Expr, Affine | None] = {}
    for part in walk([expr]):
        forms[part] = _form(part, indices, forms)
    return forms[expr]


def _form(expr: Expr, indices: Sequence[Index], forms: dict[Expr, Affine | None]) -> Affine | None:
    """Return the affine form of an expression from the forms of its operands."""
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
    """Return whether an expression with this form contains none of the indices."""
    return form is not None and form.rest is expr


def coefficient(expr: Expr, index: Index) -> int | None:
    """Return the coefficient of an index in an expression, None if the expression is not affine in the index."""
    found = affine(expr, [index])
    return None if found is None else found.coefficient(index)


def _linear(
    factor: int, combine_rests: Callable[[Expr, Expr], Expr], a: Affine, b: Affine
) -> Affine:
    """Return ``a + factor * b``; ``combine_rests`` computes the rest."""
    found = {
        k: a.coefficient(k) + factor * b.coefficient(k) for k in a.coefficients | b.coefficients
    }
    return Affine(combine_rests(a.rest, b.rest), {k: c for k, c in found.items() if c})


def _product(a: Affine, b: Affine) -> Affine | None:
    """Return the product of two forms if one of them is constant, or both are without indices."""
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
