"""Reasons to leave variables unchanged, whatever their prior."""

from typing import TYPE_CHECKING

from pytensor.graph.basic import Variable

from pymc_fastlogp.reparametrization.zero_sum import length_of

if TYPE_CHECKING:
    import pymc as pm

HAS_START = "it has an initial value"
NO_LENGTH = "its length is not known"
NO_ENTRIES = "it has no entries"
NO_SITE = "it has no site"
IS_COUPLED = (
    "the likelihood does not know its entries apart, as those of coefficients or of steps of a walk"
)
SINGLE_PRECISION = "it is of single precision"


def reasons_of(model: "pm.Model") -> dict[str, str]:
    """Return the names of the free variables of a model that stay as they are, and why."""
    values = model.rvs_to_initial_values
    reasons = {rv.name: NO_LENGTH for rv in model.free_RVs if not _has_length(rv)}
    reasons |= {rv.name: NO_ENTRIES for rv in model.free_RVs if _is_empty(rv)}
    reasons |= {rv.name: SINGLE_PRECISION for rv in model.free_RVs if rv.type.dtype == "float32"}
    return reasons | {rv.name: HAS_START for rv, value in values.items() if value is not None}


def _has_length(rv: Variable) -> bool:
    return None not in rv.type.shape or length_of(rv) is not None


def _is_empty(rv: Variable) -> bool:
    return 0 in (*rv.type.shape, length_of(rv))
