"""The public ``explain``: rewrite the graph of a model as a compilation does, and report."""

from collections import defaultdict
from collections.abc import Iterable
from math import inf, prod
from typing import TYPE_CHECKING

import pytensor.tensor as pt

from pymc_fastlogp.explain.advice import split_advice
from pymc_fastlogp.explain.result import Explanation, Outcome
from pymc_fastlogp.explain.terms import rewrite_terms
from pymc_fastlogp.registration import untested_reason
from pymc_fastlogp.rewrites.decisions import Decision
from pymc_fastlogp.rewrites.row_loops import OVERHEAD

if TYPE_CHECKING:
    import pymc as pm

FEW_ENTRIES = f"too small to gain: {OVERHEAD} entries or fewer"
NONE_APPLIES = "no rewrite knows a faster form of it"


def explain(model: "pm.Model", *, freeze_model: bool = True) -> Explanation:
    """Say for each likelihood and prior of ``model`` what the plugin rewrites, and why not more.

    The log density is rewritten as PyMC and nutpie do, with the plugin on, and its gradient in mode
    NUMBA; nothing is compiled, sampled or changed. Each decision is also a line of level INFO on
    ``logging.getLogger("pymc_fastlogp")``, here and in every compilation.

    Parameters
    ----------
    model : pymc.Model
        The model.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`. False shows what plain ``pm.sample`` gets.

    Returns
    -------
    Explanation
        A table in a terminal, HTML in a notebook; ``to_dict``, ``to_frame`` and
        ``explanation["name of a variable"]`` in code.

    Raises
    ------
    TypeError
        If ``model`` is not a PyMC model.
    ValueError
        If it has neither random variables nor potentials.
    RuntimeError
        If the plugin does nothing with the installed versions of PyMC and PyTensor.

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
    # Late, as all imports of the kernel, see `late`.
    from pymc_fastlogp.explain.kernels import kernels_of

    _check(model)
    variables = _variables(model)
    if freeze_model:
        from pymc.model.transform.optimization import freeze_dims_and_data

        model = freeze_dims_and_data(model)
    terms = [pt.as_tensor(x, allow_xtensor_conversion=True).sum() for x in model.logp(sum=False)]
    fgraph, recorder = rewrite_terms(terms)
    rows = {
        variable.name: _outcomes(kind, variable, recorder.standing(term))
        for term, (kind, variable) in enumerate(_variables(model))
    }
    # A frozen model may have its variables in another order.
    in_order = tuple(row for _, variable in variables for row in rows[variable.name])
    return Explanation(in_order, kernels_of(fgraph.outputs, model.continuous_value_vars))


def _check(model: "pm.Model") -> None:
    if not isinstance(getattr(model, "basic_RVs", None), list):
        raise TypeError(
            f"explain needs a PyMC model, not {type(model).__name__}:"
            " pass what `with pm.Model() as model:` made."
        )
    if not model.basic_RVs and not model.potentials:
        raise ValueError("The model is empty: add a random variable or a potential to it.")
    if reason := untested_reason():
        raise RuntimeError(f"pymc_fastlogp stays off: {reason}. Install a tested version.")


def _variables(model: "pm.Model") -> list[tuple[str, pt.TensorVariable]]:
    """Return the kind of each term of the log density and its variable, in the order of the terms."""
    of_kind = {
        "prior": model.free_RVs,
        "likelihood": model.observed_RVs,
        "potential": model.potentials,
    }
    return [(kind, variable) for kind, variables in of_kind.items() for variable in variables]


def _outcomes(
    kind: str, variable: pt.TensorVariable, decisions: Iterable[Decision]
) -> list[Outcome]:
    """Return what happened to one term, at least one row; what fired first."""
    size = _size(kind, variable)
    alike = defaultdict(list)
    for decision in decisions:
        n_rows = size if decision.rows_before is None else decision.rows_before
        if decision.fired or n_rows is None or n_rows > OVERHEAD:
            alike[_what(decision)].append(decision)
    if not alike:
        reason = NONE_APPLIES if size is None or size > OVERHEAD else FEW_ENTRIES
        return [Outcome(variable.name, kind, rewrite="", reason=reason)]
    outcomes = [_outcome(kind, variable, decisions) for decisions in alike.values()]
    return sorted(outcomes, key=lambda outcome: not outcome.fired)


def _size(kind: str, variable: pt.TensorVariable) -> int | None:
    """Return how many entries a variable has, if known. A potential may be the sum of any number."""
    shape = variable.type.shape
    return None if kind == "potential" or None in shape else prod(shape)


def _what(decision: Decision) -> tuple:
    """Return what makes decisions about several variables of a graph the same to the user."""
    rows = (decision.rows_before, decision.rows_after) if decision.fired else ()
    return (decision.rule, decision.reason, decision.by, *rows)


def _outcome(kind: str, variable: pt.TensorVariable, alike: list[Decision]) -> Outcome:
    # Of a matrix, some reductions go over rows alone and some over columns as well.
    decision = min(alike, key=lambda decision: decision.rows_before or inf)
    reason, advice = split_advice(decision.reason)
    return Outcome(
        variable.name,
        kind,
        rewrite=decision.rule,
        times=len(alike),
        rows_before=decision.rows_before,
        rows_after=decision.rows_after,
        reason=reason,
        advice=advice,
        by=decision.by,
    )
