"""The public :func:`explain`: rewrite the log density of a model as a compilation does, and report."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import clone_replace

from pymc_fastlogp.decisions import Decision
from pymc_fastlogp.explanation.result import WRITTEN, Explanation, Outcome
from pymc_fastlogp.explanation.similar_lines import natural_order
from pymc_fastlogp.explanation.terms import rewrite_terms
from pymc_fastlogp.models.compile_lock import compiling
from pymc_fastlogp.models.freeze import can_be_frozen, frozen_copy
from pymc_fastlogp.models.table_rows import RowsRead, TableRows, without_tables
from pymc_fastlogp.models.validate import model_with_variables, validated_model
from pymc_fastlogp.rewrites.rows.compact.grouping import OVERHEAD
from pymc_fastlogp.tables.progress import progress_shown

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.models.array_rows import Merged
    from pymc_fastlogp.reparametrization.model_with_sites import ModelEffects

FEW_ENTRIES = f"too small to gain: {OVERHEAD} entries or fewer"
# In the order of the report: likelihoods have most rows.
KINDS = ("likelihood", "potential", "prior")

NONE_APPLIES = "no rewrite applies"
# The rewrite that does the same in a graph as the merge of long arrays before.
MERGED = "fastlogp_compact_rows"


def explain(
    model: "pm.Model | None" = None, *, freeze_model: bool = True, verbose: bool = False
) -> Explanation:
    """Report the rewrites of each likelihood and prior of ``model``, and the reasons for the rest.

    The log density is rewritten with the plugin on as PyMC and nutpie do, and its gradient as in mode
    NUMBA. Nothing is compiled, sampled or changed. Each decision is also a line of level INFO on
    ``logging.getLogger("pymc_fastlogp")``, here and in every compilation.

    Likelihoods over arrays of a million rows or more are summarized first, as in a compilation.

    Of a table a sample of at most 100 000 rows is read, which decides how all rows are going to be read. Rewrites and kernels are those of the sample,
    until a compilation has read all rows.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`. False reports the rewrites of plain ``pm.sample``.
    verbose : bool
        Print the table of rewrites, too.

    Returns
    -------
    Explanation
        Sentences in a terminal, HTML in a notebook. ``to_dict``, ``to_frame`` and
        ``explanation["name of a variable"]`` give plain data.

    Raises
    ------
    TypeError
        If there is no PyMC model.
    ValueError
        If the model has no free variable.
    RuntimeError
        If the plugin cannot be switched on, for example with untested versions of PyMC and PyTensor.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_fastlogp
    >>> with pm.Model() as model:
    ...     rate = pm.Exponential("rate", 1.0)
    ...     y = pm.Poisson("y", rate, observed=np.arange(1000) % 5)
    >>> [(row.rows_before, row.rows_after) for row in pymc_fastlogp.explain(model)["y"]]
    [(1000, 1)]
    """
    # This module imports PyMC, which the import of the package does not.
    from pymc_fastlogp.models.array_rows import with_distinct_rows

    with progress_shown(True):
        reduced, tables = without_tables(model_with_variables("explain", model), RowsRead.SAMPLE)
    is_frozen = freeze_model and can_be_frozen(reduced)
    merged: Mapping[str, Merged] = {}
    if is_frozen:
        reduced, merged = with_distinct_rows(reduced)
    model = validated_model("explain", reduced, freeze_model=freeze_model, gradient=False)
    with compiling():
        return _explained(model, tables, merged, is_frozen=is_frozen, verbose=verbose)


def _explained(
    model: "pm.Model",
    tables: Mapping[str, TableRows],
    merged: Mapping[str, "Merged"],
    *,
    is_frozen: bool,
    verbose: bool,
) -> Explanation:
    # Imports of the kernel are lazy, so that the import of the package stays short.
    from pymc_fastlogp.explanation.drawing import Picture
    from pymc_fastlogp.explanation.kernels import kernels_of

    moved = [x for x, transform in model.rvs_to_transforms.items() if transform is not None]
    names = {model.rvs_to_values[x].name: x.name for x in moved}
    terms = [pt.as_tensor(x, allow_xtensor_conversion=True).sum() for x in model.logp(sum=False)]
    fgraph, recorder = rewrite_terms(terms)
    in_order = [*_terms(model)]
    by_importance = sorted(in_order, key=_importance)
    rows = tuple(
        row
        for kind, variable, term in by_importance
        for row in _of_all_rows(
            _outcomes(kind, variable, recorder.standing(term), names), merged.get(variable.name)
        )
    )
    values = model.continuous_value_vars
    known = _with_lengths(model, values)
    on = clone_replace(fgraph.outputs, known, rebuild_strict=False)
    values = [known.get(x, x) for x in values]
    effects, expected = _effects(model, is_frozen=is_frozen)
    return Explanation(
        rows,
        kernels_of(on, values),
        Picture(terms, fgraph, [variable.name for _, variable, _ in in_order]),
        effects,
        _stored(model),
        tuple(x.name for x in model.deterministics),
        verbose,
        expected,
        {name: rows.sentence() for name, rows in tables.items()},
    )


def _with_lengths(
    model: "pm.Model", values: Iterable[pt.TensorVariable]
) -> dict[pt.TensorVariable, pt.TensorVariable]:
    """Return a variable with a static shape for each value variable of unknown length, as nutpie does after the gradient."""
    unknown = [x for x in values if None in x.type.shape]
    if not unknown:
        return {}
    shapes = model.eval_rv_shapes()
    return {x: x.type.clone(shape=shapes[x.name])(name=x.name) for x in unknown}


def _stored(model: "pm.Model") -> dict[str, int]:
    """Return the number of values of each free variable and Deterministic; empty if a shape is not constant."""
    from pymc.pytensorf import constant_fold

    stored = {}
    for x in (*model.free_RVs, *model.deterministics):
        shape = x.type.shape
        if None in shape:
            [shape] = constant_fold([pt.stack(tuple(x.shape))], raise_not_constant=False)
            if not isinstance(shape, np.ndarray):
                return {}
        stored[x.name] = int(prod(shape))
    return stored


COMPARES = (
    "reparametrize compares parametrizations in a pilot run, and keeps this one"
    " if the likelihood couples the entries"
)
# Alone, a scale of effects is no reason to reparametrize a model.
SCALE = "reparametrize lets it come near zero: it is the scale of effects"
EXPECTED = "reparametrize=True is {} to help the effects {}: their rows identify {}, and they are written {}."


def _effects(model: "pm.Model", *, is_frozen: bool) -> tuple[dict[str, str], str]:
    """Return the action of ``reparametrize`` on each free variable, and a sentence about its gain if the data tell."""
    from pymc_fastlogp.reparametrization.model_with_sites import find_effects

    try:
        # `reparametrize` freezes the data, also if the explained graph does not.
        model = model if is_frozen else frozen_copy(model)
        found = find_effects(model)
    except (NotImplementedError, ValueError) as error:
        return {rv.name: f"reparametrize leaves it: {error}" for rv in model.free_RVs}, ""
    placed = {name: f"{WRITTEN}{kind}; {COMPARES}" for name, kind in found.kinds.items()}
    placed |= dict.fromkeys(found.scales, SCALE)
    placed |= {x.name: f"reparametrize leaves it: {x.reason}" for x in found.unchanged}
    return placed, _expectation(model, found)


def _expectation(model: "pm.Model", found: "ModelEffects") -> str:
    """Return a sentence about the gain by ``reparametrize``, empty if the data do not tell."""
    from pymc_fastlogp.reparametrization.well_identified import CENTERED, MIN_RATIO, identification

    known = identification(model, found)
    if known is None:
        return ""
    [names] = found.blocks
    is_centered = [found.kinds[name] in CENTERED for name in names]
    written = "centered" if all(is_centered) else "non-centered"
    # By symmetry, the non-centered form is as good if the prior identifies the effects well.
    if known.least >= MIN_RATIO:
        how, is_expected = "each of them well", not all(is_centered)
    elif known.largest <= 1 / MIN_RATIO:
        how, is_expected = "each of them weakly", any(is_centered)
    else:
        how, is_expected = "them in part", True
    said = "expected" if is_expected else "not expected"
    return EXPECTED.format(said, " and ".join(names), how, written)


def _terms(model: "pm.Model") -> Iterator[tuple[str, pt.TensorVariable, int]]:
    """Yield the kind of each term of the log density, its variable, and its place among the terms."""
    variables = {
        "prior": model.free_RVs,
        "likelihood": model.observed_RVs,
        "potential": model.potentials,
    }
    kinds = [(kind, variable) for kind, of_kind in variables.items() for variable in of_kind]
    for term, (kind, variable) in enumerate(kinds):
        yield kind, variable, term


def _importance(term: tuple[str, pt.TensorVariable, int]) -> tuple[int, float, list[int | str]]:
    """Return a key by which terms are sorted: by kind, then large terms first, then by name."""
    kind, variable, _ = term
    size = _size(kind, variable)
    return KINDS.index(kind), -inf if size is None else -size, natural_order(variable.name)


def _outcomes(
    kind: str, variable: pt.TensorVariable, decisions: Iterable[Decision], names: dict[str, str]
) -> list[Outcome]:
    """Return the outcomes of one term, at least one, rewrites that fired first."""
    size = _size(kind, variable)
    alike = defaultdict(list)
    for decision in decisions:
        n_rows = size if decision.rows_before is None else decision.rows_before
        if decision.fired or n_rows is None or n_rows > OVERHEAD:
            alike[_identity(decision)].append(decision)
    if not alike:
        reason = NONE_APPLIES if size is None or size > OVERHEAD else FEW_ENTRIES
        return [Outcome(variable.name, kind, rewrite="", reason=reason)]
    outcomes = [_outcome(kind, variable, decisions, names) for decisions in alike.values()]
    return sorted(outcomes, key=lambda outcome: not outcome.fired)


def _of_all_rows(rows: list[Outcome], merged: "Merged | None") -> list[Outcome]:
    """Return the outcomes of a likelihood whose equal rows were merged before the rewrites, with the rows before that."""
    if merged is None:
        return rows
    n_rows, n_distinct = merged
    counted = [replace(x, rows_before=n_rows) if x.rows_before == n_distinct else x for x in rows]
    if counted != rows:
        return counted
    first = rows[0]
    of_merge = Outcome(
        first.variable, first.kind, MERGED, rows_before=n_rows, rows_after=n_distinct
    )
    return [of_merge, *(x for x in rows if x.rewrite)]


def _size(kind: str, variable: pt.TensorVariable) -> int | None:
    """Return the number of entries of a variable, if known. A potential may be a sum of any number of terms."""
    shape = variable.type.shape
    return None if kind == "potential" or None in shape else prod(shape)


def _identity(decision: Decision) -> tuple:
    """Return a key that is equal for decisions that read the same to the user."""
    rows = (decision.rows_before, decision.rows_after) if decision.fired else ()
    return (decision.rule, decision.refusal, decision.by, *rows)


def _outcome(
    kind: str, variable: pt.TensorVariable, alike: list[Decision], names: dict[str, str]
) -> Outcome:
    # Some reductions of a matrix are over rows alone, others over rows and columns.
    decision = min(alike, key=lambda decision: decision.rows_before or inf)
    reason, by = decision.refusal.text if decision.refusal else "", decision.by
    # Rules name value variables, such as sigma_log__; users know sigma.
    for value, of_user in names.items():
        reason, by = reason.replace(value, of_user), by.replace(value, of_user)
    return Outcome(
        variable.name,
        kind,
        rewrite=decision.rule,
        times=len(alike),
        rows_before=decision.rows_before,
        rows_after=decision.rows_after,
        reason=reason,
        advice=decision.refusal.advice if decision.refusal else "",
        by=by,
    )
