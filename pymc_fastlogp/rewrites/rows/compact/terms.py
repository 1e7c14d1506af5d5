r"""Split what is summed over rows into terms, each with the constants that only multiply it.

.. code::

    u + v, u - v, -u          ->  terms of u and of v
    s * u, u / s              ->  terms of u                       s the same in each row
    c * h, c / h              ->  the term h with weight c         c constant
    c * (u + v)               ->  terms of c * u and of c * v
    switch(s, u, v)           ->  terms of u and of v              s the same in each row
    switch(m, u, v)           ->  terms of u where m, of v where not m          m constant
    switch(e & m, u, v)       ->  terms of switch(e, u, v) where m, of v where not

What constant masks leave no row is no term. Of effects that are written as a sum of ``switch(group == k, a[k], 0)`` over groups, the
gradient by each then reads that effect alone. Nor is a zero beside what is added in each row; others stay, which an infinite factor makes nan.

The terms are the leaves of a tree, and what stands above them can be applied to any subset of them, the others being dropped:
``switch(s, a + b, c)`` without ``a`` and ``c`` is ``switch(s, b, 0)``. So the sum over rows is a sum of trees, one for each group of terms.

A sum that another term reads, the ``z`` of ``-z - exp(-z)``, is one term, if it has no weights of its own: each row computes it
anyway, and where two terms have derivatives that cancel in each row, ``exp(-z) - 1`` next to zero, two sums of them would lose the digits.

What an Op makes of numbers of a smaller type, ``a8 + b8 + c64``, it computes in its own. So terms are added, and factors multiplied, in the type
of the Op that they are taken from; integers, which go round, are left whole.

A constant mask restricts a term to rows; it is never a factor, which would turn an infinite entry that the switch hides into nan.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

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

# A tree of more leaves is not made: of `u + u * x` forty times in a row, it would have 2^40.
MOST_TERMS = 256

type At = Callable[[TensorVariable], TensorVariable]
type Part = TensorVariable | None
type Tree = Term | Branch


@dataclass(frozen=True, eq=False)
class Term:
    """A leaf of the tree: ``weights`` times ``factor``, summed over the rows of a mask.

    Attributes
    ----------
    x : TensorVariable
        The term, weights included, at each row.
    factor : TensorVariable, optional
        What is left without the weights; None for one.
    weights : tuple of TensorConstant
        Finite constants that vary from row to row.
    mask : numpy.ndarray of bool, optional
        Which rows the term is summed over, the axes of the grid first; None for all.
    """

    x: TensorVariable
    factor: TensorVariable | None
    weights: tuple[TensorConstant, ...] = ()
    mask: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Branch:
    """Something linear in its parts.

    Attributes
    ----------
    x : TensorVariable
        Its value at each row.
    parts : tuple of Term or Branch
        What it is made of.
    make : callable
        Makes ``x`` of the parts, of which some are None and count as zero: at each row, or at the first
        row of each cell, given a function that returns other variables there.
    """

    x: TensorVariable
    parts: tuple[Tree, ...]
    make: Callable[[Sequence[Part], At | None], TensorVariable]


def _nothing(x: TensorVariable) -> Branch:
    """Return a tree without terms, of what is chosen in no row, or a zero."""
    return Branch(x, (), lambda given, at: x)


def terms_of(tree: Tree) -> list[Term]:
    """Return the terms, which are the leaves."""
    if isinstance(tree, Term):
        return [tree]
    return [term for part in tree.parts for term in terms_of(part)]


def at_rows(tree: Tree, kept: set[Term]) -> Part:
    """Return the sum of some of the terms at each row, None if it has none of them."""
    terms = terms_of(tree)
    if terms and kept.issuperset(terms):
        return tree.x
    if isinstance(tree, Term):
        return None
    parts = [at_rows(part, kept) for part in tree.parts]
    return None if all(part is None for part in parts) else tree.make(parts, None)


def sum_at_cells(tree: Tree, of_term: dict[Term, TensorVariable], at: At) -> TensorVariable:
    """Return the sum of those terms that are given in cells, of which there is at least one."""
    part = _at_cells(tree, of_term, at)
    assert part is not None
    return part


def _at_cells(tree: Tree, of_term: dict[Term, TensorVariable], at: At) -> Part:
    if isinstance(tree, Term):
        return of_term.get(tree)
    parts = [_at_cells(part, of_term, at) for part in tree.parts]
    return None if all(part is None for part in parts) else tree.make(parts, at)


def split(grid: Grid, x: TensorVariable, where: Where) -> Tree:
    """Return the tree of ``x``, which is but one term if it could have too many, or has none."""
    if _n_leaves(x) > MOST_TERMS or not terms_of(tree := Splitter(grid, where).split(x)):
        return Term(x, x)
    computed = _computed_anyway(tree, where)
    return Splitter(grid, where, computed=computed).split(x) if computed else tree


def _computed_anyway(tree: Tree, where: Where) -> frozenset[TensorVariable]:
    """Return the sums of several terms that another term reads in each row: ``z`` in ``z + exp(-z)``."""
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
    if isinstance(tree, Term):
        return []
    return [tree, *(branch for part in tree.parts for branch in _branches(part))]


def _is_split(x: TensorVariable) -> bool:
    return isinstance(x.owner_op, CheckAndRaise) or type(scalar_op(x)) in SPLITS


def _n_leaves(x: TensorVariable) -> int:
    """Return how many leaves a tree has at most; what is read twice, as ``u`` in ``u + u * x``, is in it twice."""

    @cache
    def count(x: TensorVariable) -> int:
        return sum(map(count, x.owner.inputs)) if _is_split(x) else 1

    return count(x)


@dataclass(frozen=True)
class Splitter:
    """Context of the splitting rules: axes of the grid, rows summed over, sums left whole, and other terms added in each row."""

    grid: Grid
    where: Where
    mask: np.ndarray | None = None
    computed: frozenset[TensorVariable] = frozenset()
    added: bool = False

    def split(self, x: TensorVariable, mask: np.ndarray | None = None) -> Tree:
        """Split an operand further, for fewer rows if a mask is given."""
        both = self.mask if mask is None else mask if self.mask is None else self.mask & mask
        return replace(self, mask=both)._tree(x)

    def _tree(self, x: TensorVariable) -> Tree:
        if self.mask is None and x in self.computed:
            return Term(x, x)
        if x.owner is not None and x.type.dtype in float_dtypes and self.varies(x):
            is_check = isinstance(x.owner.op, CheckAndRaise)
            rule = _check if is_check else SPLITS.get(type(scalar_op(x)), _whole)
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
        """Return in which rows a condition holds, None if that is not known or not all it depends on."""
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


def _whole(splitter: Splitter, node: Apply) -> None:
    """Leave whole what is not linear."""


def _check(splitter: Splitter, node: Apply) -> Branch:
    x, *conditions = node.inputs
    return Branch(
        node.outputs[0], (splitter.split(x),), lambda given, at: node.op(given[0], *conditions)
    )


def _linear(splitter: Splitter, node: Apply, linear: Sequence[int]) -> Branch:
    """Return the branch of an Op that is linear in these of its inputs, taken together."""
    parts = tuple(replace(splitter, added=False).split(node.inputs[i]) for i in linear)

    def make(given: Sequence[Part], at: At | None) -> TensorVariable:
        by_input = dict(zip(linear, _zeros_for_none(given, node)))
        others = at or (lambda x: x)
        return node.op(
            *(by_input[i] if i in by_input else others(x) for i, x in enumerate(node.inputs))
        )

    return Branch(node.outputs[0], parts, make)


def _zeros_for_none(given: Sequence[Part], node: Apply) -> list[TensorVariable]:
    ndim = next(part.type.ndim for part in given if part is not None)
    zero = constant(np.zeros((1,) * ndim, dtype=node.outputs[0].type.dtype))
    return [zero if part is None else part for part in given]


def _in_type_of(node: Apply, given: Iterable[TensorVariable]) -> list[TensorVariable]:
    """Return operands in the type that an Op computes in, or in that of what has more digits."""
    operands = [*given]
    dtype = ps.upcast(node.outputs[0].type.dtype, *(x.type.dtype for x in operands))
    return [in_type(x, dtype) for x in operands]


def _sum(splitter: Splitter, node: Apply) -> Branch:
    return Branch(node.outputs[0], _added(splitter, node), lambda given, at: _total_of(node, given))


def _added(splitter: Splitter, node: Apply) -> tuple[Tree, ...]:
    """Split what is added, beside which a zero is nothing if one of it is no switch."""
    added = splitter.added or not all(map(_is_split, node.inputs))
    return tuple(map(replace(splitter, added=added).split, node.inputs))


def _total_of(node: Apply, given: Sequence[Part]) -> TensorVariable:
    return add_all(_in_type_of(node, (part for part in given if part is not None)))


def _difference(splitter: Splitter, node: Apply) -> Branch:
    def make(given: Sequence[Part], at: At | None) -> TensorVariable:
        u, v = given
        if v is None:
            return _total_of(node, given)
        return neg(_total_of(node, given)) if u is None else sub(u, v)

    return Branch(node.outputs[0], _added(splitter, node), make)


def _product(splitter: Splitter, node: Apply) -> Tree | None:
    weights = [x for x in node.inputs if splitter.is_weight(x)]
    others = [x for x in node.inputs if x not in weights]
    if weights:
        factor = multiply_all(_in_type_of(node, others) if len(others) > 1 else others)
        # With weights of its own, `y * z` beside `exp(z)`, a sum is not what the other term computes.
        tree = replace(splitter, computed=frozenset()).split(factor)
        if _is_in_parts(tree):
            return _times(tree, tuple(weights))
        return Term(node.outputs[0], factor, tuple(weights), splitter.mask)
    varying = [i for i, x in enumerate(node.inputs) if splitter.varies(x)]
    return _linear(splitter, node, varying) if len(varying) == 1 else None


def _is_in_parts(tree: Tree) -> bool:
    """Return whether a tree has more leaves than one, terms or not."""
    while isinstance(tree, Branch) and len(tree.parts) == 1:
        [tree] = tree.parts
    return isinstance(tree, Branch)


def _times(tree: Tree, weights: tuple[TensorConstant, ...]) -> Tree:
    """Return the tree of weights times a tree: they become weights of each term."""
    if not terms_of(tree):
        return tree
    x = multiply_all((*weights, tree.x))
    if isinstance(tree, Term):
        return replace(tree, x=x, weights=(*weights, *tree.weights))
    return replace(tree, x=x, parts=tuple(_times(part, weights) for part in tree.parts))


def _quotient(splitter: Splitter, node: Apply) -> Tree | None:
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
    return None if splitter.varies(denominator) else _linear(splitter, node, [0])


def _switch(splitter: Splitter, node: Apply) -> Tree | None:
    condition, u, v = node.inputs
    if not splitter.varies(condition) and fill_value(condition) is None:
        return _linear(splitter, node, [1, 2])
    mask = splitter.mask_of(condition)
    if mask is not None:
        return _by_mask(splitter, node, condition, mask, u)
    for known in conjunction(condition):
        mask = splitter.mask_of(known)
        if mask is not None:
            others = [x for x in conjunction(condition) if x is not known]
            chosen = switch(multiply_all(others), u, v) if others else u
            return _by_mask(splitter, node, known, mask, chosen)
    return None


def _by_mask(
    splitter: Splitter, node: Apply, condition: TensorVariable, mask: np.ndarray, u: TensorVariable
) -> Branch:
    """Return the branch of ``switch(condition, u, v)`` with ``v`` of a node and a known condition."""
    parts = _where(splitter, u, mask), _where(splitter, node.inputs[2], ~mask)
    if not any(map(terms_of, parts)):
        return _nothing(node.outputs[0])

    def make(given: Sequence[Part], at: At | None) -> TensorVariable:
        if at is None:
            return switch(condition, *_zeros_for_none(given, node))
        return _total_of(node, given)

    return Branch(node.outputs[0], parts, make)


def _where(splitter: Splitter, x: TensorVariable, mask: np.ndarray) -> Tree:
    """Split an operand of a switch for the rows where it is chosen, if there are any."""
    both = mask if splitter.mask is None else splitter.mask & mask
    is_term = both.any() and not (splitter.added and fill_value(x) == 0)
    return splitter.split(x, mask) if is_term else _nothing(x)


def conjunction(condition: TensorVariable) -> list[TensorVariable]:
    """Return the conditions that all have to hold in one; a product of booleans is such."""
    return operands(condition, ps.AND, ps.Mul) if condition.type.dtype == "bool" else []


SPLITS: dict[type, Callable[[Splitter, Apply], Tree | None]] = {
    ps.Add: _sum,
    ps.Sub: _difference,
    ps.Neg: partial(_linear, linear=[0]),
    ps.Mul: _product,
    ps.TrueDiv: _quotient,
    ps.Switch: _switch,
}
