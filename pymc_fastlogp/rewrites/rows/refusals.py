"""Why rows were not compacted, in words for the user, with what can be done."""

from collections.abc import Iterable

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Where, parse_gather
from pymc_fastlogp.rewrites.rows.keys import WORTHWHILE
from pymc_fastlogp.rewrites.rows.terms import Term
from pymc_fastlogp.rewrites.rows.views import Grid, varies

NEEDED_ROW_BY_ROW = "it is also needed row by row, as an elementwise log-likelihood is"

READS_OTHERS = "its rows read what others compute, so that they cannot change places"

FREEZE = (
    "{name} is shared and can change between evaluations: compile with freeze_model=True "
    "(pymc_fastlogp.compile_kwargs()), or freeze it with "
    "pymc.model.transform.optimization.freeze_dims_and_data(model)"
)
RANDOM = "it reads random numbers ({name}), which are drawn anew in each evaluation"
ONE_EACH = "{name} has an entry of its own for each row"
TOO_FEW = "too few repeats: more than {share} of the {n} rows differ in what they read"
UNKNOWN = "the number of rows is not known before the call"


def why_unknown(x: TensorVariable) -> str:
    """Say why the number of rows of ``x`` is not known."""
    reason = _of_source(ancestors([x]))
    if reason is not None:
        return reason
    # As long as there are rows is what decides how many there are.
    for source in explicit_graph_inputs([x]):
        if None in getattr(source.type, "shape", ()):  # a list of tensors has none
            return own_entry_of(source)
    return UNKNOWN


def why_distinct(grid: Grid, where: Where, terms: Iterable[Term]) -> str:
    """Say why the rows of these terms hardly repeat."""
    reason = why_own_entries(grid, where, [term.x for term in terms])
    return reason or TOO_FEW.format(share=WORTHWHILE, n=grid.n_rows)


def why_own_entries(grid: Grid, where: Where, of_rows: Iterable[TensorVariable]) -> str | None:
    """Say why rows read entries of their own of something other than constants; None if not."""
    leaves = _long_leaves(grid, of_rows, where)
    source = _of_source(ancestors(leaves))
    if source is not None or not leaves:
        return source
    return own_entry_of(leaves[0])


def own_entry_of(x: TensorVariable) -> str:
    """Say that each row reads an entry of its own of ``x``."""
    return ONE_EACH.format(name=name_of(x))


def _of_source(variables: Iterable[Variable]) -> str | None:
    """Return the reason that lies in where numbers come from."""
    for x in variables:
        if isinstance(x, SharedVariable) and hasattr(x.type, "shape"):
            return FREEZE.format(name=name_of(x))
        if x.owner is not None and isinstance(x.owner.op, RandomVariable):
            return RANDOM.format(name=name_of(x))
        # A minibatch draws inside an Op of its own, and only its generator is seen here.
        if isinstance(x.type, RandomType):
            return RANDOM.format(name=x.name or "a minibatch, or another generator of its own")
    return None


def _long_leaves(
    grid: Grid, of_rows: Iterable[TensorVariable], where: Where
) -> list[TensorVariable]:
    """Return the variables, other than constants, of which each row reads its own entry."""
    leaves: dict[TensorVariable, None] = {}
    seen = set()
    to_see = [(x, where) for x in of_rows]
    while to_see:
        x, at = to_see.pop()
        if not varies(x, at) or id(view := grid.view(x, at)) in seen:
            continue
        seen.add(id(view))
        to_see += view.inputs
        if not view.inputs and not isinstance(x, Constant) and not _looks_up(x):
            leaves[x] = None
    return [*leaves]


def _looks_up(x: TensorVariable) -> bool:
    """Whether what is read of ``x`` are entries of a table, which rows may share."""
    return isinstance(x.owner_op, AdvancedSubtensor) and parse_gather(x.owner) is not None


def name_of(x: Variable) -> str:
    """Return the name of a variable, or of what it is computed from that the user may know."""
    named = (a.name for a in ancestors([x]) if a.name and not isinstance(a, Constant))
    return next(named, str(x))
