"""Access patterns of a loop: the axes that an expression depends on, and its change from lane to lane.

Level
    Number of loops around the first place where an expression can be evaluated. It is 0 before the outermost loop, and otherwise
    one more than the largest axis whose index the expression contains.
Coefficient
    Change of an index from one lane to the next. Lanes are neighbors along the inner axis, so an index that is affine in the inner
    index (:mod:`pymc_fastlogp.kernel.ir.affine`) has a constant coefficient. A coefficient of 1 makes a load of neighbors,
    and any other constant a gather with a constant stride.
Run length
    Mean number of neighboring lanes in which an expression has the same value. It is the least run length of all operands that vary,
    and is known for the constant indices of scatters.
"""

from collections.abc import Sequence
from math import inf

from pymc_fastlogp.kernel.emit.packs import Pack, find_packs, find_shared
from pymc_fastlogp.kernel.ir.affine import coefficient
from pymc_fastlogp.kernel.ir.expressions import Compute, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop
from pymc_fastlogp.kernel.ir.traversal import expressions, operands


class AccessPatterns:
    """Access pattern of each expression of a loop, which may be within a sequential loop (``is_repeated``).

    Attributes
    ----------
    depth : int
        Number of axes.
    level : dict of Expr to int
        From 0 to ``depth``.
    run : dict of Expr to float
        Run length: infinity for an expression without the inner index, 0 if unknown.
    shared : dict of Compute to Shared
        Functions of the same argument that are evaluated together.
    packs : dict of Compute to Pack
        Functions of different arguments that are evaluated together, in straight-line code of a sequential loop.
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
            self.run[expr] = known.get(expr, self._run_length(expr))
        self.shared = find_shared(exprs)
        is_packed = is_repeated and not self.depth
        self.packs: dict[Compute, Pack] = find_packs(exprs, self.shared) if is_packed else {}

    def level_of(self, exprs: Sequence[Expr]) -> int:
        """Return the level at which all of several expressions are known."""
        return max((self.level[expr] for expr in exprs), default=0)

    def is_uniform(self, exprs: Sequence[Expr]) -> bool:
        """Return whether no expression changes along the inner axis; False for a loop without axes."""
        return self.depth > 0 and self.level_of(exprs) < self.depth

    def coefficient(self, expr: Expr) -> int | None:
        """Return the increment of an expression from lane to lane, None if it is not constant."""
        if self.level[expr] < self.depth:
            return 0
        return coefficient(expr, Index(self.depth - 1))

    def is_injective(self, index: Sequence[Expr]) -> bool:
        """Return whether an index is known to differ between any two lanes."""
        return any(map(self.coefficient, index))

    def has_runs(self, index: Sequence[Expr], width: int) -> bool:
        """Return whether the runs of an index are on average at least as long as a vector."""
        return width > 1 and all(self.run[expr] >= width for expr in index)

    def _known_runs(self, loop: Loop) -> dict[Expr, int]:
        """Return the run lengths of the indices of scatters."""
        known: dict[Expr, int] = {}
        for statement in loop.body:
            if isinstance(statement, Accumulate) and statement.neighbors:
                varying = [i for i in statement.index if self.level[i] == self.depth]
                if len(varying) == 1:
                    known[varying[0]] = statement.neighbors.run
        return known

    def _run_length(self, expr: Expr) -> float:
        """Return a lower bound of the mean run of equal values of an expression along the inner axis, 0 if unknown."""
        if self.level[expr] < self.depth:
            return inf
        if isinstance(expr, Compute):
            return min((self.run[arg] for arg in expr.args), default=inf)
        return 0
