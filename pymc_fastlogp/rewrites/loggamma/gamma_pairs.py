"""Find pairs ``gammaln(a + k)`` and ``gammaln(a)`` of opposite sign in a sum, whose digits cancel.

:mod:`~pymc_fastlogp.rewrites.loggamma.rising_factorial` and :mod:`~pymc_fastlogp.rewrites.loggamma.gamma_difference` replace
these pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import copy_stack_trace
from pytensor.scalar.math import GammaLn
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import neg
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.affine import Affine, affine, difference
from pymc_fastlogp.analysis.algebra import Signed, add_all, flatten_sum
from pymc_fastlogp.analysis.elemwise import is_made_by, negated, operand
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.rewrites.rows.compact.hoist_distinct import grids
from pymc_fastlogp.rewrites.rows.view.columns import is_repeated_query, reads_of

# Bound on the expanded terms, which grow exponentially in nested sums such as `u + (u + v)`.
MOST_TERMS = 2_000

# Minimum average number of rows that share an entry of `a`.
MIN_SHARING = 2

# A variable in an argument, its multiple, and whether the term is subtracted.
type Part = tuple[TensorVariable, float, bool]


class LogGamma(NamedTuple):
    """A term ``gammaln(x)``."""

    term: Signed
    x: TensorVariable
    affine: Affine


class Pair(NamedTuple):
    """``gammaln(a + k)`` and the ``gammaln(a)`` of opposite sign."""

    high: LogGamma
    low: LogGamma
    k: Affine

    @property
    def a(self) -> TensorVariable:
        """Return the argument of the lower term."""
        return self.low.x


def with_pairs_replaced(
    fgraph: FunctionGraph,
    node: Apply,
    accepts: Callable[[Pair, TensorVariable], bool],
    replacement: Callable[[Pair], TensorVariable],
) -> dict[Variable, Variable] | None:
    """Return replacements for the sums that contain a ``gammaln`` node, with each accepted pair replaced.

    The rules start at ``gammaln``, not at sums, so that models without one cost nothing. In each pair, ``a`` must have fewer
    distinct entries than there are rows.
    """
    replaced: dict[Variable, Variable] = {}
    for out in sums_of(fgraph, node.outputs[0]):
        # Once per sum, not once per gammaln in the sum.
        if is_repeated_query(fgraph, replacement, out):
            continue
        total = _with_pairs_replaced(fgraph, out, accepts, replacement)
        if total is not None and out.type.is_super(total.type):
            copy_stack_trace(out, total)
            replaced[out] = total
    return replaced or None


def _with_pairs_replaced(
    fgraph: FunctionGraph,
    out: TensorVariable,
    accepts: Callable[[Pair, TensorVariable], bool],
    replacement: Callable[[Pair], TensorVariable],
) -> TensorVariable | None:
    """Return a sum in which ``replacement`` stands for each accepted pair that pays off, None if no pair does."""
    terms = [*islice(flatten_sum(out), MOST_TERMS + 1)]
    if len(terms) > MOST_TERMS:
        return None
    pairs = [
        pair
        for pair in _paired(terms, lambda pair: accepts(pair, out))
        if _has_fewer_entries(fgraph, pair.a, out)
    ]
    if not pairs:
        return None
    replaced = {id(x.term) for pair in pairs for x in (pair.high, pair.low)}
    rest = [term for term in terms if id(term) not in replaced]
    new = [Signed(replacement(pair), pair.high.term.is_negative) for pair in pairs]
    return _total([*rest, *new])


def sums_of(fgraph: FunctionGraph, term: TensorVariable) -> list[TensorVariable]:
    """Return the outermost sums that contain a term, through signs and nested sums."""
    sums: dict[TensorVariable, None] = {}
    reached, pending = {term}, [term]
    while pending:
        x = pending.pop()
        above = [out for client, _ in fgraph.clients[x] for out in client.outputs]
        larger = [y for y in above if is_made_by(y, ps.Add, ps.Sub)]
        if is_made_by(x, ps.Add, ps.Sub) and not larger:
            sums[x] = None
        negative = [y for y in above if negated(y) is x]
        found = [y for y in dict.fromkeys((*larger, *negative)) if y not in reached]
        reached.update(found)
        pending += found
    return [*reversed(sums)]


def _paired(terms: Sequence[Signed], accepts: Callable[[Pair], bool]) -> list[Pair]:
    """Return accepted pairs of terms of opposite signs. Each term is in one pair at most."""
    unpaired = Unpaired(
        LogGamma(term, x, affine(x))
        for term in terms
        if (x := operand(term.x, GammaLn)) is not None and x.type.dtype == term.x.type.dtype
    )
    pairs = []
    for low in unpaired.all():
        candidates = (_pair(high, low) for high in unpaired.opposite_to(low))
        pair = next((pair for pair in candidates if pair is not None and accepts(pair)), None)
        if pair is not None:
            unpaired.remove(pair.high)
            unpaired.remove(pair.low)
            pairs.append(pair)
    return pairs


class Unpaired:
    """Terms without a pair, indexed by the summands of their arguments to avoid quadratic comparisons."""

    def __init__(self, terms: Iterable[LogGamma]):
        self._terms = {id(each.term): each for each in terms}
        self._by_part: dict[Part, dict[int, LogGamma]] = defaultdict(dict)
        for key, each in self._terms.items():
            for part in _parts(each):
                self._by_part[part][key] = each

    def all(self) -> Iterator[LogGamma]:
        """Yield the terms in order, without terms removed during the iteration."""
        return (each for key, each in [*self._terms.items()] if key in self._terms)

    def opposite_to(self, low: LogGamma) -> Iterable[LogGamma]:
        """Return terms of opposite sign that share the rarest part of a term."""
        opposite = [
            self._by_part.get((x, multiple, not is_negative), {})
            for x, multiple, is_negative in _parts(low)
        ]
        return min(opposite, key=len, default={}).values()

    def remove(self, each: LogGamma) -> None:
        """Remove a term that got a pair."""
        del self._terms[id(each.term)]
        for part in _parts(each):
            del self._by_part[part][id(each.term)]


def _parts(each: LogGamma) -> list[Part]:
    return [(x, by, each.term.is_negative) for x, by in each.affine.multiples.items()]


def _pair(high: LogGamma, low: LogGamma) -> Pair | None:
    """Return two terms as a pair if the difference of their arguments is affine."""
    k = difference(high.affine, low.affine)
    return None if k is None else Pair(high, low, k)


def _has_fewer_entries(fgraph: FunctionGraph, a: TensorVariable, out: TensorVariable) -> bool:
    """Return whether ``a`` is a scalar, or has at most half as many distinct entries as ``out`` has entries."""
    shape = a.type.shape
    if None in shape or None in out.type.shape:
        return False
    if prod(shape) == 1 or MIN_SHARING * prod(shape) <= prod(out.type.shape):
        return True
    for axes in grids(a):
        where = {axis: k for k, axis in enumerate(axes)}
        lengths = tuple(shape[axis] for axis in axes)
        codes = reads_of(fgraph, lengths).codes(a, where)
        if codes is not None and MIN_SHARING * codes.n_cells <= prod(lengths):
            return True
    return False


def of_entries(f: Callable[[TensorVariable], TensorVariable], x: TensorVariable) -> TensorVariable:
    """Return ``f(x)``, with ``f`` applied before gathers and broadcasts."""
    if isinstance(x.owner_op, SELECTIONS):
        return x.owner.op(of_entries(f, x.owner.inputs[0]), *x.owner.inputs[1:])
    return f(x)


def as_gathered(x: TensorVariable) -> TensorVariable:
    """Return ``f(u, v)[g]`` for ``f(u[g], v[g])`` with tables of equal static shape, any other ``x`` unchanged."""
    inputs = x.owner.inputs if isinstance(x.owner_op, Elemwise) else []
    gathers = [part.owner for part in inputs if isinstance(part.owner_op, AdvancedSubtensor)]
    if not gathers or len(gathers) < len(inputs):
        return x
    first, *others = gathers
    if all(
        gather.op == first.op
        and gather.inputs[1:] == first.inputs[1:]
        and None not in gather.inputs[0].type.shape
        and gather.inputs[0].type.shape == first.inputs[0].type.shape
        for gather in others
    ):
        return first.op(x.owner.op(*(gather.inputs[0] for gather in gathers)), *first.inputs[1:])
    return x


def _total(terms: Sequence[Signed]) -> TensorVariable:
    """Return the sum."""
    return add_all(neg(x) if is_negative else x for x, is_negative in terms)
