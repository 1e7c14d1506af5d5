"""Reasons to leave rows alone, with advice for the user: a table, and the choice of its row."""

from collections.abc import Iterable
from functools import cache

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.gathers import Where, parse_gather
from pymc_fastlogp.decisions import Refusal, logger
from pymc_fastlogp.rewrites.rows.compact.terms import Term
from pymc_fastlogp.rewrites.rows.view.grid import Grid
from pymc_fastlogp.rewrites.rows.view.keys import WORTHWHILE
from pymc_fastlogp.rewrites.rows.view.row_view import View

# A row each: why, and what the user can do about it.
NEEDED_ROW_BY_ROW = Refusal(
    "it is also needed row by row, as an elementwise log-likelihood is",
    "nothing, unless it is an output of yours: compute that apart",
)
READS_OTHERS = Refusal(
    "its rows read what others compute, so that they cannot change places",
    "nothing: such rows have an order of their own",
)
SHARED = Refusal(
    "{name} is shared and can change between evaluations",
    "compile with freeze_model=True (pymc_fastlogp.compile_kwargs()), or freeze it with "
    "pymc.model.transform.optimization.freeze_dims_and_data(model)",
)
RANDOM = Refusal(
    "it reads random numbers ({name}), which are drawn anew in each evaluation",
    "take all of the data instead of a minibatch: rows that repeat then cost nothing",
)
ONE_EACH = Refusal(
    "{name} has an entry of its own for each row",
    "nothing, unless rows could share a parameter by an index",
)
TOO_FEW = Refusal(
    "too few repeats: more than {share} of the {n} rows differ in what they read",
    "nothing, unless a covariate can be rounded without loss, or groups joined",
)
UNKNOWN = Refusal(
    "the number of rows is not known before the call",
    "give data and variables a length that is known, by shape or freeze_model=True",
)

# Of sums of squares.
TOO_MANY_CELLS = Refusal(
    "too few rows read the same parameters", "nothing, unless groups can be joined"
)
COUNTS = Refusal(
    f"{TOO_MANY_CELLS.text}: {{n}} rows in {{cells}} cells with {{k}} parameters each",
    TOO_MANY_CELLS.advice,
)
NOT_LINEAR = Refusal(
    "the predictor is not linear in a covariate that differs from row to row",
    "nothing, unless it can be a constant matrix, of a spline for instance, times coefficients",
)
TOO_MANY_PRODUCTS = Refusal(
    "the predictor has too many products when it is multiplied out: {most} is the most",
    "nothing, unless it can be written with fewer, say without what is added to itself many times",
)
TOO_MANY_PARAMETERS = Refusal(
    "too many parameters in each cell: {k}, where {most} is the most",
    "nothing, unless groups can do with fewer coefficients",
)
COMPACTED = Refusal(
    "the rows repeat so often that row compaction leaves as few", "nothing: row compaction does it"
)
ZERO_WEIGHTS = Refusal(
    "some weights are zero, and 0 * inf is nan where a square is infinite",
    "leave out the rows of weight zero",
)
BAD_CONSTANTS = Refusal(
    "its constants are not finite, or their squares have no numbers in its precision, or some weights are positive and others negative",
    "look for nan, infinities, signs and units in the data and weights",
)
NO_SUMS = Refusal(
    "the weights of equal rows have sums that its precision has no numbers for",
    "give the weights, or the data, another unit",
)


def why_unknown(x: TensorVariable) -> Refusal:
    """Say why the number of rows of ``x`` is not known."""
    if refusal := _of_source(ancestors([x])):
        return refusal
    # As long as there are rows is what decides how many there are.
    for source in explicit_graph_inputs([x]):
        if None in getattr(source.type, "shape", ()):  # a list of tensors has none
            return own_entry_of(source)
    return UNKNOWN


def why_distinct(grid: Grid, where: Where, terms: Iterable[Term]) -> Refusal:
    """Say why the rows of these terms hardly repeat."""
    own = why_own_entries(grid, where, [term.x for term in terms])
    return own or TOO_FEW.about(share=WORTHWHILE, n=grid.n_rows)


def why_own_entries(grid: Grid, where: Where, of_rows: Iterable[TensorVariable]) -> Refusal | None:
    """Say why rows read entries of their own of something other than constants; None if not."""
    leaves = _long_leaves(grid, of_rows, where)
    source = _of_source(ancestors(leaves))
    if source is not None or not leaves:
        return source
    return own_entry_of(leaves[0])


def own_entry_of(x: TensorVariable) -> Refusal:
    """Say that each row reads an entry of its own of ``x``."""
    return ONE_EACH.about(name=name_of(x))


def _of_source(variables: Iterable[Variable]) -> Refusal | None:
    """Return the refusal that lies in where numbers come from."""
    for x in variables:
        if isinstance(x, SharedVariable) and hasattr(x.type, "shape"):
            _say_that_data_can_change()
            return SHARED.about(name=name_of(x))
        if x.owner is not None and isinstance(x.owner.op, RandomVariable):
            return RANDOM.about(name=name_of(x))
        # A minibatch draws inside an Op of its own, and only its generator is seen here.
        if isinstance(x.type, RandomType):
            return RANDOM.about(name=x.name or "a minibatch, or another generator of its own")
    return None


@cache
def _say_that_data_can_change() -> None:
    """Say once in a process what the import alone cannot do, before what is said of each variable."""
    logger.info(
        "data that are not frozen (pm.Data) can change between evaluations, so all of their rows are evaluated: "
        "pymc_fastlogp.sample and compile_pymc_model freeze them, nutpie does with freeze_model=True"
    )


def _long_leaves(
    grid: Grid, of_rows: Iterable[TensorVariable], where: Where
) -> list[TensorVariable]:
    """Return the variables, other than constants, of which each row reads its own entry."""
    leaves: dict[TensorVariable, None] = {}
    for x, _, view in grid.walk([(x, where) for x in of_rows]):
        if is_own_entry(x, view):
            leaves[x] = None
    return [*leaves]


def is_own_entry(x: TensorVariable, view: View) -> bool:
    """Return whether each row reads an entry of its own of ``x``, other than a constant."""
    return not view.inputs and not isinstance(x, Constant) and not _looks_up(x)


def _looks_up(x: TensorVariable) -> bool:
    """Return whether what is read of ``x`` are entries of a table, which rows may share."""
    return isinstance(x.owner_op, AdvancedSubtensor) and parse_gather(x.owner) is not None


def name_of(x: Variable) -> str:
    """Return the name of a variable, or of what it is computed from that the user may know."""
    above = [*ancestors([x])]
    named = (a.name for a in above if a.name and not isinstance(a, Constant))
    of_constants = all(isinstance(a, Constant) for a in above if a.owner is None)
    return next(named, "what is computed from constants" if of_constants else str(x))
