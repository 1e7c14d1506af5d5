r"""Correlated effects of a group: ``effect = mean + factor @ standardized``, with ``factor`` a root of their covariance matrix.

    centered        a ~ MvNormal(mean, chol=factor)                    shape (J, K)
    non-centered    z ~ Normal(0, 1), mean + z @ factor.T              shape (J, K)
                    z ~ Normal(0, 1), mean + factor @ z                shape (K, J)

The change of variables is in :mod:`~pymc_fastlogp.reparametrization.matrix_normal`.
"""

from dataclasses import dataclass, replace

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import MvNormalRV

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.elemwise import is_elemwise
from pymc_fastlogp.reparametrization.effects import (
    broadcasts_to,
    clients_of,
    combine,
    depends_on,
    has_prior,
    is_random,
    is_standard_normal,
)

# Effects per group. Elimination is unrolled, so the size of the graph and the compile time grow with the cube of K.
MAX_EFFECTS = 6


@dataclass(frozen=True)
class Correlated:
    """Correlated effects.

    Attributes
    ----------
    name : str
        Name of the free variable.
    is_centered : bool
        True if the variable holds the effects, False if it holds the standardized effects.
    variable : Variable
        The free variable in the graph.
    terms : tuple of Variable
        Terms whose sum is the mean.
    matrix : Variable
        The factor of the covariance matrix, or its transpose.
    is_transposed : bool
        Whether ``matrix`` is the transpose of the factor.
    group_axis, group_axis_of_terms : int
        Axis of the groups in the variable, and in terms with two axes.
    dims : tuple of str
        Dims of the variable.
    """

    name: str
    is_centered: bool
    variable: Variable
    terms: tuple[Variable, ...]
    matrix: Variable
    is_transposed: bool
    group_axis: int
    group_axis_of_terms: int
    dims: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Parametrization of the effects in the model."""
        return "correlated, centered" if self.is_centered else "correlated, non-centered"

    @property
    def n_effects(self) -> int:
        """Number of effects per group."""
        return self.matrix.type.shape[0]

    @property
    def factor(self) -> Variable:
        """Root of the covariance matrix, shape (K, K): lower triangular if the variable is centered."""
        factor = self.matrix.T if self.is_transposed else self.matrix
        # The matrix of the model may have any shape. A rewrite removes this Cholesky if the matrix is triangular.
        return pt.linalg.cholesky(factor @ factor.T) if self.is_centered else factor

    @property
    def mean(self) -> Variable:
        """Mean of the effects, with axes for groups and effects."""
        mean = pt.atleast_2d(combine(pt.add, self.terms, 0.0, self.variable))
        return mean if self.group_axis_of_terms == 0 else mean.T

    @property
    def multipliers(self) -> tuple[Variable, ...]:
        """Variables that multiply the standardized effects."""
        return (self.matrix,)

    def substitute(self, old: Variable, new: Variable) -> "Correlated":
        """Return the effects after ``old`` was replaced by ``new`` in the graph."""
        terms = tuple(new if x is old else x for x in self.terms)
        return replace(self, terms=terms, matrix=new if self.matrix is old else self.matrix)

    def without_cyclic_terms(self) -> "Correlated":
        """Drop terms of the mean that now depend on the effects."""
        if self.is_centered:
            return self
        terms = tuple(x for x in self.terms if not depends_on(x, {self.variable}))
        return replace(self, terms=terms)


def find_correlated(fgraph: FunctionGraph, x: Variable) -> Correlated | None:
    """Match a free variable as correlated effects."""
    if x.type.ndim != 2 or x.owner.op.transform is not None:
        return None
    rv = x.owner.inputs[0]
    found = None
    if has_prior(rv, MvNormalRV):
        found = _centered(x)
    elif is_standard_normal(rv):
        found = _non_centered(fgraph, x)
    if found is None or not is_random(found.matrix):
        return None
    n_effects, n_columns = found.matrix.type.shape
    is_small = n_effects == n_columns and n_effects is not None and 1 < n_effects <= MAX_EFFECTS
    return found if is_small and x.type.shape[1 - found.group_axis] in (n_effects, None) else None


def _centered(x: Variable) -> Correlated | None:
    _, _, mu, cov = x.owner.inputs[0].owner.inputs
    cov, mu = _without_new_axes(cov), _without_new_axes(mu)
    if not _is_product(cov):
        return None
    factor, other = cov.owner.inputs
    if not (_is_transpose(other) and other.owner.inputs[0] is factor) or mu.type.ndim > 2:
        return None
    return Correlated(x.owner.op.name, True, x, (mu,), factor, False, 0, 0, x.owner.op.dims)


def _non_centered(fgraph: FunctionGraph, x: Variable) -> Correlated | None:
    at, group_axis, is_flipped = x, 0, False
    while True:
        of = [*clients_of(fgraph, at)]
        if len(of) != 1:
            return None
        [(user, place)] = of
        if not _is_transpose(user.outputs[0]):
            break
        at, is_flipped = user.outputs[0], not is_flipped
    if not _is_product(user.outputs[0]):
        return None
    matrix = user.inputs[1 - place]
    if depends_on(matrix, {x}):
        return None
    # The matrix product keeps groups on the axis that does not belong to the matrix.
    group_axis = place if not is_flipped else 1 - place
    terms, group_axis_of_terms = _terms(fgraph, x, user.outputs[0], place)
    name, dims = x.owner.op.name, x.owner.op.dims
    return Correlated(
        name, False, x, terms, matrix, place == 0, group_axis, group_axis_of_terms, dims
    )


def _terms(
    fgraph: FunctionGraph, x: Variable, product: Variable, group_axis: int
) -> tuple[tuple[Variable, ...], int]:
    """Return the terms added to the product, possibly after a transpose, and the axis of the groups there."""
    terms: tuple[Variable, ...] = ()
    while True:
        of = [*clients_of(fgraph, product)]
        if len(of) != 1:
            return terms, group_axis
        [(user, place)] = of
        found = tuple(y for i, y in enumerate(user.inputs) if i != place)
        if _is_transpose(user.outputs[0]) and not terms:
            group_axis = 1 - group_axis
        elif (
            is_elemwise(user.op, Add)
            and all(broadcasts_to(y, product) for y in found)
            and not any(depends_on(y, {x}) for y in found)
        ):
            terms += found
        else:
            return terms, group_axis
        product = user.outputs[0]


def _is_product(x: Variable) -> bool:
    return isinstance(core_op(x.owner_op), Dot) and x.type.ndim == 2


def _is_transpose(x: Variable) -> bool:
    op = getattr(x.owner, "op", None)
    return isinstance(op, DimShuffle) and op.new_order == (1, 0)


def _without_new_axes(x: Variable) -> Variable:
    op = getattr(x.owner, "op", None)
    if isinstance(op, DimShuffle) and op.new_order == ("x", *range(op.input_ndim)):
        return _without_new_axes(x.owner.inputs[0])
    return x
