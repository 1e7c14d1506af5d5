r"""``(a + b / m) * m -> a * m + b`` for ``m = exp(x)``: do not divide by what the sum is multiplied with.

.. code::

    (a + b / exp(x)) * exp(x)  ->  a * exp(x) + b

The gradient of a Poisson likelihood with respect to the logarithm of its rate is of the left form, once its rows are summed:
:math:`(\sum y / m - n) m`. PyTensor's ``local_greedy_distributor`` does so where it saves an operation, which it does not where
``a`` is a sum itself. There, where :math:`m = e^x` underflows, from :math:`x = -745` on, the left side is :math:`\infty \cdot 0`, and the right one
has the limit. Here the other terms stay together, so that a division is saved for any number of them.

An exponential is never zero but by underflow, hence the rule is about these alone: of any other ``m`` the product at 0 stays
as upstream has it. Where ``m`` is infinite, both sides are infinite with the sign of ``a``, or nan if ``a`` is 0. Elsewhere they differ by the
rounding of ``b / m * m``, at most :math:`\epsilon b`; the sum cancels in the one as in the other.
"""

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import add, mul, neg
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all, multiply_all
from pymc_fastlogp.analysis.elemwise import in_type, is_made_by, negated, operands


@node_rewriter([mul])
def local_quotient_times_exp(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``(a + b / exp(x)) * exp(x) -> a * exp(x) + b``."""
    [out] = node.outputs
    if out.type.dtype not in float_dtypes:
        return None
    for factor in node.inputs:
        if not _is_exp(factor):
            continue
        for total in node.inputs:
            if len(fgraph.clients[total]) == 1 and (parts := _split(total, factor)):
                others = [*node.inputs]
                # One of each: the same exponential may be there twice.
                others.remove(factor)
                others.remove(total)
                others = [in_type(x, out.type.dtype) for x in others]
                rest, numerators = parts
                product = mul(add_all(rest), *others, factor)
                rewritten = add(product, *(multiply_all([b, *others]) for b in numerators))
                if out.type.is_super(rewritten.type):
                    copy_stack_trace(out, rewritten)
                    return [rewritten]
    return None


def _is_exp(x: TensorVariable) -> bool:
    """Return whether ``x`` is an exponential, whatever axes of length one it was given."""
    while type(x.owner_op) is DimShuffle:
        x = x.owner.inputs[0]
    return is_made_by(x, ps.Exp)


def _split(
    total: TensorVariable, m: TensorVariable
) -> tuple[list[TensorVariable], list[TensorVariable]] | None:
    """Return the terms of a sum without ``m`` below, and the numerators of those over ``m``; None if there are not both."""
    rest: list[TensorVariable] = []
    numerators: list[TensorVariable] = []
    for term in _terms(total):
        numerator = _numerator(term, m)
        if numerator is None:
            rest.append(term)
        else:
            numerators.append(numerator)
    return (rest, numerators) if rest and numerators else None


def _terms(total: TensorVariable) -> list[TensorVariable]:
    if total.type.dtype not in float_dtypes:  # a sum of integers goes round
        return []
    if difference := operands(total, ps.Sub):
        first, second = difference
        return [*(_terms(first) or [first]), neg(second)]
    return operands(total, ps.Add)


def _numerator(term: TensorVariable, m: TensorVariable) -> TensorVariable | None:
    """Return ``b`` if a term is ``b / m``, with either sign."""
    if (positive := negated(term)) is not None:
        numerator = _numerator(positive, m)
        return None if numerator is None else neg(numerator)
    quotient = operands(term, ps.TrueDiv)
    return quotient[0] if quotient and quotient[1] is m else None
