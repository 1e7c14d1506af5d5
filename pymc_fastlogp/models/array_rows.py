r"""Replace the likelihoods over long arrays in memory by likelihoods over their distinct rows, before PyMC and PyTensor compute with all rows.

The rules about rows merge rows, too, but in a rewritten graph. By then PyTensor has folded constants, and holds several arrays of the length of the
data. Here the arrays are a table, which :mod:`pymc_fastlogp.models.table_likelihood` reduces batch by batch.

A likelihood that reads long arrays in another way than row by row, or whose rows hardly repeat, keeps all rows. Its data become constants that share
the memory of the model's data, of which PyMC would make two copies.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_fastlogp._upstream.pymc_dispatch import SymbolicRandomVariable
from pymc_fastlogp.models.compile_lock import compile_lock
from pymc_fastlogp.models.freeze import can_be_frozen, copy_with_data
from pymc_fastlogp.models.table_likelihood import TableLikelihood, graphs_of
from pymc_fastlogp.tables import summaries
from pymc_fastlogp.tables.cells import Summary
from pymc_fastlogp.tables.columns import Column, placeholder
from pymc_fastlogp.tables.expressions import Expression, expression_of_column
from pymc_fastlogp.tables.plan import Density, Plan, Way, plan_of, summarize
from pymc_fastlogp.tables.sample import N_SAMPLE

if TYPE_CHECKING:
    import pymc as pm

logger = logging.getLogger("pymc_fastlogp")

# Least number of rows: shorter arrays are rewritten in less time than a model is copied.
MIN_ROWS = 1_000_000
# Most cells, as a share of the rows.
MAX_SHARE = 0.1
BATCH = 500_000


class Merged(NamedTuple):
    """Numbers of rows of a likelihood.

    Attributes
    ----------
    n_rows : int
        Number of rows of the arrays.
    n_distinct : int
        Number of distinct rows, or of points that stand for rows.
    """

    n_rows: int
    n_distinct: int


class WithDistinctRows(NamedTuple):
    """Model whose likelihoods over long arrays read distinct rows with counts where rows repeat.

    Attributes
    ----------
    model : pymc.Model
        The model.
    merged : dict of str to Merged
        Numbers of rows by the name of the likelihood.
    """

    model: "pm.Model"
    merged: Mapping[str, Merged]


def with_distinct_rows(model: "pm.Model") -> WithDistinctRows:
    """Return a model whose likelihoods over long arrays read distinct rows with counts, or the model itself if nothing changes.

    Parameters
    ----------
    model : pymc.Model
        The model, whose data are about to become constants.
    """
    factors = [*model.observed_RVs, *model.potentials]
    if not can_be_frozen(model) or not any(_arrays_of(model, x) for x in factors):
        return WithDistinctRows(model, {})
    if reason := _other_reader(model):
        logger.info("likelihoods read all rows of their arrays: %s", reason)
        return WithDistinctRows(model, {})
    data = _data_of_likelihoods(model)
    with compile_lock(), _without_names(model, data):
        copy = copy_with_data(model)
    merged = {}
    for factor in [*copy.observed_RVs, *copy.potentials]:
        if not (arrays := _arrays_of(copy, factor)):
            continue
        graphs = graphs_of(copy, factor)
        try:
            merged[factor.name] = _reduce(copy, factor, arrays)
        except ValueError as reason:
            logger.info("%s reads all rows of its arrays: %s", factor.name, reason)
            _exchange(copy, factor.name, graphs, _constants(arrays, data))
    if not merged and not data:
        return WithDistinctRows(model, {})
    _drop_unread_coords(copy)
    return WithDistinctRows(copy, merged)


@dataclass(frozen=True, eq=False)
class ArrayTable:
    """Arrays of equal length as a table.

    Attributes
    ----------
    columns : dict of str to ndarray
        Vectors by name.
    """

    columns: Mapping[str, np.ndarray]
    engine = "NumPy"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def plan(self, expressions: Sequence[Expression], density: Density) -> Plan:
        """Return how the rows are read that a log density needs."""
        columns = dict.fromkeys(column for x in expressions for column in x.columns)
        places = np.random.default_rng(0).integers(self.n_rows, size=min(N_SAMPLE, self.n_rows))
        sample = {x: self.columns[x.name][places] for x in columns}
        of_columns = [expression_of_column(x, sample[x].dtype.name) for x in columns]
        values = {x: x.values(sample) for x in (*of_columns, *expressions)}
        return plan_of(values, of_columns, expressions, density, lambda: self.n_rows)

    def rows(self, plan: Plan) -> Summary:
        """Return the summary of all rows, or of the first ones that have too many cells."""
        return summaries.merged(self._summaries(plan), int(MAX_SHARE * self.n_rows))

    def _summaries(self, plan: Plan) -> Iterator[Summary]:
        columns = {column for x in plan.expressions for column in x.columns}
        for begin in range(0, self.n_rows, BATCH):
            rows = slice(begin, begin + BATCH)
            values = plan.values({x: self.columns[x.name][rows] for x in columns})
            yield summarize(plan, values)


def _other_reader(model: "pm.Model") -> str | None:
    """Return the reason if a variable reads an observed variable, whose rows it would lose."""
    for x in (*model.basic_RVs, *model.potentials, *model.deterministics):
        above = {*ancestors([x])} - {x}
        if found := [y.name for y in model.observed_RVs if y in above]:
            return f"{x.name} reads the observed variable {found[0]}"
    return None


def _data_of_likelihoods(model: "pm.Model") -> list[SharedVariable]:
    """Return the long data that likelihoods alone read."""
    read = {*ancestors([*model.free_RVs, *model.deterministics])}
    return [x for x in model.data_vars if _is_long_data(x) and x not in read]


def _is_long_data(x: Variable) -> bool:
    return isinstance(x, SharedVariable) and _n_rows(x) >= MIN_ROWS


@contextmanager
def _without_names(model: "pm.Model", data: Sequence[SharedVariable]) -> Iterator[None]:
    """Remove data temporarily from the variables of a model: PyMC's copy of the model shares the memory of variables without a name."""
    data_vars, named = model.data_vars, model.named_vars
    try:
        model.data_vars = type(data_vars)([x for x in data_vars if x not in data])
        model.named_vars = type(named)({k: x for k, x in named.items() if x not in data})
        yield
    finally:
        model.data_vars, model.named_vars = data_vars, named


def _constants(
    arrays: Iterable[Variable], data: Sequence[SharedVariable]
) -> dict[Variable, Variable]:
    """Return constants for copies of data, of the same memory."""
    containers = [x.container for x in data]
    return {
        x: x.type.constant_type(type=x.type, data=_value(x), name=x.name)
        for x in arrays
        if isinstance(x, SharedVariable) and x.container in containers
    }


def _arrays_of(model: "pm.Model", factor: Variable) -> list[Variable]:
    """Return the data and constants that a likelihood reads and that have many rows."""
    return [x for x in ancestors(graphs_of(model, factor)) if _n_rows(x) >= MIN_ROWS]


def _n_rows(x: Variable) -> int:
    value = _value(x)
    return len(value) if isinstance(value, np.ndarray) and value.ndim else 0


def _value(x: Variable) -> Any:
    if isinstance(x, Constant):
        return x.data
    return x.get_value(borrow=True) if isinstance(x, SharedVariable) else None


def _reduce(model: "pm.Model", factor: Any, arrays: Iterable[Variable]) -> Merged:
    """Replace a likelihood by that of its distinct rows, in place, and return their numbers."""
    values = {x: _value(x) for x in arrays}
    if len({x.shape for x in values.values()}) > 1 or any(x.ndim > 1 for x in values.values()):
        raise ValueError(f"the arrays of {factor.name} are no vectors of one length")
    named = {f"array {k}": x for k, x in enumerate(values)}
    table = ArrayTable({name: values[x] for name, x in named.items()})
    known = {
        x: placeholder(Column(table, name), table.columns[name][:1]) for name, x in named.items()
    }
    likelihood = _over_placeholders(model, factor, known)
    rows = None if likelihood.plan.way is Way.LOADED else table.rows(likelihood.plan)
    if rows is None or rows.n_rows < table.n_rows:
        raise ValueError(f"the rows of {factor.name} hardly repeat")
    n_distinct = likelihood.replace(model, rows)
    logger.info("%s: %d rows are %d cells", factor.name, rows.n_rows, rows.n_cells)
    return Merged(rows.n_rows, n_distinct)


def _over_placeholders(
    model: "pm.Model", factor: Any, known: dict[Variable, Variable]
) -> TableLikelihood:
    """Replace the arrays of a likelihood by placeholders in a model, and return the likelihood."""
    shape = next(iter(known.values())).shape
    known = known | {x: shape.astype(x.type.dtype) for x in _sizes(model, factor)}
    _exchange(model, factor.name, graphs_of(model, factor), known)
    likelihood = TableLikelihood.of(model, model[factor.name])
    if likelihood is None:
        raise ValueError(f"{factor.name} reads their length alone")
    return likelihood


def _exchange(
    model: "pm.Model", name: str, graphs: list[Variable], known: Mapping[Variable, Variable]
) -> None:
    """Exchange a likelihood for one with these graphs, with some variables replaced, in place."""
    from pymc_fastlogp.models.weighted_rows import exchange_likelihood, rebuilt

    exchange_likelihood(model, model[name], *rebuilt(graphs, known))


def _sizes(model: "pm.Model", factor: Any) -> Iterator[Variable]:
    """Yield the sizes of a distribution of rows and of its components: the shape of ``observed``, or the length of a dimension."""
    for x in ancestors([factor]):
        if x in model.free_RVs or not isinstance(
            x.owner_op, RandomVariable | SymbolicRandomVariable
        ):
            continue
        size = x.owner.op.size_param(x.owner)
        if size is not None and size.type.shape == (1,):
            yield size


def _drop_unread_coords(model: "pm.Model") -> None:
    """Remove long coordinates that no variable has or reads any more: compilation would copy them."""
    named = {dim for dims in model.named_vars_to_dims.values() for dim in dims}
    read = {*ancestors([*model.basic_RVs, *model.potentials, *model.deterministics])}
    for dim, values in [*model.coords.items()]:
        is_read = dim in named or model.dim_lengths[dim] in read
        if not is_read and values is not None and len(values) >= MIN_ROWS:
            del model.coords[dim], model.dim_lengths[dim]
