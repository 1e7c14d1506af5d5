"""Run the row rules in sequence as one graph rewriter, with shared caches of the columns that rows read."""

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
# The types of an Op and of its scalar Op: hashed faster than an Op, whose hash includes all its properties.
type Kind = tuple[type, type]


def _kind(op: Op) -> Kind:
    return type(op), type(getattr(op, "scalar_op", None))


class Walk(WalkingGraphRewriter):
    """Apply a rule to the nodes that it tracks, from outputs to inputs, but not to its own replacements.

    Parameters
    ----------
    rule : NodeRewriter
        A rule that tracks Ops. PyTensor's own walk would call it for all nodes.
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
    """Apply the rules with shared caches, which are detached after the last rule.

    PyTensor repeats a rewriter until the graph is unchanged. A graph to which no rule applied is skipped.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._settled: tuple[ReferenceType[FunctionGraph], Structure] | None = None

    def apply(self, fgraph: FunctionGraph) -> Any:  # PyTensor's profile
        """Apply one rule after another to the whole graph."""
        before = _structure(fgraph)
        if self._settled is not None:
            of, structure = self._settled
            if of() is fgraph and structure == before:
                return SequentialGraphRewriter().apply(fgraph)
        profile = self._apply_with_features(fgraph)
        self._settled = (ref(fgraph), before) if _structure(fgraph) == before else None
        return profile

    def _apply_with_features(self, fgraph: FunctionGraph) -> Any:
        shared = SharedReads(), ReadersByLength()
        try:
            for feature in shared:
                fgraph.attach_feature(feature)
            # Warnings of the rules' own arithmetic, such as an overflowing square, do not concern the user.
            with np.errstate(all="ignore"):
                return super().apply(fgraph)
        finally:
            for feature in shared:
                fgraph.remove_feature(feature)

    def get_node_rewriters(self) -> Iterator[NodeRewriter]:
        """Yield the rules, as other graph rewriters do."""
        for walking in self.data:
            yield walking.node_rewriter


def _structure(fgraph: FunctionGraph) -> Structure:
    """Return a key of the graph's structure; object ids, so that no object is kept alive."""
    nodes = {id(node): (id(node.op), *map(id, node.inputs)) for node in fgraph.apply_nodes}
    return nodes | {0: tuple(map(id, fgraph.outputs))}


class RowRules(SequenceDB):
    """Database of node rewriters, each applied to the whole graph before the next, in order of registration.

    ``stabilize`` contains the database, and a query can exclude a rule by its name.
    """

    seq_rewriter_type = RowRewriter

    def register(self, name: str, rewriter: NodeRewriter, *tags: str, **kwargs: Any) -> None:
        """Register a rule, also for queries that select ``stabilize``."""
        rewriter.name = name
        walking = Walk(rewriter)
        # Below the position of `stabilize`, so that no cutoff separates the rules.
        position = len(self.__position__) / 100
        super().register(name, walking, *tags, "stabilize", position=position, **kwargs)
