"""Rewrite the terms of a log density in one graph, and record the decisions of the rules by term.

Each variable and potential has a term, and the terms are the outputs of the graph. Terms share
subgraphs as they do in the sum that is sampled. A decision about a node belongs to all terms that
depend on the node.
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
    """Record of the decisions about each term of a graph while the graph is rewritten.

    A refusal gets the number of rows of its reduction.
    """

    def __init__(self, fgraph: FunctionGraph) -> None:
        self.fgraph = fgraph
        self._decisions: defaultdict[int, list[Decision]] = defaultdict(list)

    def hear(self, decision: Decision) -> None:
        """Record a decision about a node of this graph, but not of the inner graph of a node."""
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
        """Yield the decisions about a term, without refusals of variables that a later rewrite replaced."""
        decisions = self._decisions[term]
        # Rules are applied again to replacements, and to the rows that a rule has made.
        made = {n for d in decisions if d.fired for n in (d.rows_after, d.loop)} - {None}
        for d in decisions:
            if d.fired or (d.variable in self.fgraph.variables and d.rows_before not in made):
                yield d


def rewrite_terms(
    terms: Sequence[TensorVariable], *, on: bool = True
) -> tuple[FunctionGraph, Recorder]:
    """Rewrite copies of the terms as PyMC and nutpie do before the gradient, plugin on or off.

    Returns
    -------
    FunctionGraph
        Graph with the rewritten terms as outputs.
    Recorder
        Decisions of the rules.
    """
    from pymc_fastlogp._upstream.pymc import rewrite_pregrad

    fgraph = FunctionGraph(outputs=list(terms), clone=True, copy_inputs=False)
    recorder = Recorder(fgraph)
    with switched(on), heard_by(recorder.hear):
        rewrite_pregrad(fgraph)
    return fgraph, recorder


def terms_reached(fgraph: FunctionGraph, node: Apply) -> set[int]:
    """Return the positions of the outputs that depend on a node."""
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
    """Return the number of entries that a reduction combines for each result; None if unknown."""
    if not isinstance(node.op, CAReduce):
        return None
    reduction = parse_reduction(node)
    lengths = reduction.lengths_of(reduction.axes)
    return None if lengths is None else prod(lengths)
