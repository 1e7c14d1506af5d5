"""The rules about rows as one rewriter of the graph: one after the other, over one view of what rows read."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import NodeRewriter, SequentialGraphRewriter, out2in
from pytensor.graph.rewriting.db import SequenceDB

from pymc_fastlogp.rewrites.rows.reads import SharedReads


class RowRewriter(SequentialGraphRewriter):
    """Apply the rules; what rows read is shared by all of them, and forgotten after the last."""

    def apply(self, fgraph: FunctionGraph) -> Any:  # PyTensor's profile
        """Apply one rule after the other to the whole graph."""
        shared = SharedReads()
        fgraph.attach_feature(shared)
        try:
            # The rules calculate with data. A square that overflows in one of them is none of the user's.
            with np.errstate(all="ignore"):
                return super().apply(fgraph)
        finally:
            fgraph.remove_feature(shared)

    def get_node_rewriters(self) -> Iterator[NodeRewriter]:
        """Yield the rules, as other rewriters of graphs do theirs."""
        for walking in self.data:
            yield walking.node_rewriter


class RowRules(SequenceDB):
    """Node rewriters, each of which is applied to a whole graph before the next, as registered.

    As an entry of ``stabilize`` it is what a query selects of it: a rule can be excluded by its name.
    """

    seq_rewriter_type = RowRewriter

    def register(self, name: str, rewriter: NodeRewriter, *tags: str, **kwargs: Any) -> None:
        """Register a rule for the queries that select ``stabilize``, too."""
        rewriter.name = name
        walking = out2in(rewriter, ignore_newtrees=True)
        # Below that of `stabilize`, so that no cutoff comes between the rules.
        position = len(self.__position__) / 100
        super().register(name, walking, *tags, "stabilize", position=position, **kwargs)
