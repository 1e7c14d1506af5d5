r"""``gammaln(a + k) - gammaln(a)``: the logarithm of a rising factorial, in terms that keep their digits.

.. code::

    gammaln(a[g] + k) - gammaln(a[g])  ->  (log(a) - J(a + 1))[g] + R(a[g], k, log1p(a)[g]) + 1 - k

``k`` is constant, and ``a`` not negative; where some ``k`` are zero, the right side is that for 1, times zero there. The two terms of the left stand anywhere in a sum, with opposite signs. Negative binomial, beta-binomial and
Dirichlet-multinomial have ``k`` for a count, Student's t has 1/2.

For large :math:`a` both terms are about :math:`a \log a`, and their difference about :math:`k \log a`: it is made of
the digits of :math:`a \log a` behind the 16th, of none from :math:`a = 10^{16}` on. Rows that are
:mod:`compacted <pymc_fastlogp.rewrites.rows.compact_rows>` lose more, since each term is summed apart. On the right, with Stirling's formula
:math:`\log\Gamma(x) = (x - 1/2) \log x - x + \tfrac12 \log 2\pi + J(x)` and
:math:`\Gamma(a + 1) = a \, \Gamma(a)`, :math:`b = a + 1`, :math:`m = k - 1`,

.. math::

    \log\Gamma(a + k) - \log\Gamma(a) &= \log a + \log\Gamma(b + m) - \log\Gamma(b) \\
    &= \log a - m - J(b) + R, \qquad R = m \log b + (b + m - \tfrac12) \log(1 + m/b) + J(b + m)

no term is much larger than the whole: the two of :math:`R` are about :math:`m \log b` and :math:`m` where :math:`m < b`, and add up to
about :math:`m \log m` like the whole where :math:`m > b`. The step from :math:`a` to :math:`a + 1` does that for small :math:`a`,
where :math:`k \log a` and :math:`J(a)` would cancel. So each term may be summed over rows by itself. Only :math:`R` reads :math:`a` and :math:`k`
together, and it reads the logarithm of :math:`b` where that is shared, so that a row has one logarithm of its own, as gammaln had. The derivative
:math:`\psi(a + k) - \psi(a)` keeps its digits, too: see :mod:`~pymc_fastlogp.rewrites.scalars.binet`.

From :math:`k = 1/2` on polynomials for :math:`J` are at hand; a smaller one that is not zero is refused. Rows that each have an ``a`` of their own are, too:
their terms are not summed apart, and they would have three logarithms instead of two.

At :math:`a = 0` both sides are :math:`-\infty`, or nan where :math:`k = 0`, and both are nan where ``a`` is infinite; but of
``a = exp(x)`` the logarithm is ``x``, also where the exponential underflows.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.scalar.math import GammaLn
from pytensor.tensor.basic import constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import add, log, log1p, neg, softplus, sub
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise, negated, operand, operands
from pymc_fastlogp.analysis.gathers import MOVES
from pymc_fastlogp.analysis.ranges import is_nonnegative
from pymc_fastlogp.rewrites.rows.hoist_distinct import grids
from pymc_fastlogp.rewrites.rows.reads import reads_of
from pymc_fastlogp.rewrites.scalars.binet import binet, rising

DTYPE = "float64"
# So many rows at least read the same entry of `a`, on average.
FEWER = 2
# Sums within sums deeper than this are left whole; the walk is recursive.
DEEPEST = 20
# Below, J(a + k) would need another polynomial.
LEAST = 0.5


class Affine(NamedTuple):
    """A constant, and multiples of variables."""

    constant: np.ndarray
    multiples: dict[TensorVariable, float]


class Signed(NamedTuple):
    """A term of a sum, or the negative of it."""

    x: TensorVariable
    is_negative: bool


class Pair(NamedTuple):
    """``gammaln(a + k)`` and the ``gammaln(a)`` of opposite sign."""

    high: Signed
    low: Signed
    a: TensorVariable
    k: np.ndarray


@node_rewriter([add, sub])
def local_rising_factorial(fgraph: FunctionGraph, node: Apply) -> list[TensorVariable] | None:
    """Rewrite ``gammaln(a + k) - gammaln(a)`` within a sum."""
    [out] = node.outputs
    if out.type.dtype != DTYPE or _is_part_of_sum(fgraph, out):
        return None
    terms = [*_terms(out, is_negative=False)]
    pairs = [pair for pair in _paired(terms) if _has_fewer_entries(fgraph, pair.a, out)]
    if not pairs:
        return None
    replaced = {id(term) for pair in pairs for term in (pair.high, pair.low)}
    rest = [term for term in terms if id(term) not in replaced]
    total = _total([*rest, *map(_log_rising, pairs)])
    if not out.type.is_super(total.type):
        return None
    copy_stack_trace(out, total)
    return [total]


def _is_part_of_sum(fgraph: FunctionGraph, x: TensorVariable) -> bool:
    """Whether a larger sum reads ``x``, where all terms are seen together."""
    return any(is_elemwise(client.op, ps.Add, ps.Sub) for client, _ in fgraph.clients[x])


def _terms(x: TensorVariable, *, is_negative: bool) -> Iterator[Signed]:
    """Yield what is added up, through sums, differences and signs."""
    stack = [Signed(x, is_negative)]
    while stack:
        term = stack.pop()
        if added := operands(term.x, ps.Add):
            stack += [Signed(part, term.is_negative) for part in reversed(added)]
        elif difference := operands(term.x, ps.Sub):
            first, second = difference
            stack += [Signed(second, not term.is_negative), Signed(first, term.is_negative)]
        elif (positive := negated(term.x)) is not None:
            stack.append(Signed(positive, not term.is_negative))
        else:
            yield term


def _paired(terms: Sequence[Signed]) -> list[Pair]:
    """Return terms of opposite signs whose arguments differ by a constant; each is in one pair at most."""
    waiting = {
        id(term): (term, x, _affine(x)) for term in terms if (x := _argument(term)) is not None
    }
    pairs = []
    for low, a, below in [*waiting.values()]:
        others = [*waiting.values()] if id(low) in waiting and is_nonnegative(a) else []
        for high, _, above in others:
            k = _step(below, above) if high.is_negative != low.is_negative else None
            if k is not None:
                del waiting[id(low)], waiting[id(high)]
                pairs.append(Pair(high, low, a, k))
                break
    return pairs


def _argument(term: Signed) -> TensorVariable | None:
    """Return ``x`` of ``gammaln(x)``."""
    x = operand(term.x, GammaLn)
    return x if x is not None and x.type.dtype == DTYPE else None


def _step(below: Affine, above: Affine) -> np.ndarray | None:
    """Return ``k`` if ``above`` is ``below + k``, for one that is zero or at least 1/2."""
    if below.multiples != above.multiples or not below.multiples:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        k = np.asarray(above.constant - below.constant)
        is_exact = np.array_equal(below.constant + k, above.constant + np.zeros_like(k))
    in_range = np.isfinite(k) & ((k == 0) | (k >= LEAST))
    return k if is_exact and k.any() and in_range.all() else None


def _affine(x: TensorVariable) -> Affine:
    """Return ``x`` as a constant and multiples of what is no sum, or one of more parts than :data:`DEEPEST`."""

    @cache
    def affine(x: TensorVariable, depth: int) -> Affine:
        if isinstance(x, TensorConstant):
            return Affine(np.asarray(x.data, dtype=DTYPE), {})
        parts = _multiples(x) if depth < DEEPEST else []
        if not parts:
            return Affine(np.array(0.0), {x: 1.0})
        return _combined([(affine(part, depth + 1), by) for part, by in parts])

    return affine(x, 0)


def _multiples(x: TensorVariable) -> list[tuple[TensorVariable, float]]:
    """Return what is added up to ``x``, each with a number that it is multiplied by; nothing if ``x`` is no sum."""
    if added := operands(x, ps.Add):
        return [(part, 1.0) for part in added]
    if difference := operands(x, ps.Sub):
        return [(difference[0], 1.0), (difference[1], -1.0)]
    factors = operands(x, ps.Mul)
    numbers = [number for factor in factors if (number := fill_value(factor)) is not None]
    if factors and len(numbers) == len(factors) - 1:
        [other] = [factor for factor in factors if fill_value(factor) is None]
        return [(other, float(np.prod(numbers)))]
    return []


def _combined(parts: Sequence[tuple[Affine, float]]) -> Affine:
    """Return a sum of multiples."""
    number: np.ndarray = np.array(0.0)
    multiples: dict[TensorVariable, float] = {}
    for part, factor in parts:
        number = number + factor * part.constant
        for x, multiple in part.multiples.items():
            multiples[x] = multiples.get(x, 0.0) + factor * multiple
    return Affine(number, multiples)


def _has_fewer_entries(fgraph: FunctionGraph, a: TensorVariable, out: TensorVariable) -> bool:
    """Whether ``a`` is one number, or has at most half as many different entries as there are rows."""
    shape = a.type.shape
    if None in shape or None in out.type.shape:
        return False
    if prod(shape) == 1 or FEWER * prod(shape) <= prod(out.type.shape):
        return True
    for axes in grids(a):
        where = {axis: k for k, axis in enumerate(axes)}
        lengths = tuple(shape[axis] for axis in axes)
        codes = reads_of(fgraph, lengths).codes(a, where)
        if codes is not None and FEWER * codes.n_cells <= prod(lengths):
            return True
    return False


def _log_rising(pair: Pair) -> Signed:
    """Return what replaces a pair."""
    a, k = _as_gathered(pair.a), pair.k
    is_step = k > 0
    safe = np.where(is_step, k, 1.0)
    logarithm = _of_entries(_log, a)
    if (safe != 1).any():
        of_a = _of_entries(_log_minus_binet, a)
        whole = rising(a, constant(safe), _of_entries(_log1p, a))
        logarithm = add(of_a, whole, constant(1 - safe))
    if not is_step.all():
        # A switch takes longer, and its gradient has another.
        logarithm = constant(is_step.astype(DTYPE)) * logarithm
    return Signed(logarithm, pair.high.is_negative)


def _of_entries(f: Callable[[TensorVariable], TensorVariable], x: TensorVariable) -> TensorVariable:
    """Return ``f(x)``, of what entries are gathered from before they are."""
    if isinstance(x.owner_op, MOVES):
        return x.owner.op(_of_entries(f, x.owner.inputs[0]), *x.owner.inputs[1:])
    return f(x)


def _log(x: TensorVariable) -> TensorVariable:
    exponent = operand(x, ps.Exp)
    return log(x) if exponent is None else exponent


def _log1p(x: TensorVariable) -> TensorVariable:
    exponent = operand(x, ps.Exp)
    return log1p(x) if exponent is None else softplus(exponent)


def _log_minus_binet(x: TensorVariable) -> TensorVariable:
    return sub(_log(x), binet(add(x, constant(np.ones((1,) * x.type.ndim)))))


def _as_gathered(x: TensorVariable) -> TensorVariable:
    """Return ``f(u, v)[g]`` for ``f(u[g], v[g])``, anything else as it is."""
    inputs = x.owner.inputs if isinstance(x.owner_op, Elemwise) else []
    gathers = [part.owner for part in inputs if isinstance(part.owner_op, AdvancedSubtensor)]
    if not gathers or len(gathers) < len(inputs):
        return x
    first, *others = gathers
    if all(
        gather.op == first.op
        and gather.inputs[1:] == first.inputs[1:]
        and gather.inputs[0].type.shape == first.inputs[0].type.shape
        for gather in others
    ):
        return first.op(x.owner.op(*(gather.inputs[0] for gather in gathers)), *first.inputs[1:])
    return x


def _total(terms: Sequence[Signed]) -> TensorVariable:
    """Return the sum."""
    signed = [neg(x) if is_negative else x for x, is_negative in terms]
    return add(*signed) if len(signed) > 1 else signed[0]
