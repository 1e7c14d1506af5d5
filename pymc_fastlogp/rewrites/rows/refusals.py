"""Table of the reasons for which row rules refuse, with advice for the user, and functions that select a reason."""

from collections.abc import Iterable
from functools import cache

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.scan.op import Scan
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_fastlogp.analysis.blockwise import core_op
from pymc_fastlogp.analysis.gathers import Where, parse_gather
from pymc_fastlogp.decisions import Refusal, logger
from pymc_fastlogp.rewrites.rows.compact.terms import Term
from pymc_fastlogp.rewrites.rows.view.grid import Grid, View
from pymc_fastlogp.rewrites.rows.view.keys import MAX_DISTINCT_SHARE

# Reason, and advice for the user.
NEEDED_ROW_BY_ROW = Refusal(
    "the summand is also needed row by row, for example by an elementwise log-likelihood",
    "nothing, unless you compute the rows as an output: compile this output as a separate function",
)
READS_OTHERS = Refusal(
    "rows depend on other rows, so their order cannot be changed",
    "nothing: the order of the rows is part of the model",
)
SHARED = Refusal(
    "{name} is shared and can change between evaluations",
    "compile with freeze_model=True (pymc_fastlogp.compile_kwargs()), or freeze it with "
    "pymc.model.transform.optimization.freeze_dims_and_data(model)",
)
RANDOM = Refusal(
    "the rows read random numbers ({name}) that are drawn in each evaluation",
    "use all data instead of a minibatch: repeated rows then cost nothing",
)
ONE_VALUE_PER_ROW = Refusal(
    "{name} has one value per row, so that no rows repeat",
    "nothing, unless rows could share a parameter by an index",
)
TOO_FEW = Refusal(
    "too few rows repeat: more than {share} of the {n} rows are distinct",
    "nothing, unless a covariate can be rounded without loss, or groups can be merged",
)
UNKNOWN = Refusal(
    "the number of rows is not known when the model is compiled",
    "give data and variables a known length, by shape or freeze_model=True",
)

# Refusals of sums of squares.
TOO_MANY_CELLS = Refusal(
    "too few rows share the same parameters", "nothing, unless groups can be merged"
)
COUNTS = Refusal(
    f"{TOO_MANY_CELLS.text}: {{n}} rows in {{cells}} groups with {{k}} parameters each",
    TOO_MANY_CELLS.advice,
)
NOT_LINEAR = Refusal(
    "the predictor is not linear in a covariate that differs from row to row",
    "nothing, unless it can be a constant matrix, of a spline for instance, times coefficients",
)
TOO_MANY_PRODUCTS = Refusal(
    "the expanded predictor is a sum of too many products: {most} is the limit",
    "nothing, unless the predictor can be written with fewer products",
)
TOO_MANY_PARAMETERS = Refusal(
    "rows share too many parameters: {k}, where {most} is the limit",
    "nothing, unless groups can have fewer coefficients",
)
COMPACTED = Refusal(
    "merging repeated rows (fastlogp_compact_rows) leaves as few rows",
    "nothing: these rows are merged",
)
ZERO_WEIGHTS = Refusal(
    "some weights are zero, and 0 * inf would be NaN if a square is infinite",
    "drop the rows with weight zero",
)
WEIGHTS_OF_DATA = Refusal(
    "weights or scales of rows are shared data",
    "freeze weights and scales that all data sets have in common",
)
BAD_CONSTANTS = Refusal(
    "constants are not finite, squares of constants overflow or underflow, or weights have both signs",
    "check data and weights for NaN, infinities, negative signs, and units that make values huge or tiny",
)
NO_SUMS = Refusal(
    "the sum of the weights of equal rows overflows",
    "rescale the weights, or the data",
)


def why_unknown(x: TensorVariable) -> Refusal:
    """Return the reason why the number of rows of ``x`` is unknown."""
    if refusal := _of_source(ancestors([x])):
        return refusal
    # An input of unknown length determines the number of rows.
    for source in explicit_graph_inputs([x]):
        if None in getattr(source.type, "shape", ()):  # a list of tensors has no shape
            return row_specific(source)
    return UNKNOWN


def why_distinct(grid: Grid, where: Where, terms: Iterable[Term]) -> Refusal:
    """Return the reason why the rows of these terms hardly repeat."""
    refusal = why_row_specific(grid, where, [term.x for term in terms])
    return refusal or TOO_FEW.about(share=f"{MAX_DISTINCT_SHARE:.0%}", n=grid.n_rows)


def why_row_specific(grid: Grid, where: Where, of_rows: Iterable[TensorVariable]) -> Refusal | None:
    """Return the refusal if each row reads a different entry of a variable that is not constant, None otherwise."""
    leaves = _row_specific_leaves(grid, of_rows, where)
    source = _of_source(ancestors(leaves))
    if source is not None or not leaves:
        return source
    return row_specific(leaves[0])


def row_specific(x: TensorVariable) -> Refusal:
    """Return the refusal of rows that each read a different entry of ``x``."""
    name = name_of(x)
    return ONE_VALUE_PER_ROW.about(
        name=name if x.name or x.owner is None else f"{_kind_of(x)} {name}"
    )


def _kind_of(x: TensorVariable) -> str:
    """Return words for the Op of ``x`` that stand before a name: a user knows the variable, but not the node."""
    match core_op(x.owner_op):
        case Dot():
            return "a matrix product with"
        case CumOp():
            return "a cumulative sum or product of"
        case Scan():
            return "a scan over"
    return "an array computed from"


def _of_source(variables: Iterable[Variable]) -> Refusal | None:
    """Return a refusal if one of the variables can change between evaluations: shared data or random numbers."""
    for x in variables:
        if isinstance(x, SharedVariable) and hasattr(x.type, "shape"):
            _say_that_data_can_change()
            return SHARED.about(name=name_of(x))
        if x.owner is not None and isinstance(x.owner.op, RandomVariable):
            return RANDOM.about(name=name_of(x))
        # A minibatch draws inside an Op, and only its generator is an ancestor.
        if isinstance(x.type, RandomType):
            return RANDOM.about(name=x.name or "a minibatch or another random generator")
    return None


@cache
def _say_that_data_can_change() -> None:
    """Log once per process that data have to be frozen, before refusals name each variable."""
    logger.info(
        "data that are not frozen (pm.Data) can change between evaluations, so all of their rows are evaluated: "
        "pymc_fastlogp.sample and compile_pymc_model freeze them, nutpie does with freeze_model=True"
    )


def _row_specific_leaves(
    grid: Grid, of_rows: Iterable[TensorVariable], where: Where
) -> list[TensorVariable]:
    """Return the variables, except constants, of which each row reads a different entry."""
    leaves: dict[TensorVariable, None] = {}
    for x, _, view in grid.walk([(x, where) for x in of_rows]):
        if is_row_specific(x, view):
            leaves[x] = None
    return [*leaves]


def is_row_specific(x: TensorVariable, view: View) -> bool:
    """Return whether each row reads a different entry of ``x``, which is not constant."""
    return not view.inputs and not isinstance(x, Constant) and not _looks_up(x)


def _looks_up(x: TensorVariable) -> bool:
    """Return whether ``x`` consists of entries of a table, which rows may share."""
    return isinstance(x.owner_op, AdvancedSubtensor) and parse_gather(x.owner) is not None


def name_of(x: Variable) -> str:
    """Return the name of a variable, or of the nearest named ancestor, arrays before scalars."""
    above = [*ancestors([x])]
    named = [a for a in above if a.name and not isinstance(a, Constant)]
    # Rows do not differ by a scalar.
    named.sort(key=lambda a: getattr(a.type, "ndim", 0) == 0 and a is not x)
    if named:
        return str(named[0].name)
    of_constants = all(isinstance(a, Constant) for a in above if a.owner is None)
    return "an array computed from constants" if of_constants else str(x)
