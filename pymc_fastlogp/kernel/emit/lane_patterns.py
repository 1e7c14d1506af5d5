"""How the expressions of a loop change: with which axes, and from lane to lane.

The *level* of an expression is the number of loops around the place where it can be evaluated first:
0 before the outermost loop, and one more than the largest axis whose index it contains otherwise.

The *slope* is by how much an index grows from one lane to the next, where the lanes are neighbours along
the inner axis. It is 0 for what does not contain the inner index, and an integer for what is affine in it
with constant coefficient, by

.. code-block:: text

    slope(i) = 1    slope(a + b) = slope(a) + slope(b)    slope(c a) = c slope(a), c constant

and is None for everything else, such as a gathered index. So ``x[i]``, ``x[n - 1 - i]`` and
``x[2 * i + 1]`` are known to be a load of neighbours, and gathers with a constant stride.
The *run* is how often an expression is the same in neighbouring lanes, on average: as often as what it varies with. It is known of the
constant indices of scatters.
"""

from dataclasses import dataclass, field
from math import inf

from pytensor.scalar.basic import Add, Mul, Sub

from pymc_fastlogp.kernel.emit.shared_scalars import Shared, find_shared
from pymc_fastlogp.kernel.ir.expressions import Compute, Const, Expr, Index
from pymc_fastlogp.kernel.ir.loops import Accumulate, Loop
from pymc_fastlogp.kernel.ir.traversal import expressions, operands


@dataclass(frozen=True, eq=False)
class Pattern:
    """Level and slope of each expression of a loop, and what belongs together.

    Attributes
    ----------
    depth : int
        Number of axes.
    level : dict of Expr to int
        From 0 to ``depth``.
    slope : dict of Expr to int or None
        Along the inner axis.
    shared : dict of Compute to Shared
        What is computed together.
    run : dict of Expr to float
        Mean lengths of runs: infinity for what does not contain the inner index, 0 where nothing is known.
    """

    depth: int
    level: dict[Expr, int]
    slope: dict[Expr, int | None]
    shared: dict[Compute, Shared] = field(default_factory=dict)
    run: dict[Expr, float] = field(default_factory=dict)

    def level_of(self, exprs: tuple[Expr, ...]) -> int:
        """Return the level at which several expressions are known."""
        return max((self.level[expr] for expr in exprs), default=0)

    def is_uniform(self, exprs: tuple[Expr, ...]) -> bool:
        """Whether no expression changes along the inner axis; nothing does where there is none."""
        return self.depth > 0 and self.level_of(exprs) < self.depth

    def is_injective(self, index: tuple[Expr, ...]) -> bool:
        """Whether an index is known to be another one in each lane."""
        return any(self.slope[expr] for expr in index)

    def has_runs(self, index: tuple[Expr, ...], width: int) -> bool:
        """Whether an index comes in runs that are on average as long as a vector."""
        return width > 1 and all(self.run[expr] >= width for expr in index)


def analyse(loop: Loop) -> Pattern:
    """Return the pattern of a loop."""
    depth = len(loop.domain)
    pattern = Pattern(depth, {}, {}, find_shared(expressions(loop)))
    for expr in expressions(loop):
        above = pattern.level_of(operands(expr))
        pattern.level[expr] = expr.axis + 1 if isinstance(expr, Index) else above
        pattern.slope[expr] = _slope(pattern, expr)
    known = _known_runs(pattern, loop)
    for expr in expressions(loop):
        pattern.run[expr] = known.get(expr, _run(pattern, expr))
    return pattern


def _known_runs(pattern: Pattern, loop: Loop) -> dict[Expr, int]:
    """Return how long the runs of indices are that something is accumulated by."""
    known: dict[Expr, int] = {}
    for statement in loop.body:
        if isinstance(statement, Accumulate) and statement.neighbours:
            varying = [i for i in statement.index if pattern.level[i] == pattern.depth]
            if len(varying) == 1:
                known[varying[0]] = statement.neighbours.run
    return known


def _run(pattern: Pattern, expr: Expr) -> float:
    if pattern.level[expr] < pattern.depth:
        return inf
    if isinstance(expr, Compute):
        return min((pattern.run[arg] for arg in expr.args), default=inf)
    return 0


def _slope(pattern: Pattern, expr: Expr) -> int | None:
    if pattern.level[expr] < pattern.depth or pattern.depth == 0:
        return 0
    if isinstance(expr, Index):
        return 1
    if not isinstance(expr, Compute) or expr.dtype != "int64":
        return None
    slopes = [pattern.slope[arg] for arg in expr.args]
    if None in slopes:
        return None
    combine = _COMBINE.get(type(expr.op))
    return combine(expr.args, slopes) if combine else None


def _product(args: tuple[Expr, ...], slopes: list[int]) -> int | None:
    """Return the slope of a product of constants and at most one other factor."""
    varying = [slope for slope in slopes if slope]
    factors = [
        arg.value for arg, slope in zip(args, slopes) if not slope and isinstance(arg, Const)
    ]
    if len(varying) != 1 or len(factors) != len(args) - 1:
        return None
    slope = varying[0]
    for factor in factors:
        slope *= int(factor)
    return slope


_COMBINE = {
    Add: lambda args, slopes: sum(slopes),
    Sub: lambda args, slopes: slopes[0] - slopes[1],
    Mul: _product,
}
