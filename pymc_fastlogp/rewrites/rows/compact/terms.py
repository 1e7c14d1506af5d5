r"""Split the summand of a sum over rows into terms, each with the constants that only multiply the term.

.. code::

    u + v, u - v, -u          ->  terms of u and of v
    s * u, u / s              ->  terms of u                       s the same in each row
    c * h, c / h              ->  the term h with weight c         c constant
    c * (u + v)               ->  terms of c * u and of c * v
    switch(s, u, v)           ->  terms of u and of v              s the same in each row
    switch(m, u, v)           ->  terms of u where m, of v where not m          m constant
    switch(e & m, u, v)       ->  terms of switch(e, u, v) where m, of v where not

The terms are the leaves of a tree. A branch can be computed from any subset of its terms, the others counting as zero:
``switch(s, a + b, c)`` without ``a`` and ``c`` is ``switch(s, b, 0)``. So the sum over rows is a sum of trees, one per
group of terms.

Rules that keep values and digits:

- A constant mask restricts a term to rows. The mask is never a factor, because ``0 * inf`` would be NaN for an entry
  that the switch hides.
- Operands of masks that select no row give no term. Zero branches are dropped only inside a sum. Elsewhere ``0 * inf``
  must remain NaN. So with effects written as a sum of ``switch(group == k, a[k], 0)``, the gradient by each effect
  reads that effect alone.
- A sum without weights that another term reads stays one term, as ``z`` of ``-z - exp(-z)``. Each row computes ``z``
  anyway. The derivative ``exp(-z) - 1`` would lose its digits near zero as the difference of two sums.
- Terms are added, and factors multiplied, in the dtype of the Op that computed them, as in ``a8 + b8 + c64``. Integer
  expressions may overflow and stay whole.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import override

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import constant, switch
from pytensor.tensor.math import neg, reciprocal, sub
from pytensor.tensor.type import float_dtypes
from pytensor.tensor.variable import TensorConstant, TensorVariable

from pymc_fastlogp.analysis.algebra import add_all, multiply_all
from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import in_type, operands, scalar_op
from pymc_fastlogp.analysis.gathers import Where
from pymc_fastlogp.rewrites.rows.view.grid import Grid, varies

# Bound on the leaves, which grow exponentially in nested expressions such as `u + u * x`.
MOST_TERMS = 256

type At = Callable[[TensorVariable], TensorVariable]
type Tree = Term | Branch


@dataclass(frozen=True, eq=False)
class Term:
    """A leaf of the tree: ``weights`` times ``factor``, summed over the rows of a mask.

    Attributes
    ----------
    x : TensorVariable
        The term at each row, weights included.
    factor : TensorVariable, optional
        The term without weights; None for one.
    weights : tuple of TensorConstant
        Finite constants that vary from row to row.
    mask : numpy.ndarray of bool, optional
        Rows over which the term is summed, the axes of the grid first; None for all.
    """

    x: TensorVariable
    factor: TensorVariable | None
    weights: tuple[TensorConstant, ...] = ()
    mask: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Branch:
    """A node of the tree, linear in its parts. Without parts it has no terms: a zero, or an operand that no row selects.

    Attributes
    ----------
    node : Apply
        The node that computes the branch, without weights.
    x : TensorVariable
        The value at each row, weights included.
    parts : tuple of Term or Branch
        The linear operands.
    """

    node: Apply
    x: TensorVariable
    parts: tuple[Tree, ...] = ()

    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Compute the node from its parts.

        Parameters
        ----------
        given : sequence of TensorVariable or None
            The parts; None counts as zero. At least one part is given.
        at : callable, optional
            Returns another variable at the first row of each cell; None if parts are given at all rows.
        """
        raise NotImplementedError

    def zeros_for_none(self, given: Sequence[TensorVariable | None]) -> list[TensorVariable]:
        """Return the parts with zeros for None."""
        ndim = next(part.type.ndim for part in given if part is not None)
        zero = constant(np.zeros((1,) * ndim, dtype=self.node.outputs[0].type.dtype))
        return [zero if part is None else part for part in given]

    def total(self, given: Sequence[TensorVariable | None]) -> TensorVariable:
        """Return the sum of the parts."""
        return add_all(_in_type_of(self.node, (part for part in given if part is not None)))


class Check(Branch):
    """A value behind a check."""

    @override
    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Apply the check to the value."""
        return self.node.op(given[0], *self.node.inputs[1:])


class Addition(Branch):
    """``u + v + ..``."""

    @override
    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Return the sum of the parts."""
        return self.total(given)


class Difference(Branch):
    """``u - v``."""

    @override
    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Return the difference of the parts."""
        u, v = given
        if v is None:
            return self.total(given)
        return neg(self.total(given)) if u is None else sub(u, v)


@dataclass(frozen=True, eq=False)
class Linear(Branch):
    """An Op that is linear in some of its inputs, whose numbers are ``linear``."""

    linear: Sequence[int] = ()

    @override
    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Apply the Op to its linear and its other inputs."""
        by_input = dict(zip(self.linear, self.zeros_for_none(given)))
        inputs = enumerate(self.node.inputs)
        return self.node.op(
            *(by_input[i] if i in by_input else x if at is None else at(x) for i, x in inputs)
        )


@dataclass(frozen=True, eq=False)
class KnownSwitch(Branch):
    """``switch(condition, u, v)`` with a constant condition, by which the terms of ``u`` and ``v`` have masks."""

    condition: TensorVariable | None = None

    @override
    def rebuild(self, given: Sequence[TensorVariable | None], at: At | None) -> TensorVariable:
        """Return the switch at all rows, or the sum of the parts at the first rows."""
        if at is None:
            return switch(self.condition, *self.zeros_for_none(given))
        return self.total(given)


def terms_of(tree: Tree) -> list[Term]:
    """Return the terms of a tree."""
    if isinstance(tree, Term):
        return [tree]
    return [term for part in tree.parts for term in terms_of(part)]


def at_rows(tree: Tree, kept: set[Term]) -> TensorVariable | None:
    """Return the sum of some of the terms at each row, None if the tree has none of them."""
    terms = terms_of(tree)
    if terms and kept.issuperset(terms):
        return tree.x
    if isinstance(tree, Term):
        return None
    parts = [at_rows(part, kept) for part in tree.parts]
    return None if all(part is None for part in parts) else tree.rebuild(parts, None)


def sum_at_cells(tree: Tree, of_term: dict[Term, TensorVariable], at: At) -> TensorVariable:
    """Return the sum of the terms that are given in cells, at least one term."""
    part = _rebuilt(tree, of_term, at)
    assert part is not None
    return part


def _rebuilt(tree: Tree, of_term: dict[Term, TensorVariable], at: At) -> TensorVariable | None:
    """Return a tree with terms replaced by their values in cells, None if no term is left."""
    if isinstance(tree, Term):
        return of_term.get(tree)
    parts = [_rebuilt(part, of_term, at) for part in tree.parts]
    return None if all(part is None for part in parts) else tree.rebuild(parts, at)


def split(grid: Grid, x: TensorVariable, where: Where) -> Tree:
    """Return the tree of ``x``: a single term if the tree would be too large, or have no terms."""
    if _n_leaves(x) > MOST_TERMS or not terms_of(tree := Splitter(grid, where).split(x)):
        return Term(x, x)
    computed = _computed_anyway(tree, where)
    return Splitter(grid, where, computed=computed).split(x) if computed else tree


def _computed_anyway(tree: Tree, where: Where) -> frozenset[TensorVariable]:
    """Return the sums of several terms that another term reads in each row, as ``z`` in ``z + exp(-z)``."""
    sums = {branch.x for branch in _branches(tree) if len(terms_of(branch)) > 1}
    if not sums:
        return frozenset()

    def inputs(x: TensorVariable) -> list[TensorVariable]:
        if scalar_op(x) is None:
            return []
        return [x for x in x.owner.inputs if varies(x, where)]

    leaves = [term.factor for term in terms_of(tree) if term.mask is None]
    reads = [x for leaf in leaves if leaf is not None for x in inputs(leaf)]
    return frozenset(sums.intersection(walk(reads, inputs, bfs=False)))


def _branches(tree: Tree) -> list[Branch]:
    """Return the inner nodes of a tree, the root first."""
    if isinstance(tree, Term):
        return []
    return [tree, *(branch for part in tree.parts for branch in _branches(part))]


def _is_split(x: TensorVariable) -> bool:
    return isinstance(x.owner_op, CheckAndRaise) or type(scalar_op(x)) in SPLITS


def _n_leaves(x: TensorVariable) -> int:
    """Return an upper bound of the number of leaves. A shared operand counts at each use, as ``u`` in ``u + u * x``."""

    @cache
    def count(x: TensorVariable) -> int:
        return sum(map(count, x.owner.inputs)) if _is_split(x) else 1

    return count(x)


@dataclass(frozen=True)
class Splitter:
    """Context of the splitting rules.

    Attributes
    ----------
    grid : Grid
        All rows.
    where : mapping
        Axes of the rows.
    mask : numpy.ndarray of bool, optional
        Rows summed over; None for all.
    computed : frozenset of TensorVariable
        Sums that stay whole.
    added : bool
        Whether other terms are added in each row.
    """

    grid: Grid
    where: Where
    mask: np.ndarray | None = None
    computed: frozenset[TensorVariable] = frozenset()
    added: bool = False

    def split(self, x: TensorVariable, mask: np.ndarray | None = None) -> Tree:
        """Split an operand, for fewer rows if a mask is given."""
        both = self.mask if mask is None else mask if self.mask is None else self.mask & mask
        return replace(self, mask=both)._split_selected_rows(x)

    def _split_selected_rows(self, x: TensorVariable) -> Tree:
        """Split an operand for the rows of :attr:`mask`."""
        if self.mask is None and x in self.computed:
            return Term(x, x)
        if x.owner is not None and x.type.dtype in float_dtypes and self.varies(x):
            is_check = isinstance(x.owner.op, CheckAndRaise)
            rule = _split_check if is_check else SPLITS.get(type(scalar_op(x)), _keep_whole)
            tree = rule(self, x.owner)
            if tree is not None:
                return tree
        if isinstance(x, TensorConstant) and self.is_weight(x):
            return Term(x, None, (x,), self.mask)
        return Term(x, x, (), self.mask)

    def varies(self, x: TensorVariable) -> bool:
        """Return whether an operand may differ from row to row."""
        return varies(x, self.where)

    def is_weight(self, x: TensorVariable) -> bool:
        """Return whether a factor is a finite constant that differs from row to row."""
        return isinstance(x, TensorConstant) and self.varies(x) and bool(np.isfinite(x.data).all())

    def mask_of(self, x: TensorVariable) -> np.ndarray | None:
        """Return the rows in which a condition holds, None if unknown or dependent on other axes."""
        value = fill_value(x)
        if value is not None:
            return np.full((1,) * len(self.where), bool(value))
        rest = [axis for axis in range(x.type.ndim) if axis not in self.where]
        if not isinstance(x, TensorConstant) or any(x.data.shape[axis] > 1 for axis in rest):
            return None
        holds = x.data if x.type.dtype == "bool" else x.data != 0
        if holds.all() or not holds.any():
            return np.full((1,) * len(self.where), bool(holds.all()))
        picked = self.grid.pick(holds, self.where)
        return picked.reshape(picked.shape[: len(self.where)])


def _keep_whole(splitter: Splitter, node: Apply) -> None:
    """Leave a nonlinear Op whole."""


def _split_check(splitter: Splitter, node: Apply) -> Branch:
    return Check(node, node.outputs[0], (splitter.split(node.inputs[0]),))


def _split_linear(splitter: Splitter, node: Apply, linear: Sequence[int]) -> Branch:
    """Split an Op that is jointly linear in these of its inputs."""
    parts = tuple(replace(splitter, added=False).split(node.inputs[i]) for i in linear)
    return Linear(node, node.outputs[0], parts, linear)


def _in_type_of(node: Apply, given: Iterable[TensorVariable]) -> list[TensorVariable]:
    """Cast operands to the dtype that an Op computes in, or to a wider dtype of an operand."""
    operands = [*given]
    dtype = ps.upcast(node.outputs[0].type.dtype, *(x.type.dtype for x in operands))
    return [in_type(x, dtype) for x in operands]


def _split_sum(splitter: Splitter, node: Apply) -> Branch:
    return Addition(node, node.outputs[0], _split_added(splitter, node))


def _split_difference(splitter: Splitter, node: Apply) -> Branch:
    return Difference(node, node.outputs[0], _split_added(splitter, node))


def _split_added(splitter: Splitter, node: Apply) -> tuple[Tree, ...]:
    """Split the operands of a sum. A zero branch can be dropped if another operand is no switch."""
    added = splitter.added or not all(map(_is_split, node.inputs))
    return tuple(map(replace(splitter, added=added).split, node.inputs))


def _split_product(splitter: Splitter, node: Apply) -> Tree | None:
    weights = [x for x in node.inputs if splitter.is_weight(x)]
    others = [x for x in node.inputs if x not in weights]
    if weights:
        factor = multiply_all(_in_type_of(node, others) if len(others) > 1 else others)
        # A weighted sum, as in `y * z + exp(z)`, is not the sum that the other term computes.
        tree = replace(splitter, computed=frozenset()).split(factor)
        if _is_in_parts(tree):
            return _times(tree, tuple(weights))
        return Term(node.outputs[0], factor, tuple(weights), splitter.mask)
    varying = [i for i, x in enumerate(node.inputs) if splitter.varies(x)]
    return _split_linear(splitter, node, varying) if len(varying) == 1 else None


def _is_in_parts(tree: Tree) -> bool:
    """Return whether a tree has more leaves than one, whether terms or not."""
    while isinstance(tree, Branch) and len(tree.parts) == 1:
        [tree] = tree.parts
    return isinstance(tree, Branch)


def _times(tree: Tree, weights: tuple[TensorConstant, ...]) -> Tree:
    """Multiply a tree by weights, which become weights of each term."""
    if not terms_of(tree):
        return tree
    x = multiply_all((*weights, tree.x))
    if isinstance(tree, Term):
        return replace(tree, x=x, weights=(*weights, *tree.weights))
    return replace(tree, x=x, parts=tuple(_times(part, weights) for part in tree.parts))


def _split_quotient(splitter: Splitter, node: Apply) -> Tree | None:
    numerator, denominator = node.inputs
    factors = [numerator]
    if numerator.type.dtype in float_dtypes:
        factors = operands(numerator, ps.Mul) or factors
    weights = [x for x in factors if splitter.is_weight(x)]
    others = [x for x in factors if x not in weights]
    if weights:
        *others, denominator = _in_type_of(node, [*others, denominator])
        factor = multiply_all(others) / denominator if others else reciprocal(denominator)
        return Term(node.outputs[0], factor, tuple(weights), splitter.mask)
    return None if splitter.varies(denominator) else _split_linear(splitter, node, [0])


def _split_switch(splitter: Splitter, node: Apply) -> Tree | None:
    condition, u, v = node.inputs
    if not splitter.varies(condition) and fill_value(condition) is None:
        return _split_linear(splitter, node, [1, 2])
    mask = splitter.mask_of(condition)
    if mask is not None:
        return _split_by_mask(splitter, node, condition, mask, u)
    for known in conjunction(condition):
        mask = splitter.mask_of(known)
        if mask is not None:
            others = [x for x in conjunction(condition) if x is not known]
            chosen = switch(multiply_all(others), u, v) if others else u
            return _split_by_mask(splitter, node, known, mask, chosen)
    return None


def _split_by_mask(
    splitter: Splitter, node: Apply, condition: TensorVariable, mask: np.ndarray, u: TensorVariable
) -> Branch:
    """Split ``switch(condition, u, v)`` with ``v`` of a node and a known condition."""
    chosen, other = (
        _split_selected(splitter, node, x, m) for x, m in ((u, mask), (node.inputs[2], ~mask))
    )
    if not terms_of(chosen) and not terms_of(other):
        return Branch(node, node.outputs[0])
    return KnownSwitch(node, node.outputs[0], (chosen, other), condition)


def _split_selected(splitter: Splitter, node: Apply, x: TensorVariable, mask: np.ndarray) -> Tree:
    """Split an operand of a switch for the rows that select the operand, if there are any."""
    both = mask if splitter.mask is None else splitter.mask & mask
    is_term = both.any() and not (splitter.added and fill_value(x) == 0)
    return splitter.split(x, mask) if is_term else Branch(node, x)


def conjunction(condition: TensorVariable) -> list[TensorVariable]:
    """Return the conditions whose conjunction, or product of booleans, a condition is."""
    return operands(condition, ps.AND, ps.Mul) if condition.type.dtype == "bool" else []


SPLITS: dict[type, Callable[[Splitter, Apply], Tree | None]] = {
    ps.Add: _split_sum,
    ps.Sub: _split_difference,
    ps.Neg: partial(_split_linear, linear=[0]),
    ps.Mul: _split_product,
    ps.TrueDiv: _split_quotient,
    ps.Switch: _split_switch,
}
