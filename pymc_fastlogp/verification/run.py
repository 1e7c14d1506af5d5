"""The public :func:`verify`: compile a model with the plugin on and off, and compare both at all points."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pymc_fastlogp.display import progress_line
from pymc_fastlogp.models.freeze import frozen_copy
from pymc_fastlogp.models.in_place_rewrites import apply_in_place_rewrites
from pymc_fastlogp.models.table_rows import RowsRead, without_tables
from pymc_fastlogp.models.validate import model_with_variables, validated_model
from pymc_fastlogp.tables.progress import progress_shown
from pymc_fastlogp.verification import logp_functions
from pymc_fastlogp.verification.comparison import compare, is_beyond_upstream
from pymc_fastlogp.verification.logp_functions import LogpDlogp
from pymc_fastlogp.verification.points import Sizes, points_around
from pymc_fastlogp.verification.result import Verification, WorstEntry
from pymc_fastlogp.verification.upstream import Clock, Upstream

if TYPE_CHECKING:
    import pymc as pm

    from pymc_fastlogp.compilation.nutpie_model import CompiledModel

# Default tolerance for each precision of the variables.
RTOL = {"float64": 1e-12, "float32": 1e-4}


def verify(
    model: "pm.Model | None" = None,
    *,
    n_random: int = 8,
    rtol: float | None = None,
    seed: int = 0,
    freeze_model: bool = True,
    compiled: "CompiledModel | None" = None,
    seconds: float | None = 10.0,
) -> Verification:
    """Compare logp and all gradient entries of ``model`` with the plugin off and on.

    The model without the plugin runs in NumPy, uncompiled. At a point where the sides differ, the compiled model decides.

    A model of a table is compared twice: the model as written, at the first rows of the table, with the model of their distinct rows; and the model of
    the distinct rows of the whole table, off and on.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; by default the one whose context is open. Discrete variables are held at their
        initial values.
    n_random : int
        Number of random points, standard normal on the unconstrained scale around the initial point.
        Further points have extreme coordinates (from 1e-300 to 1e10, of either sign), values of one variable
        outside of many supports, or one entry far out.
    rtol : float
        Relative tolerance in addition to the round-off of upstream's own value at the point;
        the docstring of the module has the formula. By default 1e-12, or 1e-4 if all variables are float32.
    seed : int
        Seed of the random points.
    freeze_model : bool
        Treat ``pm.Data`` and dimension lengths as constants, as with
        :func:`pymc_fastlogp.compile_kwargs`.
    compiled : CompiledModel, optional
        The model as compiled by :func:`pymc_fastlogp.compile_pymc_model`; by default the model is compiled.
    seconds : float, optional
        Time for evaluations, without compilation; a single evaluation is not interrupted. Slow models are compared at
        fewer points, and the result says at how many. None for no limit.

    Returns
    -------
    Verification
        True if all entries agree and the log density is finite at some point; prints as a table with the worst entry of each variable.

    Raises
    ------
    TypeError
        If there is no PyMC model, or ``compiled`` was compiled by nutpie itself.
    ValueError
        If the model has no continuous free variable, or draws random numbers in each evaluation, as a minibatch does.
        If ``compiled`` has other variables than the model, as a reparametrized model has.
    NotImplementedError, NullTypeGradError
        If PyTensor has no gradient of an operation, such as a black box.
    RuntimeError
        If the plugin cannot be switched on, for example with untested versions of PyMC and PyTensor.
    """
    as_written = model_with_variables("verify", model)
    with progress_shown(True):
        model = validated_model("verify", as_written, freeze_model=freeze_model)
    if compiled is None:
        of_first_rows = _verify_first_rows(as_written, n_random, rtol, seed, seconds)
        if of_first_rows is not None and not of_first_rows.agrees:
            return of_first_rows
    start = model.initial_point(random_seed=seed)
    if compiled is None:
        apply_in_place_rewrites(model)
        on = logp_functions.compile_logp_dlogp(model, start, "NUMBA", on=True)
    else:  # `apply_in_place_rewrites` is for the first compilation of a model.
        on = logp_functions.logp_dlogp_of(compiled, model)
    _check_repeats(on, model, start)
    found = _verify(model, start, on, n_random, rtol, seed, seconds)
    if found.n_finite or found.n_undecided:
        return found
    return replace(found, causes=_causes(model, start))


def _causes(model: "pm.Model", start: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the causes that :func:`pymc_fastlogp.sample` names, if the log density is not finite at the initial point."""
    from pymc_fastlogp.sampling.diagnosis import causes

    try:
        return tuple(causes(model, [start]))
    except Exception:  # an operation that needs a compiler
        return ()


def _verify_first_rows(
    as_written: "pm.Model", n_random: int, rtol: float | None, seed: int, seconds: float | None
) -> Verification | None:
    """Compare a model at the rows that its placeholders hold, off, with that at their distinct rows, on; None for a model of no table."""
    reduced, tables = without_tables(as_written, RowsRead.FIRST)
    if not tables:
        return None
    model = frozen_copy(as_written)
    start = model.initial_point(random_seed=seed)
    order = [variable.name for variable in model.continuous_value_vars]
    on = logp_functions.compile_logp_dlogp(
        frozen_copy(reduced), start, "NUMBA", on=True, order=order
    )
    return _verify(model, start, on, n_random, rtol, seed, seconds)


def _verify(
    model: "pm.Model",
    start: dict[str, np.ndarray],
    on: LogpDlogp,
    n_random: int,
    rtol: float | None,
    seed: int,
    seconds: float | None,
) -> Verification:
    """Compare a compiled function with the model compiled without the plugin, at all points for which there is time."""
    clock = Clock(seconds)
    upstream = Upstream(model, start, clock, np.random.default_rng(seed))
    on = clock.timed(on)
    sizes = {v.name: np.shape(start[v.name]) for v in model.continuous_value_vars}
    if rtol is None:
        rtol = RTOL[np.result_type(*(start[name] for name in sizes)).name]
    points = points_around(start, sizes, n_random, upstream.rng)
    worst: dict[str, WorstEntry] = {}
    n_begun = n_beyond = n_finite = n_undecided = 0
    with progress_line("verify") as show:
        for label, x in points:
            if n_begun and not clock.may_begin:
                break
            show(f"verify: {n_begun} of {len(points)} points")
            n_begun += 1
            found = _at(label, x, on(x), upstream, sizes, rtol)
            n_finite += found.is_finite
            n_beyond += found.is_beyond
            n_undecided += found.is_undecided
            for row in found.rows:
                if row.variable not in worst or row.ratio > worst[row.variable].ratio:
                    worst[row.variable] = row
    return Verification(
        tuple(worst.values()),
        n_begun - n_beyond - n_undecided,
        rtol,
        n_beyond,
        n_finite,
        len(points) - n_begun,
        n_undecided,
    )


def _check_repeats(logp_dlogp: LogpDlogp, model: "pm.Model", start: dict[str, np.ndarray]) -> None:
    """Raise a ValueError if two evaluations at one point differ."""
    x = np.concatenate([np.ravel(start[v.name]) for v in model.continuous_value_vars])
    if not np.array_equal(logp_dlogp(x), logp_dlogp(x), equal_nan=True):
        raise ValueError(
            "the model draws random numbers in each evaluation, so that results cannot be compared: give verify a model with"
            " all of the data instead of a minibatch."
        )


class _Found(NamedTuple):
    """Comparison at one point; without rows if the point is beyond upstream or undecided."""

    rows: list[WorstEntry]
    is_finite: bool
    is_beyond: bool = False
    is_undecided: bool = False


def _at(
    label: str, x: np.ndarray, on: np.ndarray, upstream: Upstream, sizes: Sizes, rtol: float
) -> _Found:
    """Compare at one point. Where NumPy's result differs, the result of the compiled model decides."""
    rows: list[WorstEntry] = []
    is_finite = False
    for off, around in upstream.values(x):
        is_finite = bool(np.isfinite(off[0]) or np.isfinite(on[0]))
        if is_beyond_upstream(x, off, on):
            return _Found([], is_finite, is_beyond=True)
        for near in around:
            rows = list(compare(off, on, near, label, sizes, rtol))
            if all(row.passed for row in rows):
                return _Found(rows, is_finite)
            if upstream.clock.left <= 0:
                return _Found([], is_finite, is_undecided=True)
        if upstream.is_inexact(x, off, on):
            return _Found([], is_finite, is_beyond=True)
    return _Found(rows, is_finite)
