"""Two terms of a sum, ``gammaln(a + k)`` and ``gammaln(a)`` of opposite sign, whose digits cancel."""

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

from pymc_fastlogp.analysis.algebra import Signed, add_all, flatten_sum
from pymc_fastlogp.analysis.elemwise import is_made_by, negated, operand
from pymc_fastlogp.analysis.gathers import SELECTIONS
from pymc_fastlogp.rewrites.rows.compact.affine import Affine, affine, difference
from pymc_fastlogp.rewrites.rows.compact.hoist_distinct import grids
from pymc_fastlogp.rewrites.rows.view.columns import is_asked_again, reads_of

# A sum of more terms is left alone: of `u + (u + v)` twenty times in a row, it would have a million.
MOST_TERMS = 2_000

# So many rows at least read the same entry of `a`, on average.
FEWER = 2

# What an argument has so many times, and whether the term is subtracted.
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
        """Return what the lower one is of."""
        return self.low.x


def with_pairs_replaced(
    fgraph: FunctionGraph,
    node: Apply,
    accepts: Callable[[Pair, TensorVariable], bool],
    replacement: Callable[[Pair], TensorVariable],
) -> dict[Variable, Variable] | None:
    """Return what takes the place of the sums that read a log-Gamma: something else stands for each accepted pair, where ``a`` has fewer entries than there are rows.

    A model without log-Gammas is asked for nothing, where most have sums.
    """
    replaced: dict[Variable, Variable] = {}
    for out in sums_of(fgraph, node.outputs[0]):
        # Once for a sum, however many it has.
        if is_asked_again(fgraph, replacement, out):
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
    made = [Signed(replacement(pair), pair.high.term.is_negative) for pair in pairs]
    return _total([*rest, *made])


def sums_of(fgraph: FunctionGraph, term: TensorVariable) -> list[TensorVariable]:
    """Return the largest sums that a term is in, where all terms are seen together, the outer ones first."""
    sums: dict[TensorVariable, None] = {}
    reached, waiting = {term}, [term]
    while waiting:
        x = waiting.pop()
        above = [out for client, _ in fgraph.clients[x] for out in client.outputs]
        larger = [y for y in above if is_made_by(y, ps.Add, ps.Sub)]
        if is_made_by(x, ps.Add, ps.Sub) and not larger:
            sums[x] = None
        negative = [y for y in above if negated(y) is x]
        found = [y for y in dict.fromkeys((*larger, *negative)) if y not in reached]
        reached.update(found)
        waiting += found
    return [*reversed(sums)]


def _paired(terms: Sequence[Signed], accepts: Callable[[Pair], bool]) -> list[Pair]:
    """Return terms of opposite signs whose arguments differ by what is accepted; each is in one pair at most."""
    waiting = Waiting(
        LogGamma(term, x, affine(x))
        for term in terms
        if (x := operand(term.x, GammaLn)) is not None and x.type.dtype == term.x.type.dtype
    )
    pairs = []
    for low in waiting.all():
        found = (_pair(high, low) for high in waiting.opposite_to(low))
        pair = next((pair for pair in found if pair is not None and accepts(pair)), None)
        if pair is not None:
            waiting.remove(pair.high)
            waiting.remove(pair.low)
            pairs.append(pair)
    return pairs


class Waiting:
    """Terms that are in no pair yet, by what their arguments are sums of: no term is compared with all others."""

    def __init__(self, given: Iterable[LogGamma]):
        self._terms = {id(each.term): each for each in given}
        self._by_part: dict[Part, dict[int, LogGamma]] = defaultdict(dict)
        for key, each in self._terms.items():
            for part in _parts(each):
                self._by_part[part][key] = each

    def all(self) -> Iterator[LogGamma]:
        """Yield the terms in order, without those that were removed meanwhile."""
        return (each for key, each in [*self._terms.items()] if key in self._terms)

    def opposite_to(self, low: LogGamma) -> Iterable[LogGamma]:
        """Return those of the other sign that have at least one part of a term, the one that fewest have."""
        opposite = [
            self._by_part.get((x, multiple, not is_negative), {})
            for x, multiple, is_negative in _parts(low)
        ]
        return min(opposite, key=len, default={}).values()

    def remove(self, each: LogGamma) -> None:
        """Take a term that is in a pair."""
        del self._terms[id(each.term)]
        for part in _parts(each):
            del self._by_part[part][id(each.term)]


def _parts(each: LogGamma) -> list[Part]:
    return [(x, by, each.term.is_negative) for x, by in each.affine.multiples.items()]


def _pair(high: LogGamma, low: LogGamma) -> Pair | None:
    """Return two terms of opposite signs as a pair if they can be one."""
    k = difference(high.affine, low.affine)
    return None if k is None else Pair(high, low, k)


def _has_fewer_entries(fgraph: FunctionGraph, a: TensorVariable, out: TensorVariable) -> bool:
    """Return whether ``a`` is one number, or has at most half as many different entries as there are rows."""
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


def of_entries(f: Callable[[TensorVariable], TensorVariable], x: TensorVariable) -> TensorVariable:
    """Return ``f(x)``, of what entries are gathered from before they are."""
    if isinstance(x.owner_op, SELECTIONS):
        return x.owner.op(of_entries(f, x.owner.inputs[0]), *x.owner.inputs[1:])
    return f(x)


def as_gathered(x: TensorVariable) -> TensorVariable:
    """Return ``f(u, v)[g]`` for ``f(u[g], v[g])`` of tables that are known to be as long as each other, anything else as it is."""
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
