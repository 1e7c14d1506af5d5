"""Effects that multiply each other, as two standard normal vectors in one product: the place of one depends on the other, so only one of them gets a site."""

from collections.abc import Iterable, Iterator
from math import prod

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_fastlogp.reparametrization.correlated import Correlated
from pymc_fastlogp.reparametrization.effects import IN_A_CIRCLE, Effect, LeftAlone

type AnyEffect = Effect | Correlated


def without_circles(known: Iterable[AnyEffect | LeftAlone]) -> Iterator[AnyEffect | LeftAlone]:
    """Yield what is known of free variables; of effects that multiply each other, also by way of others, all but the largest are left alone."""
    known = [*known]
    effects = [x for x in known if not isinstance(x, LeftAlone)]
    read_by: dict[Variable, set[Variable]] = {}
    for effect in sorted(effects, key=_order):
        read = {*ancestors(effect.multipliers)}
        if not _leads_to(effect.variable, read, read_by):
            read_by[effect.variable] = read
    for x in known:
        is_left = not isinstance(x, LeftAlone) and x.variable not in read_by
        yield LeftAlone(x.name, IN_A_CIRCLE) if is_left else x


def _order(effect: AnyEffect) -> tuple[int, str]:
    """Return what is the same in copies of a model, whose variables may be in another order."""
    return -prod(n or 1 for n in effect.variable.type.shape), effect.name


def _leads_to(
    effect: Variable, read: set[Variable], read_by: dict[Variable, set[Variable]]
) -> bool:
    """Return whether what multiplies an effect reads another that is multiplied by it, or so in turn."""
    reached = {x for x in read_by if x in read}
    new = list(reached)
    while new:
        of_one = read_by[new.pop()]
        if effect in of_one:
            return True
        further = {x for x in read_by if x in of_one} - reached
        reached |= further
        new += further
    return False
