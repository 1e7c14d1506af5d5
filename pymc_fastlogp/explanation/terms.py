"""Rewrite the terms of a log density side by side, and tie what happens to the terms.

The terms, one for each variable and potential, are the outputs of one graph. They share what the
model lets them share, as they do in the sum that is sampled from, and stay apart. What a rule
looks at belongs to the terms that can be reached from it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.config import switched
from pymc_fastlogp.decisions import Decision, heard_by
from pymc_fastlogp.rewrites.rows.compact.reductions import parse_reduction


class Recorder:
    """Takes down for each term of a graph what is decided about it while it is rewritten.

    Refusals get the number of rows that they are about.
    """

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        self._decisions: defaultdict[int, list[Decision]] = defaultdict(list)

    def hear(self, decision: Decision) -> None:
        """Take down a decision about a node of this graph, not of a graph inside of a node."""
        if decision.variable not in self.fgraph.variables:
            return
        node = decision.variable.owner
        if not decision.fired:
            n = n_rows(node)
            decision = replace(decision, rows_before=n, rows_after=n)
        for term in terms_reached(self.fgraph, node):
            if decision not in self._decisions[term]:
                self._decisions[term].append(decision)

    def standing(self, term: int) -> Iterator[Decision]:
        """Yield the decisions about a term that still hold: all but refusals that were overtaken."""
        decisions = self._decisions[term]
        # A variable is gone when something was put in its place, about which rules were asked anew,
        # and rules may be asked about the rows that they have made, too.
        made = {n for d in decisions if d.fired for n in (d.rows_after, d.loop)} - {None}
        for d in decisions:
            if d.fired or (d.variable in self.fgraph.variables and d.rows_before not in made):
                yield d


def rewrite_terms(
    terms: Sequence[TensorVariable], *, on: bool = True
) -> tuple[FunctionGraph, Recorder]:
    """Rewrite copies of the terms as PyMC and nutpie do before they take the gradient, plugin on or off.

    Returns
    -------
    FunctionGraph
        With the rewritten terms as outputs.
    Recorder
        With what happened.
    """
    from pymc_fastlogp._upstream.pymc import rewrite_pregrad

    fgraph = FunctionGraph(outputs=list(terms), clone=True, copy_inputs=False)
    recorder = Recorder(fgraph)
    with switched(on), heard_by(recorder.hear):
        rewrite_pregrad(fgraph)
    return fgraph, recorder


def terms_reached(fgraph: FunctionGraph, node: Apply) -> set[int]:
    """Return which outputs of the graph depend on a node."""
    reached, seen, to_see = set(), set(), [node]
    while to_see:
        node = to_see.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, Output):
            reached.add(node.op.idx)
        to_see += [client for x in node.outputs for client, _ in fgraph.clients[x]]
    return reached


def n_rows(node: Apply) -> int | None:
    """Return how many entries a reduction goes over for each of its results, if that is known."""
    if not isinstance(node.op, CAReduce):
        return None
    reduction = parse_reduction(node)
    lengths = reduction.lengths_of(reduction.axes)
    return None if lengths is None else prod(lengths)
