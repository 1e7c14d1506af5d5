"""Group effects of a model, with their prior as ``effect = mean + scale * standardized``.

    centered        a ~ Normal(mean, scale)                  the variable is the effect
    non-centered    raw ~ Normal(0, 1), mean + scale * raw   the variable is the standardized effect

The graph is built by :func:`pymc.model.fgraph.fgraph_from_model`. The change of variables is exact for any mean and scale.
A wrong mean or scale makes the sites useless (Gaussian approximations of the likelihood of the effects, see
:mod:`~pymc_fastlogp.reparametrization.sites`), so only unambiguous patterns are matched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pytensor.tensor as pt
from pymc.model.fgraph import ModelDeterministic, ModelFreeRV, ModelNamed
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_fastlogp.analysis.constants import fill_value
from pymc_fastlogp.analysis.elemwise import is_elemwise

GATHERS = (Subtensor, AdvancedSubtensor)

SCALAR = "it is a scalar"
HAS_TRANSFORM = "it has a transform already"
NO_PARAMETERS = "its prior has no parameters, and no scale multiplies it"
MUTUAL_PRODUCT = "it multiplies another effect that multiplies it"
USED_TWICE = "the model uses it in more than one place"
INHERITS = "its prior is a subclass of the normal distribution"
SCALE_BY_ROW = "its scale differs between rows of a group"


@dataclass(frozen=True)
class Effect:
    """Effect of groups.

    Attributes
    ----------
    name : str
        Name of the free variable.
    is_centered : bool
        True if the variable is the effect, False if it is the standardized effect.
    variable : Variable
        The free variable in the graph.
    terms : tuple of tuple of Variable
        Products whose sum is the mean of the effect.
    factors : tuple of Variable
        Factors whose product is the scale.
    dims : tuple of str
        Dims of the variable, empty if it has none.
    """

    name: str
    is_centered: bool
    variable: Variable
    terms: tuple[tuple[Variable, ...], ...]
    factors: tuple[Variable, ...]
    dims: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Parametrization of the effect in the model."""
        return "centered" if self.is_centered else "non-centered"

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of the value variable; unknown lengths are None."""
        return self.variable.type.shape

    @property
    def mean(self) -> Variable:
        """Mean of the effect."""
        products = tuple(combine(pt.mul, x, 1.0, self.variable) for x in self.terms)
        return combine(pt.add, products, 0.0, self.variable)

    @property
    def factor(self) -> Variable:
        """Factor of the standardized effect, for effects of any kind."""
        return self.scale

    @property
    def scale(self) -> Variable:
        """Scale of the effect."""
        return combine(pt.mul, self.factors, 1.0, self.variable)

    @property
    def parameters(self) -> tuple[Variable, ...]:
        """Variables from which mean and scale are computed."""
        return (*chain(*self.terms), *self.factors)

    @property
    def multipliers(self) -> tuple[Variable, ...]:
        """Variables that multiply the standardized effect."""
        return self.factors

    @property
    def deviation(self) -> Variable:
        """Effect minus its mean."""
        return self.variable - self.mean if self.is_centered else self.scale * self.variable

    def substitute(self, old: Variable, new: Variable) -> "Effect":
        """Return the effect after ``old`` was replaced by ``new`` in the graph."""
        *terms, factors = (
            tuple(new if x is old else x for x in xs) for xs in (*self.terms, self.factors)
        )
        return replace(self, terms=tuple(terms), factors=factors)

    def without_cyclic_terms(self) -> "Effect":
        """Drop terms of the mean that now depend on the effect, as happens if two effects are added to each other."""
        if self.is_centered:
            return self
        terms = [x for x in self.terms if not any(depends_on(y, {self.variable}) for y in x)]
        return replace(self, terms=tuple(terms))


def combine(op: Elemwise, parts: tuple[Variable, ...], empty: float, x: Variable) -> Variable:
    """Combine parts with an Elemwise, or return ``empty``. Parts with more axes than ``x`` have one entry and become scalars."""
    fitting = [_as_scalar(y) if y.type.ndim > x.type.ndim else y for y in parts]
    if len(fitting) < 2:
        return fitting[0] if fitting else pt.constant(empty)
    return op(*fitting)


@dataclass(frozen=True)
class Unchanged:
    """Free variable that keeps its parametrization.

    Attributes
    ----------
    name : str
        Name of the variable.
    reason : str
        Reason, as a clause for log messages.
    """

    name: str
    reason: str


def depends_on(x: Variable, others: set[Variable]) -> bool:
    """Return whether a variable depends on any of the others, or is one of them."""
    return any(y in others for y in ancestors([x]))


def find_effect(fgraph: FunctionGraph, x: Variable) -> Effect | Unchanged:
    """Match a free variable as an effect."""
    op = x.owner.op
    rv = x.owner.inputs[0]
    if x.type.ndim == 0:
        return Unchanged(op.name, SCALAR)
    if op.transform is not None:
        return Unchanged(op.name, HAS_TRANSFORM)
    if not has_prior(rv, NormalRV):
        prior = getattr(getattr(rv.owner, "op", None), "name", None)
        if prior == "normal":
            return Unchanged(op.name, INHERITS)
        return Unchanged(op.name, f"its prior is {prior or 'no distribution'}, not normal")
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    if is_random(mu) or is_random(sigma):
        return Effect(op.name, True, x, ((mu,),), (sigma,), op.dims)
    if not is_standard_normal(rv):
        return Unchanged(op.name, NO_PARAMETERS)
    return find_non_centered(fgraph, x)


def has_prior(rv: Variable, op_type: type) -> bool:
    """Return whether a random variable has exactly this Op. A subclass may have another density."""
    return rv.owner is not None and type(rv.owner.op) is op_type


def is_standard_normal(rv: Variable) -> bool:
    """Return whether a random variable is ``Normal(0, 1)``."""
    if not has_prior(rv, NormalRV):
        return False
    mu, sigma = rv.owner.op.dist_params(rv.owner)
    return fill_value(mu) == 0 and fill_value(sigma) == 1


def is_random(x: Variable) -> bool:
    """Return whether a variable depends on a free variable, or is one."""
    return any(y.owner is not None and isinstance(y.owner.op, ModelFreeRV) for y in ancestors([x]))


def find_non_centered(fgraph: FunctionGraph, x: Variable) -> Effect | Unchanged:
    """Match the scale that multiplies a standardized effect, and the mean that is added."""
    name, at, is_gathered = x.owner.op.name, x, False
    while True:
        of = [*clients_of(fgraph, at)]
        if len(of) != 1:
            return Unchanged(name, USED_TWICE if of else NO_PARAMETERS)
        [(user, place)] = of
        if not isinstance(user.op, GATHERS) or place != 0:
            break
        at, is_gathered = user.outputs[0], True
    factors = tuple(y for i, y in enumerate(user.inputs) if i != place)
    if not is_elemwise(user.op, Mul) or not any(map(is_random, factors)):
        return Unchanged(name, NO_PARAMETERS)
    if any(depends_on(y, {x}) for y in factors):
        return Unchanged(name, USED_TWICE)
    if is_gathered and not all(all(y.type.broadcastable) for y in factors):
        return Unchanged(name, SCALE_BY_ROW)
    if not is_gathered and not all(broadcasts_to(y, x) for y in factors):
        return Unchanged(name, SCALE_BY_ROW)
    terms, outer = _around(fgraph, x, user.outputs[0])
    # Terms added after indexing belong to rows, not to groups.
    own = () if is_gathered else terms
    return Effect(name, False, x, own, (*factors, *outer), x.owner.op.dims)


def _around(
    fgraph: FunctionGraph, x: Variable, scaled: Variable
) -> tuple[tuple[tuple[Variable, ...], ...], tuple[Variable, ...]]:
    """Return the terms added to the scaled variable, and the random scalars that multiply the sum, such as a common scale of several effects."""
    terms: tuple[tuple[Variable, ...], ...] = ()
    outer: tuple[Variable, ...] = ()
    while True:
        of = [*clients_of(fgraph, scaled)]
        if len(of) != 1:
            return terms, outer
        [(user, place)] = of
        found = tuple(y for i, y in enumerate(user.inputs) if i != place)
        if any(depends_on(y, {x}) for y in found):
            return terms, outer
        if is_elemwise(user.op, Add) and all(broadcasts_to(y, scaled) for y in found):
            terms += tuple((y,) for y in found)
        elif is_elemwise(user.op, Mul) and all(_is_random_scalar(y) for y in found):
            terms = tuple((*product, *found) for product in terms)
            outer += found
        else:
            return terms, outer
        scaled = user.outputs[0]


def _is_random_scalar(x: Variable) -> bool:
    return all(x.type.broadcastable) and is_random(x)


def clients_of(fgraph: FunctionGraph, x: Variable) -> Iterator[tuple[Apply, int]]:
    """Yield the clients of a variable and its input position in each. Deterministic and named copies count as the variable."""
    for node, place in fgraph.clients[x]:
        if isinstance(node.op, ModelDeterministic | ModelNamed):
            yield from clients_of(fgraph, node.outputs[0])
        elif not isinstance(node.op, Output):
            yield node, place


def _as_scalar(x: Variable) -> Variable:
    """Drop all axes, each of length 1."""
    return x.dimshuffle()


def broadcasts_to(x: Variable, effect: Variable) -> bool:
    """Return whether a variable broadcasts to the shape of an effect, so that the effect itself is not broadcast."""
    if x.type.ndim > effect.type.ndim:
        return False
    lengths = zip(reversed(x.type.shape), reversed(effect.type.shape), strict=False)
    return all(one == 1 or other != 1 for one, other in lengths)
