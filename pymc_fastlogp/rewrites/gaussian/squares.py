"""Parse a term as the square of an expression that is affine in parameters shared by the rows of a cell.

.. code::

    m * sqr(s * (t + c * h + d * k))        c, d, t constants that vary from row to row

The *scale* ``s`` and the *multiplier* ``m`` are not expanded. The affine core is expanded into monomials. A monomial is
a product of constants, the covariate, times a product of other factors, the parameter. Each factor is viewed row by row
(:mod:`~pymc_fastlogp.rewrites.rows.view.grid`). All rows share the position of a column of a matrix, so
``(X * beta[g]).sum(-1)`` and ``X @ beta`` are sums of monomials, too.

Integer expressions may overflow and are not expanded.

A shared operand, as ``x`` in ``x + k * x``, is expanded once, but its monomials are doubled. A graph of twenty such
steps would have a million monomials. An expression with more than :data:`MOST_MONOMIALS` stays one factor.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.algebra import split_product, split_sum
from pymc_fastlogp.analysis.elemwise import is_made_by, scalar_op, squared
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.analysis.known_data import depends_on_data, is_known
from pymc_fastlogp.rewrites.rows.view.chunks import at_rows
from pymc_fastlogp.rewrites.rows.view.grid import Grid, varies, view_key

# Most columns of an expanded matrix.
MOST_COLUMNS = 256
# Most monomials of an expression, enough for two such matrices. More take seconds to compile.
MOST_MONOMIALS = 600
# Most factors of a monomial. Nested products such as `x * x` double their number, too.
MOST_FACTORS = 256


class Factor(NamedTuple):
    """A factor of a monomial, or a divisor."""

    x: TensorVariable
    where: Where
    divides: bool = False

    @property
    def is_constant(self) -> bool:
        """Return whether the factor is known in each row: a constant, or known with the data."""
        return is_known(self.x)

    @property
    def depends_on_data(self) -> bool:
        """Return whether the factor is known with the data, not before."""
        return depends_on_data(self.x)

    def at(self, grid: Grid, rows: np.ndarray) -> np.ndarray:
        """Return a constant, or its reciprocal, in some rows; shape ``(1,)`` if the same in all rows."""
        picked = grid.pick(self.x.data, self.where)
        picked = picked.reshape(picked.shape[: len(grid.shape)])
        found = picked.reshape(1) if picked.size == 1 else at_rows(picked, rows, grid.shape)
        found = found.astype("float64", copy=False)
        with np.errstate(divide="ignore"):
            return 1 / found if self.divides else found


class Monomial(NamedTuple):
    """A signed product."""

    factors: tuple[Factor, ...]
    is_negative: bool = False

    @property
    def constants(self) -> tuple[Factor, ...]:
        """Return the factors that are known."""
        return tuple(factor for factor in self.factors if factor.is_constant)

    @property
    def unknowns(self) -> tuple[Factor, ...]:
        """Return the factors that are not known."""
        return tuple(factor for factor in self.factors if not factor.is_constant)

    @property
    def depends_on_data(self) -> bool:
        """Return whether a factor is known with the data."""
        return any(factor.depends_on_data for factor in self.factors)

    def at(self, grid: Grid, rows: np.ndarray) -> np.ndarray:
        """Return the product of the constants in some rows, with the sign; shape ``(1,)`` if the same in all rows."""
        sign = np.full(1, -1.0 if self.is_negative else 1.0)
        return reduce(np.multiply, (factor.at(grid, rows) for factor in self.constants), sign)

    def by(self, other: "Monomial") -> "Monomial":
        """Return the product of two monomials."""
        return Monomial((*self.factors, *other.factors), self.is_negative != other.is_negative)

    def inverse(self) -> "Monomial":
        """Return the reciprocal."""
        flipped = (Factor(x, where, not divides) for x, where, divides in self.factors)
        return Monomial(tuple(flipped), self.is_negative)


ONE = Monomial(())


class Square(NamedTuple):
    """``multiplier * sqr(scale * sum(core))``, all of them monomials."""

    multiplier: Monomial
    scale: Monomial
    core: list[Monomial]

    @property
    def unknowns(self) -> list[Factor]:
        """Return the factors that are not known, which must be the same in all rows of a cell."""
        monomials = self.multiplier, self.scale, *self.core
        return [factor for monomial in monomials for factor in monomial.unknowns]


@dataclass(frozen=True)
class Expansion:
    """Cached expansions of the expressions below a sum, which may be shared.

    Attributes
    ----------
    grid : Grid
        All rows.
    squares : dict
        Squares by variable and position.
    monomials : dict
        Sums of monomials by variable and position.
    too_long : set
        Keys of expressions with too many monomials.
    """

    grid: Grid
    squares: dict[Hashable, Square | None] = field(default_factory=dict)
    monomials: dict[Hashable, list[Monomial]] = field(default_factory=dict)
    too_long: set[Hashable] = field(default_factory=set)


def parse_square(expansion: Expansion, x: TensorVariable, where: Where) -> Square | None:
    """Return a term as a square, None if it is not the square of an affine expression."""
    key = view_key(x, where)
    if key not in expansion.squares:
        expansion.squares[key] = _parsed(expansion, x, where)
    return expansion.squares[key]


def _parsed(expansion: Expansion, x: TensorVariable, where: Where) -> Square | None:
    if x.type.dtype not in float_dtypes:
        return None
    base = squared(x)
    if base is not None:
        scale, inner = _peel(expansion, base, where)
        return Square(ONE, scale, monomials(expansion, inner, where))
    factors = split_product(x, cast=False)
    parsed = [parse_square(expansion, factor.x, where) for factor in factors]
    squares = [i for i, square in enumerate(parsed) if square is not None]
    if len(squares) != 1 or factors[squares[0]].is_inverse:
        return None
    square = parsed[squares[0]]
    assert square is not None
    multiplier = square.multiplier
    del factors[squares[0]]
    for factor in factors:
        multiplier = multiplier.by(_whole(expansion, factor.x, where, factor.is_inverse))
    return square._replace(multiplier=multiplier)


def monomials(expansion: Expansion, x: TensorVariable, where: Where) -> list[Monomial]:
    """Return monomials whose sum is ``x`` in each row; a single factor if there would be too many."""
    key = view_key(x, where)
    if key not in expansion.monomials:
        expanded = _expanded(expansion, x, where)
        whole = [Monomial((Factor(x, where),))]
        expansion.monomials[key] = whole if expanded is None else expanded
    return expansion.monomials[key]


def _expanded(expansion: Expansion, x: TensorVariable, where: Where) -> list[Monomial] | None:
    """Return the monomials of a sum, or of a product with a sum; None for other expressions."""
    if x.owner is None or x.type.dtype not in float_dtypes or not varies(x, where):
        return None
    rule = EXPANSIONS.get(type(scalar_op(x) or x.owner.op))
    found = None if rule is None else rule(expansion, x.owner, where)
    if found is None:
        return None
    if len(found) <= MOST_MONOMIALS and all(len(m.factors) <= MOST_FACTORS for m in found):
        return found
    expansion.too_long.add(view_key(x, where))
    return None


def _peel(expansion: Expansion, x: TensorVariable, where: Where) -> tuple[Monomial, TensorVariable]:
    """Split ``x`` into a product of factors and divisors, and a sum."""
    if x.type.dtype not in float_dtypes:
        return ONE, x
    if is_made_by(x, ps.Neg):
        return _peel(expansion, x.owner.inputs[0], where)
    factors = split_product(x, cast=False)
    if is_made_by(x, ps.TrueDiv):
        sums = factors[:1]
    else:
        sums = [factor for factor in factors if len(monomials(expansion, factor.x, where)) > 1]
    if len(sums) != 1:
        return ONE, x
    scale, inner = _peel(expansion, sums[0].x, where)
    for factor in factors:
        if factor is not sums[0]:
            scale = scale.by(_whole(expansion, factor.x, where, factor.is_inverse))
    return scale, inner


def _whole(expansion: Expansion, x: TensorVariable, where: Where, divides: bool) -> Monomial:
    """Return a factor, or a divisor, as one monomial. A sum is not expanded."""
    expanded = monomials(expansion, x, where)
    monomial = expanded[0] if len(expanded) == 1 else Monomial((Factor(x, where),))
    return monomial.inverse() if divides else monomial


def _linear(expansion: Expansion, node: Apply, where: Where) -> list[Monomial]:
    expanded: list[Monomial] = []
    for x, is_negative in split_sum(node.outputs[0], cast=False):
        found = monomials(expansion, x, where)
        expanded += _negative(found) if is_negative else found
    return expanded


def _neg(expansion: Expansion, node: Apply, where: Where) -> list[Monomial]:
    return _negative(monomials(expansion, node.inputs[0], where))


def _negative(given: Iterable[Monomial]) -> list[Monomial]:
    return [monomial.by(Monomial((), is_negative=True)) for monomial in given]


def _product(expansion: Expansion, node: Apply, where: Where) -> list[Monomial] | None:
    """Expand a product of at most one sum; a sum in a denominator is not expanded."""
    expanded = []
    for x, is_inverse in split_product(node.outputs[0], cast=False):
        found = monomials(expansion, x, where)
        if is_inverse and len(found) > 1:
            return None
        expanded.append([found[0].inverse()] if is_inverse else found)
    if sum(len(found) > 1 for found in expanded) > 1:
        return None
    return [reduce(Monomial.by, one_of_each) for one_of_each in product(*expanded)]


def _dimshuffle(expansion: Expansion, node: Apply, where: Where) -> list[Monomial]:
    order = node.op.new_order
    return monomials(
        expansion, node.inputs[0], {order[a]: p for a, p in where.items() if order[a] != "x"}
    )


def _alloc(expansion: Expansion, node: Apply, where: Where) -> list[Monomial]:
    """ReadRows the repeated value: the mean of a process may be constant zeros."""
    x, *shape = node.inputs
    added = len(shape) - x.type.ndim
    return monomials(expansion, x, {axis - added: p for axis, p in where.items() if axis >= added})


def _sum(expansion: Expansion, node: Apply, where: Where) -> list[Monomial] | None:
    """Expand a sum over one axis, which is not an axis of the rows."""
    [x] = node.inputs
    if node.op.axis is None or len(node.op.axis) != 1:
        return None
    [axis] = node.op.axis
    kept = [a for a in range(x.type.ndim) if a != axis]
    of_input = {kept[a]: p for a, p in where.items()}
    columns = _columns(expansion.grid, x, axis)
    if columns is None:
        return None
    return [m for k in columns for m in monomials(expansion, x, {**of_input, axis: k})]


def _dot(expansion: Expansion, node: Apply, where: Where) -> list[Monomial] | None:
    """Expand a matrix-vector product. The vector is a matrix of one column."""
    left, right = node.inputs
    if left.type.ndim != 2 or right.type.ndim != 2:
        return None
    columns = _columns(expansion.grid, left, 1)
    if columns is None:
        return None
    return [
        m.by(Monomial((Factor(right, {**where, 0: k}),)))
        for k in columns
        for m in monomials(expansion, left, {**where, 1: k})
    ]


def _columns(grid: Grid, x: TensorVariable, axis: int) -> list[np.ndarray] | None:
    """Return each position on an axis, as a position that all rows share; None if there are too many."""
    length = x.type.shape[axis]
    if length is None or length > MOST_COLUMNS:
        return None
    return [np.full((1,) * len(grid.shape), k) for k in range(length)]


EXPANSIONS: dict[type, Callable[[Expansion, Apply, Where], list[Monomial] | None]] = {
    ps.Add: _linear,
    ps.Sub: _linear,
    ps.Neg: _neg,
    ps.Mul: _product,
    ps.TrueDiv: _product,
    Alloc: _alloc,
    DimShuffle: _dimshuffle,
    Sum: _sum,
    Dot: _dot,
}
