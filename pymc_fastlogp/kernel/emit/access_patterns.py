"""Access patterns of a loop: the axes that an expression depends on, and its change from lane to lane.

The *level* of an expression is the number of loops around the place where it can be evaluated first:
0 before the outermost loop, and one more than the largest axis whose index it contains otherwise.

Lanes are neighbors along the inner axis. So where an index is affine in that of the inner axis
(:mod:`pymc_fastlogp.kernel.ir.affine`), its coefficient tells how far apart the elements of two lanes are: a load of neighbors, or a gather
with a constant stride.
The *run* is how often an expression is the same in neighboring lanes, on average: as often as what it varies with. It is known of the
constant indices of scatters.
"""

from collections.abc import Sequence
from math import inf

from pymc_fastlogp.kernel.emit.packs import Pack, find_packs
from pymc_fastlogp.kernel.emit.shared_functions import find_shared
from pymc_fastlogp.kernel.ir.affine import coefficient
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop
from pymc_fastlogp.kernel.ir.traversal import expressions, operands


class AccessPatterns:
    """Access pattern of each expression of a loop.

    Attributes
    ----------
    depth : int
        Number of axes.
    level : dict of Expr to int
        From 0 to ``depth``.
    run : dict of Expr to float
        Mean lengths of runs: infinity for what does not contain the inner index, 0 where nothing is known.
    shared : dict of Compute to Shared
        What is computed together.
    packs : dict of Compute to Pack
        What is computed together in straight-line code that is repeated.
    """

    def __init__(self, loop: Loop, is_repeated: bool = False):
        exprs = list(expressions(loop))
        self.depth = len(loop.domain)
        self.level: dict[Expr, int] = {}
        for expr in exprs:
            above = self.level_of(operands(expr))
            self.level[expr] = expr.axis + 1 if isinstance(expr, Index) else above
        self.run: dict[Expr, float] = {}
        known = self._known_runs(loop)
        for expr in exprs:
            self.run[expr] = known.get(expr, self._run(expr))
        self.shared = find_shared(exprs)
        is_packed = is_repeated and not self.depth
        self.packs: dict[Compute, Pack] = find_packs(exprs, self.shared) if is_packed else {}

    def level_of(self, exprs: Sequence[Expr]) -> int:
        """Return the level at which several expressions are known."""
        return max((self.level[expr] for expr in exprs), default=0)

    def is_uniform(self, exprs: Sequence[Expr]) -> bool:
        """Return whether no expression changes along the inner axis; nothing does where there is none."""
        return self.depth > 0 and self.level_of(exprs) < self.depth

    def coefficient(self, expr: Expr) -> int | None:
        """Return by how much an expression grows from lane to lane, None where that is not constant."""
        if self.level[expr] < self.depth:
            return 0
        return coefficient(expr, Index(self.depth - 1))

    def is_injective(self, index: Sequence[Expr]) -> bool:
        """Return whether an index is known to be another one in each lane."""
        return any(map(self.coefficient, index))

    def has_runs(self, index: Sequence[Expr], width: int) -> bool:
        """Return whether an index comes in runs that are on average as long as a vector."""
        return width > 1 and all(self.run[expr] >= width for expr in index)

    def _known_runs(self, loop: Loop) -> dict[Expr, int]:
        """Return how long the runs of indices are that something is accumulated by."""
        known: dict[Expr, int] = {}
        for statement in loop.body:
            if isinstance(statement, Accumulate) and statement.neighbors:
                varying = [i for i in statement.index if self.level[i] == self.depth]
                if len(varying) == 1:
                    known[varying[0]] = statement.neighbors.run
        return known

    def _run(self, expr: Expr) -> float:
        if self.level[expr] < self.depth:
            return inf
        if isinstance(expr, Compute):
            return min((self.run[arg] for arg in expr.args), default=inf)
        return 0
