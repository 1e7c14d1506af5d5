"""The rules about rows as one rewriter of the graph: one after the other, over one view of what rows read."""

import time
from collections.abc import Iterator
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import (
    NodeRewriter,
    SequentialGraphRewriter,
    WalkingGraphRewriter,
)
from pytensor.graph.rewriting.db import SequenceDB

from pymc_fastlogp.rewrites.rows.order.readers import ReadersByLength
from pymc_fastlogp.rewrites.rows.view.columns import SharedReads, order_of

type Structure = dict[int, tuple[int, ...]]
# The type of an Op, and that of its scalar Op if it has one: looked up faster than an Op, whose hash is made of all its properties.
type Kind = tuple[type, type]


def _kind(op: Op) -> Kind:
    return type(op), type(getattr(op, "scalar_op", None))


class Walk(WalkingGraphRewriter):
    """Apply a rule to the nodes that it tracks, from outputs to inputs, and not to what it makes of them.

    Parameters
    ----------
    rule : NodeRewriter
        One that names its Ops. PyTensor's own walk asks it about all nodes.
    """

    def __init__(self, rule: NodeRewriter):
        super().__init__(
            rule, "out_to_in", ignore_newtrees=True, failure_callback=self.warn_inplace
        )
        self._tracked = rule.tracks() or ()
        self._is_tracked: dict[Kind, bool] = {}

    def _may_be_tracked(self, op: Op) -> bool:
        kind = _kind(op)
        if kind not in self._is_tracked:
            self._is_tracked[kind] = any(
                issubclass(kind[0], tracked)
                if isinstance(tracked, type)
                else kind == _kind(tracked)
                for tracked in self._tracked
            )
        return self._is_tracked[kind]

    def apply(self, fgraph: FunctionGraph, start_from: Any = None) -> Any:  # PyTensor's profile
        """Apply the rule to the graph."""
        n_before, callbacks_before = len(fgraph.apply_nodes), fgraph.execute_callbacks_time
        start = time.perf_counter()
        nodes = [node for node in order_of(fgraph) if self._may_be_tracked(node.op)]
        sorted_at = time.perf_counter()
        n_changed = sum(
            self.process_node(fgraph, node)
            for node in reversed(nodes)
            if node in fgraph.apply_nodes
        )
        times = sorted_at - start, time.perf_counter() - sorted_at
        callbacks = fgraph.execute_callbacks_time - callbacks_before
        n_after = len(fgraph.apply_nodes)
        return self, n_changed, n_before, n_after, *times, callbacks, self.node_rewriter


class RowRewriter(SequentialGraphRewriter):
    """Apply the rules; what rows read is shared by all of them, and forgotten after the last.

    PyTensor asks again and again, until nothing has changed. A graph to which no rule applied is not looked at a second time.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._settled: tuple[ReferenceType[FunctionGraph], Structure] | None = None

    def apply(self, fgraph: FunctionGraph) -> Any:  # PyTensor's profile
        """Apply one rule after the other to the whole graph."""
        before = _structure(fgraph)
        if self._settled is not None:
            of, structure = self._settled
            if of() is fgraph and structure == before:
                return SequentialGraphRewriter().apply(fgraph)
        profile = self._apply(fgraph)
        self._settled = (ref(fgraph), before) if _structure(fgraph) == before else None
        return profile

    def _apply(self, fgraph: FunctionGraph) -> Any:
        shared = SharedReads(), ReadersByLength()
        try:
            for feature in shared:
                fgraph.attach_feature(feature)
            # The rules calculate with data. A square that overflows in one of them is none of the user's.
            with np.errstate(all="ignore"):
                return super().apply(fgraph)
        finally:
            for feature in shared:
                fgraph.remove_feature(feature)

    def get_node_rewriters(self) -> Iterator[NodeRewriter]:
        """Yield the rules, as other rewriters of graphs do theirs."""
        for walking in self.data:
            yield walking.node_rewriter


def _structure(fgraph: FunctionGraph) -> Structure:
    """Return what is equal for a graph that has not changed; by numbers, so that nothing is kept alive."""
    nodes = {id(node): (id(node.op), *map(id, node.inputs)) for node in fgraph.apply_nodes}
    return nodes | {0: tuple(map(id, fgraph.outputs))}


class RowRules(SequenceDB):
    """Node rewriters, each of which is applied to a whole graph before the next, as registered.

    As an entry of ``stabilize`` it is what a query selects of it: a rule can be excluded by its name.
    """

    seq_rewriter_type = RowRewriter

    def register(self, name: str, rewriter: NodeRewriter, *tags: str, **kwargs: Any) -> None:
        """Register a rule for the queries that select ``stabilize``, too."""
        rewriter.name = name
        walking = Walk(rewriter)
        # Below that of `stabilize`, so that no cutoff comes between the rules.
        position = len(self.__position__) / 100
        super().register(name, walking, *tags, "stabilize", position=position, **kwargs)
