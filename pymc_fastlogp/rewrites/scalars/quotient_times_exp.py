r"""Cancel the division by an exponential that multiplies the sum.

.. code::

    (a + b / exp(x)) * exp(x)  ->  a * exp(x) + b

The gradient of a Poisson likelihood by the logarithm of its rate has this form, once its rows are summed:
:math:`(\sum y / m - n) m` with :math:`m = e^x`. PyTensor's ``local_greedy_distributor`` cancels only where this saves an
operation, not if ``a`` is itself a sum. Where :math:`m` underflows, from :math:`x = -745` on, the left side is
:math:`\infty \cdot 0`, which is NaN, and the right side is the limit ``b``.

Only exponentials are cancelled, because they are zero by underflow alone. Where :math:`m` is infinite, both sides are infinite
with the sign of ``a``, or NaN if ``a`` is 0. Elsewhere both sides differ by the rounding of ``b / m * m``, at most
:math:`\epsilon b`.

When it applies
---------------
To a product of an exponential and a sum with a term that is divided by the same exponential.

When it refuses
---------------
Other denominators, a sum without other terms, a sum with another reader.
"""

import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import add, mul, neg
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import add_all, multiply_all
from pymc_fastlogp.analysis.elemwise import in_type, is_made_by, negated, operands
from pymc_fastlogp.rewrites.replacement import replacement


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
                # Only once each: the exponential may be a factor twice.
                others.remove(factor)
                others.remove(total)
                others = [in_type(x, out.type.dtype) for x in others]
                rest, numerators = parts
                product = mul(add_all(rest), *others, factor)
                rewritten = add(product, *(multiply_all([b, *others]) for b in numerators))
                if new := replacement(out, rewritten):
                    return new
    return None


def _is_exp(x: TensorVariable) -> bool:
    """Return whether ``x`` is an exponential, also below DimShuffles."""
    while type(x.owner_op) is DimShuffle:
        x = x.owner.inputs[0]
    return is_made_by(x, ps.Exp)


def _split(
    total: TensorVariable, m: TensorVariable
) -> tuple[list[TensorVariable], list[TensorVariable]] | None:
    """Return the terms of a sum without the divisor ``m``, and the numerators of terms over ``m``; None if one list is empty."""
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
    if total.type.dtype not in float_dtypes:  # a sum of integers may overflow
        return []
    if difference := operands(total, ps.Sub):
        first, second = difference
        return [*(_terms(first) or [first]), neg(second)]
    return operands(total, ps.Add)


def _numerator(term: TensorVariable, m: TensorVariable) -> TensorVariable | None:
    """Return ``b`` if a term is ``b / m``; ``-b`` for ``-(b / m)``."""
    if (positive := negated(term)) is not None:
        numerator = _numerator(positive, m)
        return None if numerator is None else neg(numerator)
    quotient = operands(term, ps.TrueDiv)
    return quotient[0] if quotient and quotient[1] is m else None
